"""What is new in files that were read again, and how it is told."""

from typing import Any

from reach_worker.core.changes import manifest_changes, routing_changes
from reach_worker.core.document import Document
from reach_worker.core.fresh_files import Changed, Known, Reading, take_up
from reach_worker.core.manifest import Manifest, manifest_from
from reach_worker.core.policy import RoutingPolicy
from reach_worker.core.tags import TagTable
from tests.core.agents import CAPABILITY, manifest

TAGS, ROUTING = TagTable({}), RoutingPolicy()
A, B = manifest("a"), manifest("b")
KNOWN = Known({"a.yaml": A, "b.yaml": B}, TAGS, ROUTING)


def reading(manifests: dict[str, Manifest] | None, *broken: str, **fields: Any) -> Reading:
    return Reading(
        **{"manifests": manifests, "broken": frozenset(broken), "tags": TAGS, "routing": ROUTING, **fields}
    )


def test_the_same_again_changes_nothing() -> None:
    known, changed = take_up(KNOWN, reading({"b.yaml": manifest("b"), "a.yaml": manifest("a")}))

    assert known == KNOWN
    assert not changed
    assert changed == Changed()


def test_new_changed_and_removed_files_are_told_apart() -> None:
    other, new = manifest("b", rate=2), manifest("c")

    known, changed = take_up(KNOWN, reading({"b.yaml": other, "c.yaml": new}))

    assert changed == Changed(manifests=(other, new), removed=frozenset({"a"}))
    assert known.manifests == {"b.yaml": other, "c.yaml": new}


def test_a_broken_file_keeps_what_it_had_and_the_others_are_taken() -> None:
    new = manifest("c")

    known, changed = take_up(KNOWN, reading({"b.yaml": B, "c.yaml": new}, "a.yaml", "d.yaml"))

    assert changed == Changed(manifests=(new,))
    assert known.manifests == {"a.yaml": A, "b.yaml": B, "c.yaml": new}


def test_a_file_that_was_renamed_is_no_news() -> None:
    known, changed = take_up(KNOWN, reading({"other.yaml": A, "b.yaml": B}))

    assert not changed
    assert set(known.manifests) == {"other.yaml", "b.yaml"}


def test_an_agent_whose_broken_file_was_replaced_by_another_is_the_new_one() -> None:
    mended = manifest("a", rate=3)

    _, changed = take_up(KNOWN, reading({"a2.yaml": mended, "b.yaml": B}, "a.yaml"))

    assert changed == Changed(manifests=(mended,))


def test_a_folder_that_cannot_be_read_withdraws_nobody() -> None:
    assert take_up(KNOWN, reading(None)) == (KNOWN, Changed())


def test_tags_and_routing_are_taken_where_they_are_good_and_others() -> None:
    tags, routing = TagTable({"report": ["报表"]}), RoutingPolicy(preset="declared")

    known, changed = take_up(KNOWN, reading({"a.yaml": A, "b.yaml": B}, tags=tags, routing=routing))
    assert (changed.tags, changed.routing) == (tags, routing)
    assert (known.tags, known.routing) == (tags, routing)

    assert take_up(known, reading(None, tags=None, routing=None)) == (known, Changed())


def test_another_spelling_of_tags_is_no_other_declaration() -> None:
    data = {"id": "a", "mutually_exclusive_tags": ["报表"], "capabilities": [{"id": CAPABILITY}]}
    plain, mapped = (
        manifest_from(Document(data), tags=table) for table in (TAGS, TagTable({"report": ["报表"]}))
    )

    _, changed = take_up(Known({"a.yaml": plain}, TAGS, ROUTING), reading({"a.yaml": mapped}))

    assert plain != mapped
    assert not changed


def test_the_fields_of_a_manifest_that_differ_are_named() -> None:
    before = manifest("a", offers={"cost": 3, "input_schema": {}}, max_concurrency=8, callable_by=["bob"])
    after = manifest(
        "a",
        offers={"cost": 1, "input_schema": {"properties": {name * 9: {} for name in "abcdefgh"}}},
        rate=2,
        callable_by=["bob", "alice"],
    )

    assert manifest_changes(before, after) == [
        'callable_by ["bob"] → ["alice", "bob"]',
        "rate null → 2.0",
        f"{CAPABILITY} cost 3.0 → 1.0",
        f"{CAPABILITY} input_schema changed",
    ]
    assert manifest_changes(before, before) == []


def test_added_and_withdrawn_capabilities_are_told_elsewhere() -> None:
    assert manifest_changes(manifest("a", capability="one"), manifest("a", capability="two")) == []


def test_the_rules_that_differ_are_named() -> None:
    before = RoutingPolicy(score_bonus={"a": 0.1})
    after = RoutingPolicy(explore=0.0, tie_break="spread", shadow=RoutingPolicy(preset="declared"))

    assert routing_changes(before, after) == [
        "explore 0.08 → 0.0",
        'score_bonus {"a": 0.1} → {}',
        "shadow changed",
    ]
    assert routing_changes(before, before) == []
