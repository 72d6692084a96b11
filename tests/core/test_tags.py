"""One spelling per tag."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reach_worker.core.tags import TagTable, fold, load_tags
from reach_worker.errors import BadInput, Problem


def refused(text: str) -> tuple[Problem, ...]:
    with pytest.raises(BadInput) as caught:
        load_tags(text, file="tags.yaml")
    return caught.value.problems


@pytest.mark.parametrize(
    "spelling", ["报表", "report", "daily_report", " REPORT ", "\uff32eport", "Daily_Report"]
)
def test_all_spellings_are_one_tag(spelling: str) -> None:
    table = TagTable({"Report": ["报表", "Daily_report"]})

    assert table.normalise(spelling) == "report"


def test_a_tag_that_the_table_does_not_know_is_only_folded() -> None:
    assert TagTable({}).normalise(" Vision\u2163 ") == "visioniv"


def test_chains_are_followed_in_any_order() -> None:
    links = {"a": ["b"], "b": ["c"], "c": ["d"]}

    for synonyms in (links, dict(reversed(links.items()))):
        table = TagTable(synonyms)
        assert {table.normalise(tag) for tag in "abcd"} == {"a"}


def test_a_spelling_may_be_repeated_under_its_own_tag() -> None:
    assert TagTable({"a": ["A", "b", "B"]}).normalise("B") == "a"


def test_one_spelling_under_two_tags_is_refused_with_both() -> None:
    (problem,) = refused("report: [daily]\nsummary:\n  - short\n  - DAILY\n")

    assert problem == Problem(
        "'daily' stands for 'report' and for 'summary'; keep one", "/summary/1", "tags.yaml", 4, 5
    )


def test_a_circle_is_refused_with_its_way() -> None:
    first, second = refused("a: [b]\nb: [a]\nc: [d]\n")

    assert first == Problem("stands for itself: a → b → a", "/a", "tags.yaml", 1, 1)
    assert second == Problem("stands for itself: b → a → b", "/b", "tags.yaml", 2, 1)


def test_a_chain_into_a_circle_is_not_blamed_for_it() -> None:
    found = refused("a: [b]\nb: [a, c]\n")

    assert {problem.field for problem in found} == {"/a", "/b"}
    with pytest.raises(BadInput) as caught:
        TagTable({"a": ["b"], "b": ["a", "c"], "c": ["x"]})
    assert {problem.field for problem in caught.value.problems} == {"/a", "/b"}


@pytest.mark.parametrize(
    ("text", "field", "message"),
    [
        ("a: ['  ']", "/a/0", "a tag must not be empty"),
        ("'': [a]", "//0", "a tag must not be empty"),
        ("a: b", "/a", "must be a list, not text"),
        ("a: [1]", "/a/0", "must be text, and 1 without quotes is a number"),
        ("[a]", "", "must be a mapping (`name: value`), not a list"),
        ("a: [b]\na: [c]", "/a", "is written twice, first in line 1"),
    ],
)
def test_a_table_that_is_none_is_refused(text: str, field: str, message: str) -> None:
    (problem,) = refused(text)

    assert (problem.file, problem.field, problem.message) == ("tags.yaml", field, message)
    assert problem.line


def test_an_empty_file_is_an_empty_table() -> None:
    assert load_tags("# none yet\n").normalise("A") == "a"


@given(st.text())
def test_folding_twice_is_folding_once(text: str) -> None:
    folded = fold(text)

    assert fold(folded) == folded
    assert fold(f"  {text}\n") == folded


@given(
    st.dictionaries(st.sampled_from("abcdef"), st.lists(st.sampled_from("ABCDEFGH"), max_size=3), max_size=5)
)
def test_a_table_that_loads_maps_every_spelling_to_an_end(synonyms: dict[str, list[str]]) -> None:
    try:
        table = TagTable(synonyms)
    except BadInput:
        return
    for canonical, spellings in synonyms.items():
        for spelling in spellings:
            assert table.normalise(spelling) == table.normalise(canonical)
    for tag in "abcdefgh":
        assert table.normalise(table.normalise(tag)) == table.normalise(tag)
