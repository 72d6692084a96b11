# ruff: noqa: RUF001 - Chinese punctuation is what this is about
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reach_worker.demo.work import shipped
from reach_worker.demo.work.keyphrases import content_terms, keyphrases
from reach_worker.demo.work.sentences import sentences
from reach_worker.demo.work.summarize import choose, keywords, summarize

TEXTS = {**shipped.documents(), **shipped.texts()}


def test_an_english_summary() -> None:
    answer = summarize({"text": shipped.texts()["checkout-outage.txt"], "max_sentences": 2, "keywords": 4})
    assert [(sentence["index"], sentence["text"][:40]) for sentence in answer["sentences"]] == [
        (0, "On Wednesday 5 March the shop answered t"),
        (2, "The cause was a change to the connection"),
    ]
    assert answer["of"] == 10
    assert answer["keywords"] == ["change", "connection", "minutes", "answered"]


def test_a_chinese_summary() -> None:
    answer = summarize({"text": shipped.texts()["retry-storm-zh.txt"], "max_sentences": 2, "keywords": 3})
    assert [sentence["text"] for sentence in answer["sentences"]] == [
        "重试并不总能提高成功率。",
        "当下游服务已经过载时，每一次重试都会增加它的负担，这就是重试风暴。",
    ]
    assert answer["of"] == 8
    assert answer["keywords"] == ["重试", "预算", "下游"]


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("wanted", [1, 3, 20])
def test_sentences_are_the_texts_own_in_their_order(name: str, wanted: int) -> None:
    found = sentences(TEXTS[name])
    chosen = summarize({"text": TEXTS[name], "max_sentences": wanted})["sentences"]
    assert len(chosen) == min(wanted, len(found))
    assert [sentence["index"] for sentence in chosen] == sorted({sentence["index"] for sentence in chosen})
    assert all(found[sentence["index"]] == sentence["text"] for sentence in chosen)


def test_what_was_said_is_not_said_again() -> None:
    said = [
        ["disk", "full", "night", "alert"],
        ["disk", "full", "night", "alert"],
        ["pager", "rota", "team", "call"],
    ]
    assert sorted(choose(said, 2)) == [0, 2]


def test_the_opening_wins_between_equals() -> None:
    assert list(choose([["a", "b"], ["c", "d"]], 1)) == [0]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("One. Two! Three?", ["One.", "Two!", "Three?"]),
        (
            "It costs 3.14 euros, e.g. at J. Smith's. Then it ends.",
            ["It costs 3.14 euros, e.g. at J. Smith's.", "Then it ends."],
        ),
        ('He said "no." She left.', ['He said "no."', "She left."]),
        ("See example.com. It works", ["See example.com.", "It works"]),
        ("磁盘满了。怎么办？立即清理！", ["磁盘满了。", "怎么办？", "立即清理！"]),
        ("他说：“满了。”然后走了。", ["他说：“满了。”", "然后走了。"]),
        ("磁盘在夜里\n写满了。Then it\nstopped.", ["磁盘在夜里写满了。", "Then it stopped."]),
        ("# Title\n\n- first item\n- second item\n\n1. third", ["first item", "second item", "third"]),
        ("Before.\n```\ncode. here.\n```\n| a | b |\nAfter.", ["Before.", "After."]),
        ("no full stop", ["no full stop"]),
        ("", []),
    ],
)
def test_sentence_ends(text: str, expected: list[str]) -> None:
    assert sentences(text) == expected


@given(st.text())
def test_sentences_lose_nothing_but_markdown(text: str) -> None:
    text = "".join(character for character in text if character not in "`#|-=*+>0123456789")
    assert "".join("".join(sentences(text)).split()) == "".join(text.split())


def test_content_terms_leave_out_what_only_binds() -> None:
    assert content_terms("The queues of 2025 are full") == ["queue", "full"]
    assert content_terms("磁盘的容量") == ["磁盘", "容量"]


def test_a_chinese_phrase_is_not_split_into_its_parts() -> None:
    assert keyphrases("数据库备份。数据库恢复。数据库演练。", 2) == [("数据库", 3)]


def test_short_chinese_text_without_repeats_has_keywords_too() -> None:
    assert keyphrases("磁盘的容量", 5) == [("磁盘", 1), ("容量", 1)]
    assert keyphrases("一个没有停顿的长句子", 1) == [("一个没有停顿", 1)]


def test_keywords_keep_the_spelling_met_first_and_count_all_forms() -> None:
    answer = keywords({"text": "Queues fill. A queue drains. Workers wait.", "keywords": 2})
    assert answer == {
        "keywords": [{"word": "queues", "count": 2, "score": 1.0}, {"word": "fill", "count": 1, "score": 0.5}]
    }


def test_keywords_of_a_shipped_chinese_document() -> None:
    found = keywords({"text": shipped.documents()["backup-and-restore-zh.md"]})["keywords"]
    text = shipped.documents()["backup-and-restore-zh.md"]
    assert [(word["word"], word["count"]) for word in found[:3]] == [("备份", 16), ("恢复", 9), ("演练", 4)]
    assert text.count("备份") == 16
    assert text.count("恢复") == 9


@pytest.mark.parametrize(
    "payload", [{"text": ""}, {"text": " \n"}, {}, {"text": 7}, {"text": "# Only a heading"}]
)
def test_no_text_is_refused(payload: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="text: "):
        summarize(payload)


def test_a_text_of_stop_words_has_no_keywords() -> None:
    with pytest.raises(ValueError, match="text: holds no word"):
        keywords({"text": "It is what it is. 42."})


@given(st.text(min_size=1), st.integers(1, 20))
def test_any_text_is_summarized_or_refused_in_words(text: str, wanted: int) -> None:
    try:
        answer = summarize({"text": text, "max_sentences": wanted})
    except ValueError as error:
        assert str(error).startswith("text: ")  # noqa: PT017 - both ends are fine, this is the second
    else:
        assert 1 <= len(answer["sentences"]) <= wanted
        assert all(0 <= sentence["score"] <= 1.2 for sentence in answer["sentences"])
