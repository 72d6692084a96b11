"""What `reach status` shows, first what is wrong."""

from dataclasses import replace
from typing import Any

import orjson
import pytest

from reach_worker.cli.status import as_data, show
from reach_worker.cli.status_asking import BLOCKED, Queues, Seen
from reach_worker.core.announcement import RouterBeat, router_body
from reach_worker.core.message import Delivery
from reach_worker.core.status import AgentNow, Report, Waits, report_body
from tests.cli.conftest import Call

R1 = Report(
    "r1",
    since_us=1_700_000_000_000_000,
    session=2,
    session_s=61.0,
    waiting=3,
    window=100,
    in_flight=1,
    in_flight_limit=200,
    waits=(Waits("text.echo", 3, 12.0, "t1", "a: at max concurrency 1/1", lane=4, lane_s=90.0),),
    agents=(
        AgentNow("b", 0, 0, "active", "open", 12.5),
        AgentNow("a", 1, 1, "active", "closed", None, 2.5, 3.0),
    ),
    more_agents=7,
    counts={"admitted": 5, "over_budget": 2},
    store={"away": False, "written": 9, "lost": 0, "last_error": None},
)


def report(router: Report) -> Delivery:
    return Delivery("mailbox", report_body(router), None)


def beat(router_id: str, *, stopping: bool = False) -> Delivery:
    body = router_body(RouterBeat(router_id, stopping, unready=""))
    return Delivery("mailbox", body, None, routing_key=f"router.{router_id}", exchange="reach.v1.events")


def seen(*deliveries: Delivery, **queues: Any) -> Seen:
    found = Seen(queues=Queues(**queues))
    for delivery in deliveries:
        found.take(delivery)
    return found


def shown(what: Seen, capsys: pytest.CaptureFixture[str]) -> list[str]:
    show(what)
    return [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]


def test_all_is_well_where_nobody_waits_for_long(capsys: pytest.CaptureFixture[str]) -> None:
    quiet = replace(
        R1, waits=(Waits("text.echo", 3, 12.0, "t1"),), agents=(AgentNow("a", 1, 1, "active", "closed"),)
    )
    assert shown(seen(beat("r1"), report(quiet)), capsys)[0] == "all is well"


def test_what_is_not_broken_is_told_in_tables(capsys: pytest.CaptureFixture[str]) -> None:
    what = seen(
        beat("r1"),
        report(R1),
        intake=6,
        intake_consumers=1,
        lanes={"text.echo": 4, "x.y": 2},
        rungs={1000: 3},
    )
    lines = shown(what, capsys)
    assert lines[0] == "nothing is broken, but the breaker of b is open; text.echo has waited for 1 min 30 s"
    assert "text.echo r1 3 12 s 4 1 min 30 s a: at max concurrency 1/1" in lines
    assert "x.y - 0 - 2 - -" in lines
    assert "b r1 0/0 active open, 12.5 s more -" in lines
    assert "a r1 1/1 active closed slow: to 2.5 a second; rests for 3 s more" in lines
    assert "and 7 more r1 - - - -" in lines
    assert "intake 6" in lines
    assert "retry 1 s 3" in lines
    assert "router r1 since its start: admitted 5, over budget 2" in lines
    assert "store of router r1: there, written 9, lost 0" in lines
    (router,) = [line for line in lines if line.startswith("r1 ")]
    assert router.endswith("2, for 1 min 1 s 3/100 1/200 there yes")
    data = as_data(what)
    assert data["ok"] is True
    assert data["routers"][0]["waits"][0]["reason"] == "a: at max concurrency 1/1"
    assert data["queues"]["lanes"] == {"text.echo": 4, "x.y": 2}
    assert orjson.loads(orjson.dumps(data))["silent"] == []


@pytest.mark.parametrize(
    ("what", "words"),
    [
        (seen(), "no router answers"),
        (
            seen(intake_consumers=2),
            "no router answers, though somebody consumes the intake: it hangs, or is older",
        ),
        (seen(beat("r9", stopping=True)), "no router answers"),
        (
            seen(beat("r1"), beat("r2"), report(R1)),
            "router r2 lives, and gave no report: it is held up, or older",
        ),
        (seen(report(Report("r1", unready="it stops"))), "router r1 takes no tasks: it stops"),
        (Seen(blocked=True), BLOCKED),
    ],
)
def test_what_is_wrong_comes_first(what: Seen, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(what, capsys)[0] == words
    assert as_data(what)["ok"] is False
    assert as_data(what)["wrong"] == [words]


def test_it_waits_for_everybody_who_was_heard() -> None:
    what = seen(beat("r1"))
    assert not what.all_answered()
    what.take(report(R1))
    assert what.all_answered()
    what.take(beat("r2"))
    assert not what.all_answered()
    what.take(report(Report("r2")))
    assert what.all_answered()
    assert not Seen().all_answered()


def test_what_a_stranger_says_is_no_report_and_steers_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    what = seen(Delivery("mailbox", b"\x00junk", None), report(Report("r\x1b[31m1", unready="it \x1b stops")))
    show(what)
    assert "\x1b" not in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [("--within", "0s"), ("--listen", "soon"), ("r1",)])
def test_a_wrong_command_line_is_told(call: Call, arguments: tuple[str, ...]) -> None:
    done = call("status", *arguments)
    assert done.exit_code == 2
