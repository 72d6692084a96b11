"""Asking a person while a connection to the broker is open: it must not starve meanwhile."""

import asyncio
import os
import shlex
import sys
import tempfile
from pathlib import Path

import click

from reach_worker.errors import BadInput, Problem


async def confirmed(question: str) -> bool:
    """Ask on standard error; whether the answer on standard input is yes."""
    click.echo(f"{question} [y/N] ", nl=False, err=True)
    await _readable(sys.stdin.fileno())
    return sys.stdin.readline().strip().casefold() in ("y", "yes")


async def _readable(descriptor: int) -> None:
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    try:
        loop.add_reader(descriptor, ready.set)
    except OSError:
        return  # a file: nobody has to be waited for
    try:
        await ready.wait()
    finally:
        loop.remove_reader(descriptor)


async def edited(text: bytes, environ: dict[str, str]) -> bytes | None:
    """What a person makes of the text in ``$VISUAL`` or ``$EDITOR``; ``None`` if it was left as it was."""
    editor = environ.get("VISUAL") or environ.get("EDITOR") or "vi"
    with tempfile.TemporaryDirectory(prefix="reach-") as folder:
        file = Path(folder) / "task.json"
        await asyncio.to_thread(file.write_bytes, text)
        await _run(editor, file)
        result = await asyncio.to_thread(file.read_bytes)
    return None if result == text else result


async def _run(editor: str, file: Path) -> None:
    try:
        process = await asyncio.create_subprocess_exec(*shlex.split(editor), os.fspath(file))
    except OSError as error:
        hint = "set VISUAL or EDITOR"
        raise BadInput(Problem(f"{editor!r} cannot be run: {error.strerror or error}", hint=hint)) from error
    status = await process.wait()
    if status != 0:
        raise BadInput(f"the editor {editor!r} ended with status {status}: nothing was changed")
