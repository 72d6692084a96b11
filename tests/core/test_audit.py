"""Where an open task is, by what the store wrote last and what the broker holds."""

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reach_worker.core.audit import Held, OpenLife, Patience, orphan, place, still

SECOND = 1_000_000
NOW = 1_800_000_000 * SECOND
PATIENCE = Patience(
    out_s=100.0, attempt_s=8.0, waiting_s=50.0, window=10, declared_s={("quick", "text.long"): 600.0}
)
WAITING = OpenLife("t1", 0, "text.echo", "r1", NOW, NOW)
OUT = replace(WAITING, dispatch_id="d1", agent_id="quick", attempt=1, dispatched_at=NOW)
PARKED = replace(WAITING, parked=True)
ROUTER = Held(routers=1)


def later(seconds: float) -> int:
    return NOW + int(seconds * SECOND)


@pytest.mark.parametrize(
    ("life", "held", "seconds", "where"),
    [
        (OUT, Held(running={"d1": "i1"}, able={"quick"}), 9999, "running at agent quick"),
        (OUT, Held(able={"quick"}), 107, "on its way through agent quick"),
        (OUT, ROUTER, 107, "on its way through agent quick"),
        (OUT, Held(able={"quick"}), 109, None),
        (OUT, Held(able={"quick"}, busy={"quick"}), 700, "on its way through agent quick"),
        (OUT, Held(able={"quick"}, busy={"quick"}), 709, None),
        (replace(OUT, capability="text.long"), Held(able={"quick"}), 699, "on its way through agent quick"),
        (replace(OUT, capability="text.long"), Held(able={"quick"}), 701, None),
        (OUT, Held(), 0, None),
        (OUT, Held(able={"other"}), 0, None),
        (OUT, Held(agents={"quick": 1}), 0, "queue of agent quick"),
        (OUT, Held(agents={"other": 1}), 0, None),
        (OUT, Held(lanes={"text.echo": 1}), 0, None),
        (OUT, Held(outcomes={"r1": 1}), 999, "outcomes of router r1"),
        (OUT, Held(outcomes={"r2": 1}), 999, None),
        (WAITING, Held(outcomes={"r1": 1}), 999, None),
        (OUT, Held(elsewhere={"returns": 0, "retry rungs": 1}), 999, "retry rungs"),
        (WAITING, Held(lanes={"text.echo": 1}), 9999, "lane of text.echo"),
        (WAITING, Held(lanes={"text.other": 1}), 0, None),
        (WAITING, Held(agents={"quick": 1}, able={"quick"}), 0, None),
        (WAITING, ROUTER, 49, "a router's window"),
        (WAITING, ROUTER, 51, None),
        (WAITING, Held(intake=1, side_effects={"text.echo"}), 9999, None),
        (OUT, Held(intake=1, side_effects={"text.echo"}), 9999, "intake"),
        (OUT, Held(intake=1), 9999, None),
        (replace(OUT, attempt=2), Held(intake=1, side_effects={"text.echo"}), 9999, None),
        (PARKED, Held(unmatched={("t1", 0)}), 9999, "unmatched"),
        (PARKED, Held(unmatched={("t1", 1), ("t2", 0)}, routers=1), 0, None),
        (PARKED, Held(lanes={"text.echo": 1}), 0, "lane of text.echo"),
        (OUT, Held(letters={("t1", 0)}), 9999, "dlq, its end is not recorded"),
        (replace(WAITING, began_anew=True), Held(), 9999, "began anew, its end was not recorded"),
        (replace(WAITING, only_late=True), Held(), 9999, "unknown but for a late outcome"),
    ],
)
def test_where_one_task_is(life: OpenLife, held: Held, seconds: float, where: str | None) -> None:
    placed = place([life], held, PATIENCE, later(seconds))

    assert dict(placed.waiting) == ({} if where is None else {where: 1})
    assert placed.suspects == ([life] if where is None else [])


