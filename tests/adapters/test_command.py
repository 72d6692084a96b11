"""A program as an agent, with real programs: what they are given, what they say, and that nothing of them is left."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from reach_worker.adapters import command_agent
from reach_worker.adapters.agents import AdapterAgent
from reach_worker.agent.outcomes import AgentOutcome
from reach_worker.core.outcome import OutcomeClass
from tests.adapters.attempts import MANIFEST, attempt, ending_of, result_of
from tests.bus.until import until

PYTHON = (sys.executable, "-c")
ENVIRON = {
    "PATH": os.environ["PATH"],
    "REACH_AMQP_URL": "amqp://u:secret@h/",
    "KEY": "secret-1",
    "OTHER": "o",
}


def agent(*argv: str, **section: Any) -> AdapterAgent:
    return command_agent(MANIFEST, environ=ENVIRON, argv=list(argv), **{"grace_s": 0.3, **section})


def script(code: str, *arguments: str, **section: Any) -> AdapterAgent:
    """A program in Python."""
    return agent(*PYTHON, code.replace("{", "{{").replace("}", "}}"), *arguments, **section)


SHOW = "import json, sys; print(json.dumps(sys.argv[1:]))"


async def given(payload: Mapping[str, Any], *arguments: str, **section: Any) -> Any:
    """The arguments that a program was started with."""
    return await result_of(script(SHOW, *arguments, output="json", **section), payload)


async def test_arguments_come_from_the_payload_and_no_shell_reads_them() -> None:
    text = '$(touch /tmp/x); `id` | \'a "b" *\n{c}'
    assert await given({"text": text, "n": 3}, "--text={text}", "{text}", "n{n}", "{{}}") == [
        f"--text={text}",
        text,
        "n3",
        "{}",
    ]


async def test_an_argument_whose_optional_field_is_missing_is_left_out() -> None:
    assert await given({"model": "m"}, "--model={model?}", "--style={style?}", "end") == ["--model=m", "end"]


@pytest.mark.parametrize(
    ("arguments", "allowed"),
    [
        (["{text}"], False),
        (["--flag", "x", "{text}"], False),
        (["--message", "{text}"], True),
        (["--message={text}"], True),
        (["--", "{text}"], True),
        (["--message", "{text}", "{text}"], False),
        (["{dashes}", "{text}"], False),
    ],
)
async def test_a_field_becomes_no_option(arguments: list[str], allowed: bool) -> None:
    payload = {"text": "-rf", "dashes": "--"}
    if allowed:
        assert (await given(payload, *arguments))[-1].endswith("-rf")
    else:
        kind, words = await ending_of(script(SHOW, *arguments), payload)
        assert (kind, "would be an option" in words) == (OutcomeClass.BAD_REQUEST, True)


@pytest.mark.parametrize("text", ["a\0b", "x" * 3_000_000])
async def test_a_field_that_no_argument_can_hold(text: str) -> None:
    kind, _ = await ending_of(script(SHOW, "x{text}"), {"text": text})
    assert kind is OutcomeClass.BAD_REQUEST


READ = "import sys; sys.stdout.write(sys.stdin.read())"


async def test_it_reads_the_payload() -> None:
    assert await result_of(script(READ, output="json"), {"a": ["é"]}) == {"a": ["é"]}


async def test_it_reads_a_text_with_places() -> None:
    assert await result_of(script(READ, stdin_text="Do {what}!"), {"what": "it"}) == {"text": "Do it!"}


async def test_it_reads_nothing() -> None:
    assert await result_of(script(READ, stdin="none"), {"a": 1}) == {"text": ""}


async def test_it_need_not_read_what_it_is_given() -> None:
    assert await result_of(script("print('done')"), {"long": "x" * 2_000_000}) == {"text": "done\n"}


ENV = "import json, os; print(json.dumps(dict(os.environ)))"


async def test_it_gets_our_variables_but_not_the_brokers_password() -> None:
    found = await result_of(script(ENV, env={"TOKEN": "t-${KEY}", "WHO": "{@task_id}"}, output="json"))
    assert (found["TOKEN"], found["WHO"], found["OTHER"]) == ("t-secret-1", "t1", "o")
    assert "REACH_AMQP_URL" not in found


async def test_it_gets_only_the_variables_that_the_file_names() -> None:
    found = await result_of(script(ENV, inherit=["PATH", "NOT_THERE"], output="json"))
    assert set(found) - {"LC_CTYPE"} == {"PATH"}


async def test_it_runs_in_a_folder(tmp_path: Path) -> None:
    assert await result_of(agent("pwd", folder=str(tmp_path))) == {"text": f"{tmp_path}\n"}


async def test_it_runs_in_a_folder_of_its_own_that_is_gone_afterwards() -> None:
    code = "import os; open('file', 'w').close(); os.mkdir('d'); print(os.getcwd(), end='')"
    one = (await result_of(script(code, temporary_folder=True)))["text"]
    other = (await result_of(script(code, temporary_folder=True)))["text"]
    assert one != other
    assert [os.access(folder, os.F_OK) for folder in (one, other)] == [False, False]


# ---- What it says


async def test_its_lines_are_streamed_as_they_come() -> None:
    code = "import sys\nprint('one', flush=True)\nsys.stdin.readline()\nprint('two\\r\\nthree', end='')"
    context = attempt()
    result = await result_of(script(code, stdin_text="go\n"), {}, context)
    assert context.heard == ["one", "two", "three"]
    assert result == {"text": "one\ntwo\r\nthree"}


async def test_a_line_is_streamed_before_the_program_ends() -> None:
    heard = asyncio.Event()

    async def on_chunk() -> None:
        heard.set()

    code = "import time; print('there', flush=True); time.sleep(60)"
    async with asyncio.TaskGroup() as group:
        running = group.create_task(result_of(script(code), {}, attempt(on_chunk=on_chunk)))
        await asyncio.wait_for(heard.wait(), 20)
        running.cancel()


async def test_a_long_line_is_streamed_in_pieces() -> None:
    context = attempt()
    await result_of(script("print('x' * 300_000)"), {}, context)
    assert "".join(context.heard) == "x" * 300_000
    assert len(context.heard) > 1
    assert max(map(len, context.heard)) <= 200_000


async def test_bytes_that_are_no_text() -> None:
    context = attempt()
    result = await result_of(script("import os; os.write(1, b'a\\xff\\nb')"), {}, context)
    assert (result, context.heard) == ({"text": "a\ufffd\nb"}, ["a\ufffd", "b"])


async def test_the_last_line_that_is_json() -> None:
    code = "print('working'); print('{\"n\": 1}'); print('{\"n\": 2}'); print('bye')"
    assert await result_of(script(code, output="last_json_line")) == {"n": 2}


async def test_no_line_is_json() -> None:
    kind, words = await ending_of(script("print('working')", output="last_json_line"))
    assert (kind, "no line of its output is JSON" in words) == (OutcomeClass.FAILED, True)


async def test_a_document_over_several_lines_is_not_streamed() -> None:
    context = attempt()
    assert await result_of(script("print('{\\n\"a\":\\n1}')", output="json"), {}, context) == {"a": 1}
    assert context.heard == []


async def test_it_writes_too_much() -> None:
    code = "while True: print('x' * 1000)"
    kind, words = await ending_of(script(code, max_output_bytes=100_000))
    assert kind is OutcomeClass.FAILED
    assert "more than 100000 bytes" in words


# ---- How it ends


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (1, OutcomeClass.FAILED),
        (75, OutcomeClass.RATE_LIMITED),
        (65, OutcomeClass.BAD_REQUEST),
        (69, OutcomeClass.UNAVAILABLE),
        (3, OutcomeClass.REJECTED),
    ],
)
async def test_what_an_exit_code_means(code: int, kind: OutcomeClass) -> None:
    table = {"75": "rate_limited", "65": "bad_request", "69": "unavailable", "3": "rejected"}
    one = script(
        f"import sys; print('because', file=sys.stderr); sys.exit({code})", exit_codes=table, rest_s=7
    )
    with pytest.raises(AgentOutcome) as found:
        await result_of(one)
    assert found.value.kind is kind
    assert f"exit code {code}: because" in str(found.value)
    assert found.value.retry_after_s == (7 if code == 75 else None)


async def test_an_exit_code_that_is_a_success_here() -> None:
    assert await result_of(script("print('x'); exit(1)", exit_codes={"1": "succeeded"})) == {"text": "x\n"}


async def test_the_end_of_what_it_complains_about_is_kept_and_the_environment_is_not() -> None:
    code = "import os, sys\nfor n in range(100_000): print(n, file=sys.stderr)\nsys.exit(os.environ['T'])"
    kind, words = await ending_of(script(code, env={"T": "${KEY}"}))
    assert kind is OutcomeClass.FAILED
    assert words.endswith("99998 99999 ***")
    assert len(words) < 600


async def test_it_is_killed_by_a_signal() -> None:
    kind, words = await ending_of(script("import os; os.abort()"))
    assert (kind, "killed by SIGABRT" in words) == (OutcomeClass.FAILED, True)


async def test_there_is_no_such_program() -> None:
    one = agent("no-such-program-here", "x")
    assert "no program 'no-such-program-here'" in one.adapter.warnings()[0]
    kind, words = await ending_of(one)
    assert kind is OutcomeClass.UNAVAILABLE
    assert "there is no such program in PATH" in words
    assert agent("sh").adapter.warnings() == []


async def test_there_is_no_such_folder() -> None:
    one = agent("pwd", folder="no-such-folder-here")
    assert "no folder" in one.adapter.warnings()[0]
    kind, _ = await ending_of(one)
    assert kind is OutcomeClass.UNAVAILABLE


# ---- Nothing of it is left

FAMILY = """
import os, signal, subprocess, sys, time
DEAF = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(300)"
kind, folder = sys.argv[1:]
if kind == "deaf":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c", DEAF])
apart = subprocess.Popen([sys.executable, "-c", DEAF], start_new_session=True)
lost = subprocess.run(
    [sys.executable, "-c", f"import subprocess, sys; p = subprocess.Popen([sys.executable, '-c', {DEAF!r}], "
     "start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL); print(p.pid)"],
    capture_output=True, text=True).stdout
