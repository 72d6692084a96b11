"""The machine's own clock."""

import os
import re
from concurrent.futures import ThreadPoolExecutor

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


def test_threads_and_a_child_process_make_ids_of_their_own() -> None:
    clock = SystemClock()
    with ThreadPoolExecutor(4) as threads:
        made = threads.map(lambda _: [clock.new_id() for _ in range(5000)], range(4))
        ids = [one for of_thread in made for one in of_thread]
    reader, writer = os.pipe()
    child = os.fork()
    if not child:  # pragma: no cover - another process
        os.write(writer, "".join(clock.new_id() for _ in range(300)).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as told:
        theirs = told.read()
    os.waitpid(child, 0)
    ids += [theirs[at : at + 32] for at in range(0, len(theirs), 32)] + [clock.new_id() for _ in range(300)]
    assert len(ids) == 20_600
    assert len({one[10:] for one in ids}) == len(ids)
