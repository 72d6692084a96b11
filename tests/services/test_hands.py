"""What a router remembers of tasks that are over, and of who else waits for one."""

from reach_worker.core.duplicates import KnownTask, TaskState
from reach_worker.ports import Joined
from reach_worker.services.router.hands import ANSWER_LIMIT, ANSWERS_LIMIT, REMEMBERED, Hands


def ended(task_id: str, answer: bytes) -> KnownTask:
    return KnownTask(task_id, 0, TaskState.SUCCEEDED, "r1", None, 0, 0, answer)


def kept(hands: Hands) -> int:
    return sum(len(known.answer or b"") for known in hands.ended.values())


def test_the_bytes_of_remembered_answers_are_counted_right_also_where_one_ends_again() -> None:
    hands = Hands()
    for number in range(REMEMBERED):
        hands.end(ended(str(number), b"x" * 10))
    for number in range(500):
        hands.end(ended(str(REMEMBERED - 1), b"y" * number))
    assert hands.answers == kept(hands)
    for number in range(REMEMBERED):
        hands.end(ended(str(number % 300), b"z" * ANSWER_LIMIT))
    assert hands.answers == kept(hands) <= ANSWERS_LIMIT


def test_who_asks_again_with_the_same_address_waits_once() -> None:
    hands = Hands()
    for at in range(1000):
        hands.join(Joined("t", "mine", "c", at))
    hands.join(Joined("t", "mine", "d", 0))
    hands.join(Joined("t", "yours", "c", 0))
    assert [(one.reply_to, one.correlation_id) for one in hands.joined["t"]] == [
        ("mine", "c"),
        ("mine", "d"),
        ("yours", "c"),
    ]