with open(folder + "/pids.new", "w") as file:
    print(os.getpid(), child.pid, apart.pid, lost, file=file)
os.rename(folder + "/pids.new", folder + "/pids")
print("up", flush=True)
if kind == "leaves":
    sys.exit(0)
time.sleep(300)
"""
"""A program with a child, one in a session of its own, and one that has lost its parent; all ignore SIGTERM."""


def family(kind: str, folder: Path) -> AdapterAgent:
    return script(FAMILY, kind, str(folder))


def members(folder: Path) -> list[int]:
    return [int(pid) for pid in (folder / "pids").read_text().split()]


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


linux = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")


@linux
@pytest.mark.parametrize("kind", ["deaf", "polite"])
async def test_a_cancelled_task_leaves_nothing(kind: str, tmp_path: Path) -> None:
    up = asyncio.Event()

    async def on_chunk() -> None:
        up.set()

    async with asyncio.TaskGroup() as group:
        running = group.create_task(result_of(family(kind, tmp_path), {}, attempt(on_chunk=on_chunk)))
        await asyncio.wait_for(up.wait(), 20)
        pids = members(tmp_path)
        assert [alive(pid) for pid in pids] == [True] * 4
        running.cancel()
    assert [alive(pid) for pid in pids] == [False] * 4


@linux
async def test_a_task_that_is_cancelled_again_and_again_leaves_nothing(tmp_path: Path) -> None:
    up = asyncio.Event()

    async def on_chunk() -> None:
        up.set()

    async with asyncio.TaskGroup() as group:
        running = group.create_task(result_of(family("deaf", tmp_path), {}, attempt(on_chunk=on_chunk)))
        await asyncio.wait_for(up.wait(), 20)
        while not running.done():
            running.cancel()
            await asyncio.wait([running], timeout=0.02)
    assert [alive(pid) for pid in members(tmp_path)] == [False] * 4


@linux
async def test_time_is_up_and_nothing_is_left(tmp_path: Path) -> None:
    kind, words = await ending_of(family("deaf", tmp_path), {}, attempt(4.0))
    assert kind is OutcomeClass.TIMEOUT
    assert "not done within 4 s" in words
    assert [alive(pid) for pid in members(tmp_path)] == [False] * 4


@linux
async def test_what_a_program_leaves_behind_ends_with_it(tmp_path: Path) -> None:
    assert await result_of(family("leaves", tmp_path)) == {"text": "up\n"}
    assert [alive(pid) for pid in members(tmp_path)] == [False] * 4


async def test_it_may_clean_up_before_it_is_killed(tmp_path: Path) -> None:
    code = (
        "import signal, sys, time\n"
        "def bye(*_):\n    open(sys.argv[1], 'w').close()\n    sys.exit(0)\n"
        "signal.signal(signal.SIGTERM, bye)\nprint('up', flush=True)\ntime.sleep(300)"
    )
    mark = tmp_path / "clean"
    kind, _ = await ending_of(script(code, str(mark), grace_s=20), {}, attempt(3.0))
    assert kind is OutcomeClass.TIMEOUT
    assert mark.exists()


AGENT = """
import asyncio, os, sys
from reach_worker.adapters import command_agent
from tests.adapters.attempts import MANIFEST, attempt
from tests.adapters.test_command import FAMILY
agent = command_agent(MANIFEST, environ=dict(os.environ), grace_s=0.3, temporary_folder=True,
    argv=[sys.executable, "-c", FAMILY.replace("{", "{{").replace("}", "}}"), "deaf", sys.argv[1]])
