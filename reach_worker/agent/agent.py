"""Declaring an agent: a manifest, and one handler per capability."""

import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from reach_worker.agent.context import Context
from reach_worker.core.document import Document, nearest
from reach_worker.core.manifest import Manifest, load_manifest, manifest_from
from reach_worker.core.tags import TagTable, fold
from reach_worker.errors import BadInput, Problem

Function = Callable[..., Any]
F = TypeVar("F", bound=Function)
_MARK: Final = "__reach_capability__"


@dataclass(frozen=True, slots=True)
class Handler:
    """A function that does one capability. ``wants_context``: it takes the context beside the payload."""

    capability_id: str
    function: Function
    is_async: bool
    wants_context: bool

    def call(self, payload: Mapping[str, Any], context: Context) -> Any | Awaitable[Any]:
        """Call it. An async one returns its coroutine."""
        return self.function(payload, context) if self.wants_context else self.function(payload)


def capability(capability_id: str, **declaration: object) -> Callable[[F], F]:
    """Mark a method of an :class:`Agent` subclass as the handler of a capability.

    ``declaration`` holds manifest fields of the capability (``description``, ``input_schema``, ``cost``, …),
    where no manifest file declares them.
    """

    def mark(function: F) -> F:
        setattr(function, _MARK, (capability_id, declaration))
        return function

    return mark


class Agent:
    """An agent: ``Agent("echo")`` and decorated functions, or a subclass with methods marked by :func:`capability`.

    The declaration comes from a manifest (a YAML file, a :class:`Manifest`), or from keyword arguments here
    and at the decorators, with the manifest's field names.
    """

    def __init__(
        self,
        agent_id: str | None = None,
        *,
        manifest: Manifest | Path | str | None = None,
        **declaration: object,
    ) -> None:
        self._given = _read(manifest)
        self._declaration = {"mutually_exclusive_tags": [], **declaration}
        self._id = agent_id or (self._given.id if self._given else None) or str(declaration.get("id") or "")
        if not self._id:
            raise BadInput(Problem("an agent needs an id or a manifest", hint='Agent("log-analyzer")'))
        self._capabilities: list[dict[str, object]] = []
        self.handlers: dict[str, Handler] = {}
        for name, function in inspect.getmembers(type(self), inspect.isfunction):
            marked = getattr(function, _MARK, None)
            if marked is not None:
                self._add(marked[0], getattr(self, name), marked[1])

    def capability(self, capability_id: str, **declaration: object) -> Callable[[F], F]:
        """Register the decorated function (async or plain) as the handler of a capability.

        It is called with the payload, or with the payload and a :class:`Context` if it takes two parameters.
        A plain function runs in a thread. What it returns must be JSON.
        """

        def register(function: F) -> F:
            self._add(capability_id, function, declaration)
            return function

        return register

    @property
    def manifest(self) -> Manifest:
        """The declaration. Raises :class:`BadInput` if it is not complete."""
        if self._given is not None:
            self._all_handled(self._given)
            return self._given
        data = {"id": self._id, "capabilities": self._capabilities, **self._declaration}
        return manifest_from(Document(data, file=f"agent {self._id!r}"), tags=TagTable({}))

    def _add(self, capability_id: str, function: Function, declaration: Mapping[str, object]) -> None:
        name = fold(capability_id)
        if name in self.handlers:
            raise BadInput(f"agent {self._id!r}: two handlers for capability {name!r}")
        if self._given is not None and self._given.capability(name) is None:
            known = [known.id for known in self._given.capabilities]
            close = nearest(name, known)
            hint = f"did you mean {close!r}?" if close else f"it declares {', '.join(known)}"
            raise BadInput(Problem(f"agent {self._id!r}: the manifest has no capability {name!r}", hint=hint))
        self.handlers[name] = Handler(
            name, function, inspect.iscoroutinefunction(function), _takes_two(function)
        )
        self._capabilities.append({"id": name, **declaration})

    def _all_handled(self, manifest: Manifest) -> None:
        missing = [c.id for c in manifest.capabilities if c.id not in self.handlers]
        if missing:
            problem = (
                f"agent {self._id!r}: the manifest declares {', '.join(missing)}, but no function handles it"
            )
            raise BadInput(Problem(problem, hint=f'@agent.capability("{missing[0]}")'))


def _read(manifest: Manifest | Path | str | None) -> Manifest | None:
    if manifest is None or isinstance(manifest, Manifest):
        return manifest
    path = Path(manifest)
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(Problem(f"the manifest cannot be read: {error}", file=str(path))) from error
    return load_manifest(text, file=str(path), tags=TagTable({}))


def _takes_two(function: Function) -> bool:
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    match [p for p in inspect.signature(function).parameters.values() if p.kind in kinds]:
        case [_]:
            return False
        case [_, _]:
            return True
        case _:
            raise BadInput(f"handler {function!r} takes the payload, or the payload and a context")
