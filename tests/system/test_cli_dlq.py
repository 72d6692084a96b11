"""Dead letters and unmatched tasks, looked at and repaired, on a real broker. No router takes away what comes back."""

import asyncio
import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress

import orjson
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from reach_worker import wiring
from reach_worker.clock import SystemClock
from reach_worker.core.dead_letter import DeadLetter, Filter
from reach_worker.core.names import Names
from reach_worker.core.outcome import DeadLetterReason
from reach_worker.services.replay_order import ReplayOrder, ReplayReport
from reach_worker.settings import load_settings
from tests.system.conftest import fresh_prefix, fresh_processes, open_channel
from tests.system.letters import SECOND_US, declare, letter, parked, put, ready, take
from tests.system.processes import Processes, command
from tests.tooling.observing import ROOT, wait_until

pytestmark = [pytest.mark.broker, pytest.mark.system]


@pytest.fixture
def project(processes: Processes, names: Names, channel: BlockingChannel) -> Processes:
    """The queues are there, and nobody consumes them."""
    declare(channel, names)
    return processes


@pytest.fixture
def five(project: Processes, names: Names, channel: BlockingChannel) -> Processes:
    """Five dead letters of several kinds."""
    put_five(channel, names)
    return project


@pytest.fixture(scope="module")
def shelf(broker_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    """The same five, for all tests that only look."""
    folder = tmp_path_factory.mktemp("shelf")
    with (
        fresh_prefix(broker_url) as prefix,
        fresh_processes(broker_url, prefix, folder) as processes,
        open_channel(broker_url) as channel,
    ):
        declare(channel, Names(prefix))
        put_five(channel, Names(prefix))
        yield processes
        assert ready(channel, Names(prefix).dlq) == 5, "looking has changed the queue"


def put_five(channel: BlockingChannel, names: Names) -> None:
    now_us = SystemClock().utc_us()
    put(
        channel,
        letter(
            names,
            "a-1",
            error="timeout after 12 s",
            agents=["quick", "slow"],
            died_at=now_us - 7200 * SECOND_US,
        ),
        letter(names, "a-2", error="timeout after 15 s", died_at=now_us - 60 * SECOND_US),
        letter(
            names,
            "b-1",
            capability="log.query",
            reason=DeadLetterReason.PAYLOAD_REFUSED,
            error="/limit: no",
            agents=[],
        ),
        letter(names, "c-1", error="boom", replays=3, died_at=now_us),
        letter(
            names,
            "d-1",
            body=b"{nonsense",
            reason=DeadLetterReason.UNDECODABLE,
            error="not JSON",
            agents=[],
        ),
    )
    wait_until(lambda: ready(channel, names.dlq) == 5)


def listed(project: Processes, *options: str) -> list[str]:
    return [each["task_id"] for each in project.reach("dlq", "list", "--json", *options).json()]


def test_list_shows_all(shelf: Processes) -> None:
    done = shelf.reach("dlq", "list")

    lines = done.out.splitlines()
    assert done.status == 0
    assert lines[0].split() == [
        "TASK",
        "REASON",
        "CAPABILITY",
        "ATTEMPTS",
        "LAST",
        "AGENT",
        "REPLAYS",
        "DIED",
        "ERROR",
    ]
    assert [line.split()[:2] for line in lines[1:]] == [
        ["a-1", "attempts_exhausted"],
        ["a-2", "attempts_exhausted"],
        ["b-1", "payload_refused"],
        ["c-1", "attempts_exhausted"],
        ["d-1", "undecodable"],
    ]


@pytest.mark.parametrize(
    ("options", "found"),
    [
        (["--reason", "payload_refused", "--reason", "undecodable"], ["b-1", "d-1"]),
        (["--agent", "slow"], ["a-1"]),
        (["--capability", "LOG.query"], ["b-1"]),
        (["--error", "TIMEOUT"], ["a-1", "a-2"]),
        (["--older-than", "1h", "--error", "timeout"], ["a-1"]),
        (["--newer-than", "10m"], ["a-2", "c-1"]),
        (["--task-id", "a-2", "--task-id", "c-1"], ["a-2", "c-1"]),
        (["--limit", "2"], ["a-1", "a-2"]),
    ],
)
def test_filters_choose(shelf: Processes, options: list[str], found: list[str]) -> None:
    assert listed(shelf, *options) == found


def test_groups_count_what_differs_only_in_numbers(shelf: Processes) -> None:
    groups = shelf.reach("dlq", "list", "--group", "--json").json()

    assert (groups[0]["count"], groups[0]["error"]) == (2, "attempts_exhausted: timeout after … s")
    assert sum(group["count"] for group in groups) == 5


def test_groups_bring_the_command_that_replays_them(shelf: Processes) -> None:
    groups = shelf.reach("dlq", "list", "--group-by", "error", "--json").json()
    table = shelf.reach("dlq", "list", "--group-by", "error")
    timeouts = groups[0]

    assert groups == shelf.reach("dlq", "list", "--group", "--json").json()
    assert timeouts["replay"] == f"reach dlq replay {timeouts['filter']}"
    assert table.out.splitlines()[1].startswith(f"2      {timeouts['filter']}  text.echo")
    assert listed(shelf, *timeouts["filter"].split()) == ["a-1", "a-2"]
    dry = shelf.reach(*timeouts["replay"].split()[1:], "--dry-run", "--json").json()
    assert dry["replayed"] == ["a-1", "a-2"]


@pytest.mark.parametrize(
    ("by", "counts"),
    [
        ("reason", {"attempts_exhausted": 3, "payload_refused": 1, "undecodable": 1}),
        ("agent", {"quick": 3, "slow": 1, "-": 2}),
        ("capability", {"text.echo": 4, "log.query": 1}),
    ],
)
def test_letters_are_grouped_by_other_things(shelf: Processes, by: str, counts: dict[str, int]) -> None:
    groups = shelf.reach("dlq", "list", "--group-by", by, "--json").json()

    assert {group[by]: group["count"] for group in groups} == counts
    for group in groups:
        if group["filter"] is not None:
            assert len(listed(shelf, *group["filter"].split())) == group["count"]


def test_a_filter_wants_the_id_of_a_group(shelf: Processes) -> None:
    done = shelf.reach("dlq", "replay", "--group", "--dry-run")

    assert done.status == 2
    assert "--group wants the id of a group" in done.err


def test_looking_a_hundred_times_changes_nothing(
    five: Processes, names: Names, channel: BlockingChannel
) -> None:
    settings = load_settings(None, five.environment)

    async def look() -> list[DeadLetter]:
        async with wiring.dead_letters(settings) as letters:
            return [item.letter for item in await letters.look(Filter())]

    async def try_out() -> ReplayReport:
        async with wiring.dead_letters(settings) as letters:
            return await letters.replay(ReplayOrder(Filter(), dry_run=True))

    def all_back() -> bool:
        return ready(channel, names.dlq) == 5

    seen = []
    for _ in range(50):
        seen.append(asyncio.run(look()))
        wait_until(all_back)  # the broker takes them back when it gets to it
        report = asyncio.run(try_out())
        assert (report.there, report.matched, report.left) == (5, 5, 5)
        wait_until(all_back)

    assert [letter.task_id for letter in seen[0]] == ["a-1", "a-2", "b-1", "c-1", "d-1"]
    assert all(letters == seen[0] for letters in seen)
    assert ready(channel, names.returns) == 0


def test_a_terminal_shows_how_far_it_is(five: Processes) -> None:
    terminal, end = pty.openpty()
    done = subprocess.run(
        command(["dlq", "replay", "--limit", "3", "--rate", "20"]),
        cwd=five.folder,
        env={**five.environment, "TERM": "xterm", "COLUMNS": "100"},
        stdout=subprocess.PIPE,
        stderr=end,
        check=False,
    )
    os.close(end)
    shown = b""
    with suppress(OSError):  # how a terminal says that nobody writes any more
        while piece := os.read(terminal, 65_536):
            shown += piece
    os.close(terminal)

    assert b"3 are meant, 3 replayed" in done.stdout
    assert b"looked at" in shown
    assert b"3/5" in shown


def test_what_others_wrote_does_not_steer_a_terminal(
    project: Processes, names: Names, channel: BlockingChannel
) -> None:
    evil = "\x1b[2Jgone\r\x9b31m\u202etxt\x07"
    put(channel, letter(names, "e-1", capability=evil, error=evil, agents=[evil], body=evil.encode()))
    wait_until(lambda: ready(channel, names.dlq) == 1)

    for arguments in (["list"], ["list", "--json"], ["list", "--group-by", "agent"], ["show", "e-1"],
                      ["show", "e-1", "--json"], ["export"], ["replay", "--dry-run"], ["drop"]):  # fmt: skip
        done = project.reach("dlq", *arguments)
        said = done.out + done.err
        assert "gone" in said or arguments[0] in ("replay", "drop")
        assert [character for character in said if not (character.isprintable() or character == "\n")] == []
    assert project.reach("dlq", "list", "--json").json()[0]["error"] == evil


def test_show_tells_reason_attempts_and_body(shelf: Processes) -> None:
    done = shelf.reach("dlq", "show", "a-1")
    missing = shelf.reach("dlq", "show", "a-9")

    assert "task a-1: attempts_exhausted" in done.out
    assert "attempt 2 → slow: failed: it broke" in done.out
    assert '"text": "hello"' in done.out
    assert (missing.status, missing.err) == (1, "there is no dead letter of task 'a-9'\n")


def test_export_writes_every_letter_on_a_line(shelf: Processes) -> None:
    to_stdout = shelf.reach("dlq", "export").json_lines()
    shelf.reach("dlq", "export", "--reason", "undecodable", "--output", "out.jsonl")
    nowhere = shelf.reach("dlq", "export", "--output", "no/such/folder/out.jsonl")

    assert [each["task_id"] for each in to_stdout] == ["a-1", "a-2", "b-1", "c-1", "d-1"]
    assert orjson.loads((shelf.folder / "out.jsonl").read_bytes())["body"] == "{nonsense"
    assert nowhere.status == 2
    assert "no/such/folder/out.jsonl" in nowhere.err


def test_a_dry_run_says_what_would_be_done(shelf: Processes) -> None:
    done = shelf.reach("dlq", "replay", "--dry-run")

    assert done.status == 1
    assert "looked at 5 of 5: 5 are meant, 3 would be replayed, 2 held back, 0 failed; 5 left" in done.out
    assert "would be replayed: a-1, a-2, b-1\n" in done.out
    assert "held back c-1: it was replayed 3 times already; --force replays it again" in done.out
    assert "held back d-1: the body is no task (undecodable): not JSON" in done.out


def test_replay_sends_on_what_can_go_and_keeps_the_rest(
    five: Processes, names: Names, channel: BlockingChannel
) -> None:
    report = five.reach("dlq", "replay", "--json").json()

    assert report["replayed"] == ["a-1", "a-2", "b-1"]
    assert [task for task, _ in report["held_back"]] == ["c-1", "d-1"]
    assert (report["there"], report["seen"], report["left"]) == (5, 5, 2)
    assert listed(five) == ["c-1", "d-1"]
    assert ready(channel, names.returns) == 3
    headers, _ = take(channel, names.returns)
    assert (headers["x-reach-task"], headers["x-reach-life"], headers["x-reach-replays"]) == ("a-1", 1, 1)
    assert "x-reach-attempts" not in headers
    assert len(orjson.loads(headers["x-reach-past"])) == 2


def test_replay_is_limited_forced_and_sent_to_an_agent(
    five: Processes, names: Names, channel: BlockingChannel
) -> None:
    limited = five.reach("dlq", "replay", "--limit", "1", "--to-agent", "Slow")
    forced = five.reach("dlq", "replay", "--task-id", "c-1", "--force", "--rate", "100")

    assert (limited.status, forced.status) == (0, 0)
    first, second = take(channel, names.returns)[0], take(channel, names.returns)[0]
    assert (first["x-reach-task"], first["x-reach-to-agent"]) == ("a-1", "slow")
    assert (second["x-reach-task"], second["x-reach-replays"]) == ("c-1", 4)


def test_replay_says_what_is_not_there(five: Processes) -> None:
    done = five.reach("dlq", "replay", "--task-id", "a-1", "--task-id", "nobody")

    assert done.status == 1
    assert "1 are meant, 1 replayed" in done.out
    assert done.err == "there is no dead letter of task 'nobody'\n"


def test_parts_of_many_bodies_are_changed(five: Processes, names: Names, channel: BlockingChannel) -> None:
    done = five.reach(
        "dlq", "replay", "--error", "timeout", "--set", '/payload/text="mended"', "--unset", "/payload/limit"
    )
    again = five.reach("dlq", "replay", "--error", "timeout", "--set", '/payload/text="mended"')

    assert done.status == 1
    assert "held back a-1: its body has no /payload/limit" in done.out
    assert again.status == 0
    assert [orjson.loads(take(channel, names.returns)[1])["payload"] for _ in range(2)] == [
        {"text": "mended"}
    ] * 2


def test_an_edited_body_that_is_no_task_is_refused_and_nothing_is_lost(
    five: Processes, names: Names, channel: BlockingChannel
) -> None:
    broken = five.reach("dlq", "replay", "--task-id", "d-1", "--edit", "-", stdin="{still nonsense")
    unknown = five.reach(
        "dlq", "replay", "--task-id", "d-1", "--edit", "-", stdin='{"capabilty": "text.echo"}'
    )
    other = five.reach(
        "dlq", "replay", "--task-id", "d-1", "--edit", "-", stdin='{"task_id": "e", "capability": "x"}'
    )

    assert (broken.status, unknown.status, other.status) == (1, 1, 1)
    assert "held back d-1: the body is no task (undecodable): not JSON" in broken.out
    assert "unknown field 'capabilty', did you mean 'capability'?" in unknown.out
    assert "held back d-1: its task_id would become 'e'" in other.out
    assert len(listed(five)) == 5
    assert ready(channel, names.returns) == 0


def test_a_mended_body_is_sent_from_a_file_and_from_an_editor(
    five: Processes, names: Names, channel: BlockingChannel
) -> None:
    (five.folder / "mended.json").write_text('{"capability": "text.echo", "payload": {"text": "file"}}')
    editor = five.folder / "editor"
    editor.write_text('#!/bin/sh\nsed -i "s/hello/editor/" "$1"\n')
    editor.chmod(0o755)

    file = five.reach("dlq", "replay", "--task-id", "d-1", "--edit", "mended.json")
    edited = five.reach("dlq", "replay", "--task-id", "a-1", "--edit", "editor", EDITOR=str(editor))
    untouched = five.reach("dlq", "replay", "--task-id", "a-2", "--edit", "editor", EDITOR="true")
    no_editor = five.reach("dlq", "replay", "--task-id", "a-2", "--edit", "editor", EDITOR="no-such-editor")

    assert (file.status, edited.status, untouched.status, no_editor.status) == (0, 0, 1, 2)
    assert "held back a-2: it was not changed in the editor" in untouched.out
    assert "'no-such-editor' cannot be run" in no_editor.err
    bodies = [orjson.loads(take(channel, names.returns)[1])["payload"]["text"] for _ in range(2)]
    assert bodies == ["file", "editor"]


def test_the_script_replays_as_the_command_does(
    five: Processes, names: Names, channel: BlockingChannel
) -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "scripts" / "replay_dlq.py", "--task-id", "a-1"],
        cwd=five.folder,
        env=dict(five.environment),
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert "1 are meant, 1 replayed" in done.stdout
    assert take(channel, names.returns)[0]["x-reach-task"] == "a-1"