asyncio.run(agent.adapter.run({}, attempt(60)))
"""


@linux
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSEGV])
def test_the_agent_dies_and_nothing_is_left(how: signal.Signals, tmp_path: Path) -> None:
    folders = tmp_path / "folders"
    folders.mkdir()
    environ = {**os.environ, "TMPDIR": str(folders), "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen([sys.executable, "-c", AGENT, str(tmp_path)], env=environ) as process:
        asyncio.run(until((tmp_path / "pids").exists))
        pids = members(tmp_path)
        assert len(list(folders.iterdir())) == 1
        os.kill(process.pid, how)
    asyncio.run(until(lambda: not any(alive(pid) for pid in pids)))
    asyncio.run(until(lambda: not list(folders.iterdir())))


@linux
async def test_the_supervisor_is_killed_and_the_program_with_it(tmp_path: Path) -> None:
    up = asyncio.Event()

    async def on_chunk() -> None:
        up.set()

    code = (
        "import os, sys, time\nprint('up', flush=True)\n"
        "open(sys.argv[1], 'w').write(str(os.getpid()))\ntime.sleep(300)"
    )
    mark = tmp_path / "pid"
    async with asyncio.TaskGroup() as group:
        running = group.create_task(ending_of(script(code, str(mark)), {}, attempt(on_chunk=on_chunk)))
        await asyncio.wait_for(up.wait(), 20)
        await until(lambda: mark.exists() and mark.read_text() != "")
        pid = int(mark.read_text())
        os.kill(parent_of(pid), signal.SIGKILL)
    kind, words = running.result()
    assert kind is OutcomeClass.UNAVAILABLE
    assert "its supervisor was killed" in words
    await until(lambda: not alive(pid))
