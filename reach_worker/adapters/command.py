"""A command-line program as an agent: each task is one run of it."""

import asyncio
import errno
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, nullcontext
from pathlib import Path
from typing import Any, Final, Literal

import orjson
from pydantic import Field, field_validator

from reach_worker.adapters.endings import Failed, TimedOut, ending
from reach_worker.adapters.process import Command, Program, ProgramEnd, running
from reach_worker.adapters.program_input import arguments, inherited, plain_text
from reach_worker.adapters.program_output import Output, OutputKind
from reach_worker.adapters.secrets import secrets_in
from reach_worker.adapters.section import (
    MEBIBYTE,
    Bytes,
    Kind,
    Number,
    Rest,
    Seconds,
    Section,
    Text,
    outcome_table,
)
from reach_worker.adapters.telling import Telling
from reach_worker.adapters.templates import Values, template, values_of
from reach_worker.agent.context import Context
from reach_worker.agent.outcomes import AgentOutcome, BadRequest, Unavailable
from reach_worker.core.document import fault
from reach_worker.core.outcome import OutcomeClass
from reach_worker.ports import Clock

TAIL_BYTES: Final = 4_096
SHOWN: Final = 400
"""Characters of standard error that an error text shows, the last ones."""


class CommandSection(Section):
    """``kind: command``."""

    kind: Literal["command"] = "command"
    argv: tuple[Text, ...] = Field(
        min_length=1,
        description="the program and its arguments, with {fields} of the payload; no shell reads them; one whose "
        "{optional?} field is missing is left out",
    )
    stdin: Literal["payload", "none"] = Field(
        "payload", description="what it reads: the payload as JSON, or nothing"
    )
    stdin_text: Text | None = Field(None, description="a text for it to read in place of that, with {fields}")
    env: dict[str, Text] = Field(default_factory=dict, description="variables that it gets beside ours")
    inherit: tuple[str, ...] | None = Field(
        None, description="which of our variables it gets; without it all but those that begin with REACH_"
    )
    folder: str | None = Field(None, description="where it runs; without it where the agent does")
    temporary_folder: bool = Field(
        default=False, description="it runs in a new folder, which is deleted after it"
    )
    output: OutputKind = Field(
        "text", description="its result: `text` (all it wrote), `last_json_line`, or `json` (one document)"
    )
    stream: bool | None = Field(
        None,
        description="whether its lines are streamed as they come; by default, unless its output is `json`",
    )
    exit_codes: dict[Number, Kind] = Field(
        default_factory=dict, description="outcome classes by exit code; 0 is `succeeded`, any other `failed`"
    )
    rest_s: Rest = Field(30.0, description="seconds of rest after an exit code that means `rate_limited`")
    grace_s: Seconds = Field(5.0, description="from SIGTERM to SIGKILL when it is stopped")
    max_output_bytes: Bytes = Field(8 * MEBIBYTE, description="more output ends it: `failed`")

    @field_validator("argv")
    @classmethod
    def _program_is_fixed(cls, argv: tuple[str, ...]) -> tuple[str, ...]:
        if template(argv[0]).places:
            raise fault("takes a field of the payload: nobody who calls may choose the program", 0)
        return argv


