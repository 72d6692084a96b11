"""Agents that are adapters: from a YAML file (a manifest with an ``adapter`` section), or from Python.

::

    weather = {"id": "weather", "capabilities": [{"id": "weather.now"}]}
    agent = http_agent(weather, url="https://…/now?city={city}", method="GET")
"""

import asyncio
import importlib
import os
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from reach_worker.adapters.agent_file import (
    ADAPTER,
    checked_section,
    manifest_document,
    missing_variables,
    no_section,
    unknown_fields,
)
from reach_worker.adapters.queue import OpenBus
from reach_worker.adapters.section import Section
from reach_worker.agent.agent import Agent
from reach_worker.agent.context import Context
from reach_worker.agent.outcomes import Cancelled
from reach_worker.clock import SystemClock
from reach_worker.core.document import Document, nearest
from reach_worker.core.manifest import Manifest, manifest_from
from reach_worker.core.tags import TagTable
from reach_worker.core.yaml_text import parse
from reach_worker.errors import BadInput, OurBug, Problem


class Adapter(Protocol):
    """What does an agent's tasks. Everything that it needs is open within ``opened``."""

    def opened(self) -> Any:
        """What is open while the agent works: an async context manager."""
        ...

    def warnings(self) -> list[str]:
        """What is probably not meant, for the start."""
        ...

    async def run(self, payload: Mapping[str, Any], context: Context) -> Any:
        """Do one task."""
        ...


@dataclass(frozen=True, slots=True)
class Kind:
    """Where a kind of adapter lives. Its module is imported when it is needed: not everybody speaks HTTP.

    ``needs_bus``: it is made with a way to reach a broker.
    """

    module: str
    section: str
    adapter: str
    needs_bus: bool = False

    def section_type(self) -> type[Section]:
        return getattr(importlib.import_module(self.module), self.section)  # type: ignore[no-any-return]

    def made(self, section: Section, environ: Mapping[str, str], open_bus: OpenBus) -> Adapter:
        adapter = getattr(importlib.import_module(self.module), self.adapter)
        more = (open_bus,) if self.needs_bus else ()
        return adapter(section, environ, SystemClock(), *more)  # type: ignore[no-any-return]


KINDS: Final = {
    "http": Kind("reach_worker.adapters.http", "HttpSection", "HttpAdapter"),
    "chat": Kind("reach_worker.adapters.chat", "ChatSection", "ChatAdapter"),
    "command": Kind("reach_worker.adapters.command", "CommandSection", "CommandAdapter"),
    "queue": Kind("reach_worker.adapters.queue", "QueueSection", "QueueAdapter", needs_bus=True),
}


class AdapterAgent(Agent):
    """An agent whose capabilities are all done by one adapter."""

    def __init__(self, manifest: Manifest, adapter: Adapter) -> None:
        fields = manifest.model_dump(mode="json")  # as from code, so that another manifest may go over it
        capabilities = {each.pop("id"): each for each in fields.pop("capabilities")}
        super().__init__(fields.pop("id"), lifespan=adapter.opened, **fields)
        self.adapter = adapter

        async def handle(payload: Mapping[str, Any], context: Context) -> Any:
            return await _until_cancelled(adapter.run(payload, context), context)

        for capability_id, declaration in capabilities.items():
            self.capability(capability_id, **declaration)(handle)


async def _until_cancelled(run: Coroutine[Any, Any, Any], context: Context) -> Any:
    """Its result; it is ended as soon as the attempt is to stop: what it asked for, nobody waits for any more."""
    working = asyncio.ensure_future(run)  # noqa: TID251 - ends with this function
    stopping = asyncio.ensure_future(context.wait_cancelled())  # noqa: TID251 - ends with this function
    try:
        await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise Cancelled("told to stop")
        return working.result()
    finally:
        stopping.cancel()
        await _ended(working)


async def _ended(work: "asyncio.Task[Any]") -> None:
    """Cancel it and wait until it is over, however often this is cancelled meanwhile."""
    cancelled = False
    while not work.done():
        work.cancel()
        try:
            await asyncio.wait({work})
        except asyncio.CancelledError:
            cancelled = True
    if not work.cancelled():
        work.exception()  # looked at, so that nobody complains that nobody did
    if cancelled:
        raise asyncio.CancelledError


def no_bus(_url: str | None) -> Any:
    """For who has no broker at hand."""
    raise OurBug("an adapter of the kind `queue` was given no way to reach a broker")


