"""What only the broker's own tool can tell: its consumer timeout, and policies. For who is on the broker's machine."""

import asyncio
import os
import re
import shlex
import shutil
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

LIMIT_S: Final = 30.0
USUAL: Final = "rabbitmqctl"
_TIMEOUT: Final = "application:get_env(rabbit, consumer_timeout)."


@dataclass(frozen=True, slots=True)
class Told:
    """What it said; ``trouble``: why nothing could be asked.

    ``consumer_timeout_s``: ``None`` where it has none. ``policies``: by queue, each policy's name and content.
    ``bindings``: from which exchange to which queue.
    """

    consumer_timeout_s: float | None = None
    policies: Mapping[str, tuple[str, Mapping[str, Any]]] = field(default_factory=dict)
    bindings: Collection[tuple[str, str]] = ()
    trouble: str | None = None


def usual_command() -> Sequence[str]:
    """The tool where it usually is; nothing if it is not there."""
    return [USUAL] if shutil.which(USUAL) else []


async def ask(command: Sequence[str], vhost: str, our_connection: str) -> Told:
    """Ask the tool. Only if it speaks of the broker that we are connected to: that has ``our_connection``."""
    if not command:
        return Told(trouble=f"there is no {USUAL} here, or it was not to be asked")
    try:
        connections = await _run(command, "list_connections", "client_properties")
        if our_connection not in connections:
            return Told(trouble=f"{shlex.join(command)} speaks of another broker")
        of_vhost = ("-p", vhost, "--formatter=json")
        timeout, queues, policies, bindings = await asyncio.gather(
            _run(command, "eval", _TIMEOUT),
            _run(command, "list_queues", *of_vhost, "name", "policy"),
            _run(command, "list_policies", *of_vhost),
            _run(command, "list_bindings", *of_vhost, "source_name", "destination_name"),
        )
        bound = {(each["source_name"], each["destination_name"]) for each in orjson.loads(bindings)}
        return Told(_seconds(timeout), _policies(orjson.loads(queues), orjson.loads(policies)), bound)
    except TimeoutError:
        return Told(trouble=f"{shlex.join(command)} does not answer within {LIMIT_S:g} s")
    except (OSError, ValueError, KeyError) as error:
        return Told(trouble=f"{shlex.join(command)}: {error}")


async def _run(command: Sequence[str], *arguments: str) -> str:
    """What it prints. Raises ``ValueError`` with its words where it fails."""
    process = await asyncio.create_subprocess_exec(
        *command,
        "--quiet",
        *arguments,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "LC_ALL": "C.UTF-8"},
    )
    try:
        async with asyncio.timeout(LIMIT_S):
            out, err = await process.communicate()
    except BaseException:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        raise
    if process.returncode:
        words = (err or out).decode("utf-8", "replace").split("\n\n")[0].strip()
        raise ValueError(words[:200] or f"it ended with status {process.returncode}")
    return out.decode("utf-8", "replace")


def _seconds(told: str) -> float | None:
    found = re.search(r"\{ok,\s*(\d+)\}", told)
    return int(found[1]) / 1000 if found else None


def _policies(
    queues: Sequence[Mapping[str, Any]], policies: Sequence[Mapping[str, Any]]
) -> dict[str, tuple[str, Mapping[str, Any]]]:
    content = {policy["name"]: _definition(policy.get("definition")) for policy in policies}
    return {
        queue["name"]: (queue["policy"], content[queue["policy"]])
        for queue in queues
        if queue.get("policy") in content
    }


def _definition(value: object) -> Mapping[str, Any]:
    """Some versions give JSON in a text."""
    if isinstance(value, str):
        value = orjson.loads(value)
    return value if isinstance(value, dict) else {}
