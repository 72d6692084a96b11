"""A caller that reads streams finds out what is not as promised."""

from typing import Any

import orjson
import pytest

from reach_worker.chaos.listening import Listener
from reach_worker.core.streaming import Speaker


def speaker(run: str, agent: str = "chaos-1", attempt: int = 1) -> Speaker:
    return Speaker("t", "t", agent, attempt, run)


def piece(run: str, number: int) -> dict[str, Any]:
    return {"run": run, "number": number}


class Story:
    """What comes to the caller, one message after the other."""

    def __init__(self) -> None:
        self.listener = Listener()

    def starts(self, who: Speaker) -> None:
        self.listener.hear(orjson.loads(who.started()))

    def says(self, who: Speaker, *numbers: int, run: str | None = None) -> None:
        for number in numbers:
            chunk = orjson.dumps(piece(run or who.dispatch_id, number))
            self.listener.hear(orjson.loads(who.chunk(number, chunk)))

    def ends(self, who: Speaker, count: int, run: str | None = None) -> None:
        result = [piece(run or who.dispatch_id, number) for number in range(count)]
        self.listener.answered(
            {"status": "succeeded", "agent": who.agent_id, "attempt": who.attempt, "result": result}
        )


@pytest.fixture
def story() -> Story:
    return Story()


ONE, OTHER = speaker("d1"), speaker("d2", "chaos-2", 2)


def test_a_stream_in_order_up_to_its_answer_is_right(story: Story) -> None:
    story.starts(ONE)
    story.says(ONE, 0, 1, 2)
    story.ends(ONE, 3)
    story.ends(ONE, 3)  # the answer came again
    assert story.listener.wrong == []
    assert (story.listener.lost, story.listener.reroutings) == (0, 0)


def test_another_run_that_is_told_is_right_and_counted(story: Story) -> None:
    story.starts(ONE)
    story.says(ONE, 0, 1)
    story.starts(OTHER)
    story.says(ONE, 2)  # a late one
    story.says(OTHER, 0, 1)
    story.ends(OTHER, 2)
    assert (story.listener.wrong, story.listener.reroutings) == ([], 1)


def test_pieces_that_are_told_as_lost_are_counted(story: Story) -> None:
    story.starts(ONE)
    story.says(ONE, 0, 2)
    story.ends(ONE, 3)
    assert (story.listener.wrong, story.listener.lost) == ([], 1)


def test_pieces_that_were_lost_at_the_end_and_nobody_said_so_are_wrong(story: Story) -> None:
    story.starts(ONE)
    story.says(ONE, 0, 1)
    story.ends(ONE, 3)
    assert ["nothing said so" in wrong for wrong in story.listener.wrong] == [True]


def test_two_runs_under_one_name_are_a_mixture(story: Story) -> None:
    story.starts(ONE)
    story.says(ONE, 0, 1)
    story.says(ONE, 2, run="its second life")
    assert ["and nothing said so" in wrong for wrong in story.listener.wrong] == [True]


def test_a_piece_after_the_answer_is_wrong_unless_it_came_before_or_is_of_another_run(story: Story) -> None:
    story.starts(ONE)
    story.says(ONE, 0, 1)
    story.ends(ONE, 2)
    story.says(ONE, 1)  # again
    story.says(OTHER, 5)
    assert story.listener.wrong == []
    story.says(ONE, 2)
    assert story.listener.wrong == ["number 2 came after the answer"]


def test_an_end_without_a_result_says_nothing_of_what_was_read(story: Story) -> None:
    story.starts(ONE)
    story.says(ONE, 0)
    story.listener.answered({"status": "cancelled", "final": True})
    assert story.listener.wrong == []