def test_a_place_explains_as_many_as_it_holds_the_newest() -> None:
    lives = [replace(WAITING, task_id=f"t{number}", traced_at=later(-1000 + number)) for number in range(5)]

    placed = place(lives, Held(lanes={"text.echo": 2}, elsewhere={"returns": 1}), PATIENCE, NOW)

    assert dict(placed.waiting) == {"lane of text.echo": 2, "returns": 1}
    assert [one.task_id for one in placed.suspects] == ["t0", "t1"]


def test_the_queues_are_for_the_old_first_and_what_is_left_for_the_young() -> None:
    """Had the young one taken the place in returns, nothing would be left for the old one."""
    young, old = WAITING, replace(WAITING, task_id="t2", traced_at=later(-1000))

    placed = place([young, old], Held(routers=1, elsewhere={"returns": 1}), PATIENCE, NOW)

    assert placed.suspects == []
    assert dict(placed.waiting) == {"a router's window": 1, "returns": 1}

    placed = place([young, old], Held(routers=1, elsewhere={"returns": 3}), PATIENCE, NOW)
    assert dict(placed.waiting) == {"returns": 2}


def test_the_window_of_a_router_is_bounded() -> None:
    lives = [replace(WAITING, task_id=f"t{number:02}") for number in range(25)]

    placed = place(lives, Held(routers=2), PATIENCE, NOW)

    assert placed.waiting["a router's window"] == 20
    assert len(placed.suspects) == 5


def test_only_what_stays_where_it_is_stays_a_suspect() -> None:
    moved, stayed = OUT, replace(OUT, task_id="t2")
    first = {one.position for one in still([moved, stayed], None)}

    assert still([replace(moved, dispatch_id="d2"), stayed], first) == [stayed]
    assert still([replace(moved, traced_at=NOW + 1), stayed], first) == [stayed]


@pytest.mark.parametrize(
    ("life", "words"),
    [
        (replace(OUT, router="r7"), "dispatch d1, attempt 1, went from router r7 to agent quick"),
        (WAITING, "it waits for text.echo, last with router r1"),
        (replace(WAITING, capability="", router=""), "it waits for an agent, last with router unknown"),
        (PARKED, "parked as unmatched"),
    ],
)
def test_an_orphan_says_where_it_was_last(life: OpenLife, words: str) -> None:
    named = orphan(life)

    assert words in named.where
    assert (named.task_id, named.life) == life.key
    assert "reach explain t1" in named.advice


def test_an_orphan_says_where_nobody_may_look() -> None:
    assert "unless it was published with side effects: 7 messages are in intake" in orphan(OUT, 7).where
    assert "intake" not in orphan(replace(OUT, attempt=2), 7).where


LIVES = st.lists(
    st.builds(
        OpenLife,
        task_id=st.text("ab", max_size=2),
        life=st.integers(0, 1),
        capability=st.sampled_from(["c1", "c2"]),
        router=st.just("r1"),
        first_seen=st.just(NOW),
        traced_at=st.integers(later(-200), NOW),
        dispatch_id=st.none() | st.sampled_from(["d1", "d2"]),
        agent_id=st.sampled_from(["a1", "a2"]),
        dispatched_at=st.integers(later(-200), NOW),
        parked=st.booleans(),
    ),
    max_size=30,
)
READY = st.dictionaries(st.sampled_from(["a1", "a2", "c1", "c2"]), st.integers(0, 5))


@given(LIVES, READY, READY, st.integers(0, 5), st.integers(0, 2))
def test_nobody_is_placed_twice_and_no_place_holds_more_than_it_has(
    lives: list[OpenLife], lanes: Mapping[str, int], agents: Mapping[str, int], returns: int, routers: int
) -> None:
    held = Held(lanes=lanes, agents=agents, elsewhere={"returns": returns}, routers=routers)

    placed = place(lives, held, PATIENCE, NOW)

    assert placed.waiting.total() + len(placed.suspects) == len(lives)
    for agent_id, ready in agents.items():
        assert placed.waiting[f"queue of agent {agent_id}"] <= ready
    for capability, ready in lanes.items():
        assert placed.waiting[f"lane of {capability}"] <= ready
    assert placed.waiting["returns"] <= returns
    assert placed.waiting["a router's window"] <= routers * PATIENCE.window
