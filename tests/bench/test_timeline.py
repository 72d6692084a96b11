from functools import partial

from reach_worker.bench.timeline import Timeline


def test_what_is_due_happens_in_order_and_equals_as_they_were_entered() -> None:
    timeline, seen = Timeline(), list[tuple[str, float]]()
    for name, when in (("c", 2.0), ("a", 1.0), ("b", 1.0)):
        timeline.at(when, partial(lambda name: seen.append((name, timeline.now)), name))
    timeline.run()
    assert seen == [("a", 1.0), ("b", 1.0), ("c", 2.0)]


def test_what_is_entered_meanwhile_happens_too_and_time_never_goes_back() -> None:
    timeline, seen = Timeline(), list[float]()

    def late() -> None:
        seen.append(timeline.now)

    timeline.at(3.0, lambda: timeline.at(1.0, late))
    timeline.run()
    assert seen == [3.0]