class CommandAdapter:
    """Runs the program."""

    def __init__(self, section: CommandSection, environ: Mapping[str, str], clock: Clock) -> None:  # noqa: ARG002 - as all adapters are made
        self._section = section
        self._secrets = secrets_in(section.model_dump(), environ)
        self._argv = [template(text).within(environ) for text in section.argv]
        self._stdin_text = (
            None if section.stdin_text is None else template(section.stdin_text).within(environ)
        )
        self._env = {name: template(text).within(environ) for name, text in section.env.items()}
        self._inherited = inherited(environ, section.inherit)
        self._codes = {0: OutcomeClass.SUCCEEDED, **outcome_table(section.exit_codes)}
        self._streams = section.output != "json" if section.stream is None else section.stream
        self._name = section.argv[0]

    def opened(self) -> AbstractAsyncContextManager[None]:
        """There is nothing to open."""
        return nullcontext()

    def warnings(self) -> list[str]:
        """What is probably not meant."""
        folder = self._section.folder
        found = []
        if not self._found():
            found.append(
                f"there is no program {self._name!r} in PATH: until there is, its tasks are `unavailable`"
            )
        if folder is not None and not Path(folder).is_dir():
            found.append(f"there is no folder {folder!r}: until there is, its tasks are `unavailable`")
        return found

    def _found(self) -> bool:
        name = self._argv[0].filled(Values({}, {})) or ""
        base = self._section.folder or "."
        where = str(Path(base, name)) if os.sep in name else name
        return shutil.which(where, path=self._inherited.get("PATH", os.defpath)) is not None

    async def run(self, payload: Mapping[str, Any], context: Context) -> Any:
        """One task: one run."""
        values = values_of(payload, context)
        data = self._input(payload, values)
        output = Output(self._section.max_output_bytes)
        with self._secrets.kept(self._name):
            async with self._program(values, has_input=data is not None) as program:
                end, tail = await self._to_its_end(program, data or b"", output, context)
        problem = self._problem(end, tail)
        if problem is not None:
            raise problem
        return output.result(self._section.output)

    async def _to_its_end(
        self, program: Program, data: bytes, output: Output, context: Context
    ) -> tuple[ProgramEnd, bytes]:
        """Feed it, pass its lines on, and wait; never longer than the attempt may take."""
        limit = asyncio.timeout(context.seconds_left())
        end, trouble = ProgramEnd(), None
        try:
            async with limit, asyncio.TaskGroup() as group:
                group.create_task(program.feed(data), name="standard input")
                tail = group.create_task(program.error_tail(TAIL_BYTES), name="standard error")
                try:
                    await self._pass_on(program, output, context)
                    end = await program.ended()
                except AgentOutcome as found:
                    trouble = found
                    program.stop()
        except TimeoutError:
            if not limit.expired():
                raise
            raise TimedOut(f"not done within {context.timeout_s:g} s, and stopped") from None
        if trouble is not None:
            raise trouble
        return end, tail.result()

    async def _pass_on(self, program: Program, output: Output, context: Context) -> None:
        telling = Telling(context, silent=not self._streams)
        async for chunk in program.output():
            for line in output.take(chunk):
                await telling.say(line)
        for line in output.last():
            await telling.say(line)

    def _problem(self, end: ProgramEnd, tail: bytes) -> AgentOutcome | None:
        kind = (
            OutcomeClass.FAILED
            if end.exit_code is None
            else self._codes.get(end.exit_code, OutcomeClass.FAILED)
        )
        if kind is OutcomeClass.SUCCEEDED:
            return None
        said = " ".join(tail.decode("utf-8", "replace").split())
        said = said if len(said) <= SHOWN else f"…{said[-SHOWN:]}"
        words = self._secrets.hidden(f"{self._name}: {end.words()}" + (f": {said}" if said else ""))
        if end.errno == errno.E2BIG:
            return BadRequest(f"{words}; what is so long goes to its standard input")
        if end.exit_code is None and end.signal is None:
            return Unavailable(words)
        return ending(kind, words, rest_s=self._section.rest_s)

    # -- starting

    @asynccontextmanager
    async def _program(self, values: Values, *, has_input: bool) -> AsyncIterator[Program]:
        argv = arguments(self._argv, values)
        env = {name: text.filled(values) for name, text in self._env.items()}
        given = {name: plain_text(text, name) for name, text in env.items() if text is not None}
        folder = tempfile.mkdtemp(prefix="reach-") if self._section.temporary_folder else ""
        cwd = folder or self._section.folder
        command = Command(argv, {**self._inherited, **given}, cwd, folder, self._section.grace_s)
        async with AsyncExitStack() as stack:
            try:
                program = await stack.enter_async_context(running(command, has_input=has_input))
            except OSError as error:
                shutil.rmtree(folder, ignore_errors=True)
                raise _not_started(error) from None
            yield program

    def _input(self, payload: Mapping[str, Any], values: Values) -> bytes | None:
        if self._stdin_text is not None:
            return (self._stdin_text.filled(values) or "").encode()
        return orjson.dumps(payload) if self._section.stdin == "payload" else None


def _not_started(error: OSError) -> AgentOutcome:
    if error.errno == errno.E2BIG:
        return BadRequest(
            "too much for an argument or a variable; what is so long goes to its standard input"
        )
    if error.errno in (errno.ENOENT, errno.EACCES, errno.ENOTDIR, errno.EAGAIN, errno.ENOMEM, errno.EMFILE):
        return Unavailable(f"cannot be started: {error}")
    return Failed(f"cannot be started: {error}")
