"""The machine's own clock."""

import re

from reach_worker.clock import SystemClock


def test_ids_begin_with_their_time_and_end_with_chance() -> None:
    clock = SystemClock()
    before = clock.utc_us()
    ids = [clock.new_id() for _ in range(2000)]
    after = clock.utc_us()

    assert all(re.fullmatch("[0-9a-f]{32}", one) for one in ids)
    times = {int(one[:10], 16) for one in ids}
    assert before * 1000 >> 26 <= min(times)
    assert max(times) <= after * 1000 + 999 >> 26
    assert len({one[-12:] for one in ids}) == len(ids)
