"""Declaring an agent: a manifest, and one handler per capability."""

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

from reach_worker.agent.declaration import (
    all_handled,
    declared_capability,
    manifest_document,
    overridden,
)
from reach_worker.agent.handler import Handler, handler_of
from reach_worker.agent.life import Life
from reach_worker.agent.signature import Function
from reach_worker.core.document import Document
from reach_worker.core.manifest import Manifest, manifest_from
from reach_worker.core.tags import TagTable, fold
from reach_worker.errors import BadInput, Problem

__all__ = ["Agent", "Function", "Handler", "capability"]

F = TypeVar("F", bound=Function)
_MARK: Final = "__reach_capability__"


def capability(capability_id: str, **declaration: object) -> Callable[[F], F]:
    """Mark a method of an :class:`Agent` subclass as the handler of a capability.

    ``declaration`` holds manifest fields of the capability (``description``, ``input_schema``, ``cost``, …); they go
    over what the method's type hints and docstring say.
    """

    def mark(function: F) -> F:
        setattr(function, _MARK, (capability_id, declaration))
        return function

    return mark


class Agent:
    """An agent: ``Agent("echo")`` and decorated functions, or a subclass with methods marked by :func:`capability`.

    The declaration comes from the functions' type hints and docstrings, over that from keyword arguments here and at the
    decorators, with the manifest's field names, and over that from a ``manifest`` (a YAML file, a :class:`Manifest`).

    ``lifespan``: what is opened before the first task and closed after the last, as for :meth:`lifespan`.
    """

    def __init__(
        self,
        agent_id: str | None = None,
        *,
        manifest: Manifest | Path | str | None = None,
        lifespan: Callable[..., Any] | None = None,
        **declaration: object,
    ) -> None:
        self._document = None if manifest is None else manifest_document(manifest)
        self._declaration = {"mutually_exclusive_tags": [], **declaration}
        self._id = agent_id or _id_in(self._document) or str(declaration.get("id") or "")
        if not self._id:
            raise BadInput(Problem("an agent needs an id or a manifest", hint='Agent("log-analyzer")'))
        self._capabilities: dict[str, dict[str, Any]] = {}
        self.handlers: dict[str, Handler] = {}
        self.life = Life(self)
        if lifespan is not None:
            self.life.spans(lifespan)
        for name, function in inspect.getmembers(type(self), inspect.isfunction):
            marked = getattr(function, _MARK, None)
            if marked is not None:
                self._add(marked[0], getattr(self, name), marked[1])

    def capability(self, capability_id: str, **declaration: object) -> Callable[[F], F]:
        """Register the decorated function (async or plain, a generator or not) as the handler of a capability.

        It is called with the payload, as the type that its hint names; or with the payload's fields as parameters. A
        parameter with the hint :class:`Context` is given that. A plain function runs in a thread. What it returns must
        be JSON, or a model, or a dataclass.
        """

        def register(function: F) -> F:
            self._add(capability_id, function, declaration)
            return function

        return register

    def lifespan(self, function: F) -> F:
        """Register what is open while the agent works: an async generator, or what returns an async context manager.

        It takes the agent, or nothing. What it yields is ``context.resources`` for every handler.
        """
        self.life.spans(function)
        return function

    def on_startup(self, function: F) -> F:
        """Register a function to be called before the agent says that it is there. If it raises, the process ends."""
        self.life.startups.append(function)
        return function

    def on_shutdown(self, function: F) -> F:
        """Register a function to be called when the last task is done, also if the agent's run ended badly."""
        self.life.shutdowns.append(function)
        return function

    def override(self, manifest: Manifest | Path | str) -> None:
        """Let a manifest have the last word; what it does not say stays as it is. Raises ``BadInput``."""
        self._document = manifest_document(manifest)
        for name, handler in self.handlers.items():
            self.handlers[name] = handler.with_output_schema(self._output_schema(name))

    @property
    def id(self) -> str:
        """The agent's id, as it is written where it is said last."""
        return _id_in(self._document) or self._id

    @property
    def manifest(self) -> Manifest:
        """The declaration. Raises :class:`BadInput` if it is not complete."""
        data = {"id": self._id, "capabilities": [*self._capabilities.values()], **self._declaration}
        if self._document is None:
            return manifest_from(Document(data, file=f"agent {self._id!r}"), tags=TagTable({}))
        all_handled(self.id, self._document, [*self.handlers])
        return manifest_from(overridden(data, self._document), tags=TagTable({}))

    def _add(self, capability_id: str, function: Function, declaration: Mapping[str, object]) -> None:
        name = fold(capability_id)
        if name in self.handlers:
            raise BadInput(f"agent {self._id!r}: two handlers for capability {name!r}")
        handler = handler_of(name, function)
        self._capabilities[name] = {"id": name, **handler.declaration(), **declaration}
        self.handlers[name] = handler.with_output_schema(self._output_schema(name))

    def _output_schema(self, name: str) -> Mapping[str, Any]:
        said = {**self._capabilities[name], **declared_capability(self._document, name)}
        schema = said.get("output_schema")
        return schema if isinstance(schema, Mapping) else {}


def _id_in(document: Document | None) -> str:
    return "" if document is None else str(document.members.get("id") or "")