def load_agent(path: Path, environ: Mapping[str, str], open_bus: OpenBus = no_bus) -> AdapterAgent:
    """The agent in a YAML file. Raises ``BadInput`` with file, line and field of every problem."""
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(Problem(f"the agent's file cannot be read: {error}", file=str(path))) from error
    return agent_from(parse(text, file=str(path)), environ, open_bus)


def agent_from(document: Document, environ: Mapping[str, str], open_bus: OpenBus = no_bus) -> AdapterAgent:
    """The agent in plain data. Raises ``BadInput``."""
    parts = checked(document, environ)
    try:
        return AdapterAgent(parts.manifest, parts.kind.made(parts.section, environ, open_bus))
    except BadInput as error:
        raise BadInput([document.located(problem) for problem in error.problems]) from None


@dataclass(frozen=True, slots=True)
class Parts:
    """What an adapter's file holds."""

    kind: Kind
    section: Section
    manifest: Manifest


def checked(document: Document, environ: Mapping[str, str] | None = None) -> Parts:
    """Both parts of a file; ``environ``: with the variables that it needs. Raises ``BadInput`` with every problem."""
    kind = _kind(document)
    problems: list[Problem] = []
    section = manifest = None
    try:
        section = checked_section(kind.section_type(), document)
    except BadInput as error:
        problems += error.problems
    try:
        manifest = manifest_from(manifest_document(document, kind.section_type()), tags=TagTable({}))
    except BadInput as error:
        problems += error.problems
    if section is not None and environ is not None:
        problems += missing_variables(document, environ)
    if section is not None and manifest is not None:
        problems += unknown_fields(document, manifest)
    if section is None or manifest is None or problems:
        raise BadInput(sorted(problems, key=lambda problem: (problem.line or 0, problem.column or 0)))
    return Parts(kind, section, manifest)


def http_agent(
    manifest: Mapping[str, Any], *, environ: Mapping[str, str] | None = None, **section: Any
) -> AdapterAgent:
    """An HTTP endpoint as an agent: the manifest's fields, and as keywords those of ``HttpSection``."""
    return _from_python("http", manifest, section, environ)


def chat_agent(
    manifest: Mapping[str, Any], *, environ: Mapping[str, str] | None = None, **section: Any
) -> AdapterAgent:
    """An OpenAI-compatible endpoint as an agent: the manifest's fields, and as keywords those of ``ChatSection``."""
    return _from_python("chat", manifest, section, environ)


def command_agent(
    manifest: Mapping[str, Any], *, environ: Mapping[str, str] | None = None, **section: Any
) -> AdapterAgent:
    """A program as an agent: the manifest's fields, and as keywords those of ``CommandSection``."""
    return _from_python("command", manifest, section, environ)


def queue_agent(
    manifest: Mapping[str, Any],
    open_bus: OpenBus,
    *,
    environ: Mapping[str, str] | None = None,
    **section: Any,
) -> AdapterAgent:
    """A foreign worker as an agent: the manifest's fields, and as keywords those of ``QueueSection``."""
    return _from_python("queue", manifest, section, environ, open_bus)


def _from_python(
    kind: str,
    manifest: Mapping[str, Any],
    section: Mapping[str, Any],
    environ: Mapping[str, str] | None,
    open_bus: OpenBus = no_bus,
) -> AdapterAgent:
    data = {"mutually_exclusive_tags": [], **manifest, ADAPTER: {"kind": kind, **section}}
    document = Document(data, file=f"{kind} agent {manifest.get('id', '')!r}")
    return agent_from(document, os.environ if environ is None else environ, open_bus)


def _kind(document: Document) -> Kind:
    if ADAPTER not in document.members:
        unknown = [name for name in document.members if name not in Manifest.model_fields]
        raise BadInput(no_section(document, unknown))
    section = document.members[ADAPTER]
    name = section.get("kind") if isinstance(section, dict) else None
    if isinstance(name, str) and name in KINDS:
        return KINDS[name]
    close = nearest(str(name), KINDS)
    hint = f"did you mean {close}?" if close else f"one of {', '.join(KINDS)}"
    message = "needs its kind" if name is None else f"there is no kind {name!r}"
    pointer = "/adapter" if name is None else "/adapter/kind"
    raise BadInput(document.located(Problem(message, pointer, hint=hint)))
