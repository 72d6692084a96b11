"""Publishing where the router has not declared all of its queues yet, or never will."""

import pytest

from reach_worker.client import BINDING_PAUSES_S
from reach_worker.errors import OutsideWorld
from reach_worker.testing import Fate
from tests.calling.scene import CAPABILITY, scene

TASK = {"capability": CAPABILITY, "payload": {}}


async def test_a_task_that_no_queue_is_bound_for_yet_is_sent_again() -> None:
    async with scene() as there:
        client = there.reach._client  # noqa: SLF001 - the one that publishes many
        there.bus.fail_next(Fate.UNROUTABLE, Fate.UNROUTABLE, to="t1")
        ids = await client.publish([{**TASK, "task_id": f"t{number}"} for number in range(3)])
        assert ids == ["t0", "t1", "t2"]
        works = await there.held(3)
        assert sorted(work.dispatch.envelope.task_id for work in works) == ids


async def test_where_none_is_ever_bound_it_says_what_to_do() -> None:
    async with scene() as there:
        client = there.reach._client  # noqa: SLF001 - the one that publishes many
        there.bus.fail_next(*[Fate.UNROUTABLE] * (1 + len(BINDING_PAUSES_S)))
        with pytest.raises(OutsideWorld, match=r"did not take task t0: no queue is bound.*start a router"):
            await client.publish([{**TASK, "task_id": "t0"}])
        assert there.runs() == 0