def test_drop_asks_first(five: Processes, names: Names, channel: BlockingChannel) -> None:
    no = five.reach("dlq", "drop", "--error", "timeout", stdin="no\n")
    silent = five.reach("dlq", "drop", "--error", "timeout")

    assert (no.status, silent.status) == (1, 1)
    assert "2  attempts_exhausted: timeout after … s\n" in no.err
    assert "Drop 2 dead letters for good? [y/N]" in no.err
    assert "nothing was dropped" in silent.err
    assert ready(channel, names.dlq) == 5

    yes = five.reach("dlq", "drop", "--error", "timeout", stdin="y\n")

    assert (yes.status, yes.out) == (0, "2 of 2 dead letters dropped\n")
    assert listed(five) == ["b-1", "c-1", "d-1"]


def test_drop_without_asking(five: Processes) -> None:
    done = five.reach("dlq", "drop", "--yes", "--limit", "4", "--json")

    assert done.json() == {"meant": 4, "dropped": ["a-1", "a-2", "b-1", "c-1"]}
    assert listed(five) == ["d-1"]


def test_unmatched_tasks_are_listed_with_their_reason_and_assigned(
    project: Processes, names: Names, channel: BlockingChannel
) -> None:
    put(channel, parked(names, "x-1", "text.ecko", "no known agent has the capability 'text.ecko'"))
    wait_until(lambda: ready(channel, names.unmatched) == 1)

    shown = project.reach("unmatched", "list")
    wrong = project.reach("unmatched", "assign", "x-9", "--to", "quick")
    nothing = project.reach("unmatched", "assign", "x-1")
    assigned = project.reach("unmatched", "assign", "x-1", "--to", "Quick", "--capability", "text.echo")

    assert "no known agent has the capability 'text.ecko'" in shown.out
    assert (wrong.status, wrong.err) == (1, "Error: there is no task 'x-9' among the unmatched\n")
    assert (nothing.status, assigned.status) == (2, 0)
    headers, body = take(channel, names.returns)
    assert (headers["x-reach-task"], headers["x-reach-to-agent"]) == ("x-1", "quick")
    assert orjson.loads(body)["capability"] == "text.echo"
    assert project.reach("unmatched", "list", "--json").json() == []
