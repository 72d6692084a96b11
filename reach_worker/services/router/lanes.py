"""Where tasks wait on the broker: the lane of their capability, a rung to step aside to, the way back to the routers."""

from typing import Final

from reach_worker.core.routing import plan
from reach_worker.core.window import Held, to_spill
from reach_worker.ports import Sent
from reach_worker.services.effects import Step
from reach_worker.services.router.desk import Desk
from reach_worker.services.router.dispatcher import Dispatcher
from reach_worker.services.router.hands import Waiting
from reach_worker.services.router.messages import lane_message, retry_message, returned_message

STEP_ASIDE_S: Final = 1.0
"""A task from a lane that none of the free agents may have waits so long on a retry rung, and holds up nobody."""


class Lanes:
    """Moves waiting tasks out of the window.

    ``depths``: tasks believed to be in each capability's lane. ``since``: from when on a lane is known not to have been
    empty, monotonic seconds.
    """

    def __init__(self, desk: Desk, dispatcher: Dispatcher) -> None:
        self._desk = desk
        self._dispatcher = dispatcher
        self.depths: dict[str, int] = {}
        self.since: dict[str, float] = {}

    def left(self, capability: str, count: int) -> None:
        """So many were seen to be in a lane."""
        self.depths[capability] = count
        if count:
            self.since.setdefault(capability, self._desk.clock.monotonic())
        else:
            self.since.pop(capability, None)

    def forget(self, capability: str) -> None:
        """Nobody puts anything into this lane any more, and it is empty."""
        self.depths.pop(capability, None)
        self.since.pop(capability, None)

    def spill(self) -> list[Step]:
        """Move what would hold up others, or was held long, to its capability's lane on the broker."""
        now = self._desk.clock.monotonic()
        fleet, policies = self._desk.fleet, self._desk.policies
        held = [
            Held(w.ask.task_id, w.capability, w.since, w.delivery.redelivered)
            for w in self._desk.hands.waiting.values()
        ]
        if not held:
            return []
        free = {capability: fleet.free_slots(capability, now) for capability in fleet.by_capability}
        chosen = to_spill(held, free, window=policies.intake.held_at_most(), hold_s=policies.hold_s, now=now)
        return [self.to_lane(self._desk.hands.take(task_id)) for task_id in chosen]

    def hand_back(self) -> list[Step]:
        """Give everything that waits back to the routers: this one stops. Published, never nacked."""
        names = self._desk.names
        waiting = [self._desk.hands.take(task_id) for task_id in list(self._desk.hands.waiting)]
        return [
            Step(
                [w.delivery],
                send=[returned_message(names, w.admitted.envelope, w.admitted.body)],
                rows=[self._desk.accepted(w.admitted.envelope), *w.rows],
            )
            for w in waiting
        ]

    def send_on(self) -> list[Step]:
        """Give what was recalled to the routers: its message may come again to one that believes it to be under way."""
        hands = self._desk.hands
        recalled = list(hands.recalled.values())
        hands.recalled.clear()
        return [self._sent_on(waiting) for waiting in recalled]

    def _sent_on(self, waiting: Waiting) -> Step:
        envelope, hands = waiting.admitted.envelope, self._desk.hands
        message = returned_message(self._desk.names, envelope, waiting.admitted.body)
        step = Step(send=[message], rows=list(waiting.rows))
        step.done = lambda: hands.go_on(envelope.task_id, envelope.life)
        step.undo = lambda _worst: hands.recalled.update({envelope.task_id: waiting})
        return step

    def to_lane(self, waiting: Waiting) -> Step:
        """Where any router finds it."""
        desk, admitted = self._desk, waiting.admitted
        decision = plan(waiting.ask, desk.fleet, desk.policies.routing, desk.clock.monotonic())
        step = Step([waiting.delivery])
        step.send.append(lane_message(desk.names, admitted.envelope, admitted.body, desk.clock.utc_us()))
        decided = self._dispatcher.decided(desk.clock.new_id(), admitted.envelope, decision)
        step.rows = [desk.accepted(admitted.envelope), *waiting.rows, decided]
        step.done = lambda: self._spilled(waiting)
        step.undo = lambda worst: self._unspilled(waiting, worst)
        return step

    def _spilled(self, waiting: Waiting) -> None:
        capability, envelope = waiting.capability, waiting.admitted.envelope
        self._desk.hands.go_on(envelope.task_id, envelope.life)
        self.since.setdefault(capability, waiting.since)
        self.depths[capability] = self.depths.get(capability, 0) + 1
        self._desk.counts.spilled += 1

    def _unspilled(self, waiting: Waiting, worst: Sent) -> None:
        if worst is Sent.UNROUTABLE:
            self._dispatcher.missing_queues.add(self._desk.names.lane(waiting.capability))
        if worst is not Sent.UNCERTAIN:
            self._desk.hands.wait(waiting, first=True)

    def step_aside(self, waiting: Waiting) -> Step:
        desk, admitted = self._desk, waiting.admitted
        now_us = desk.clock.utc_us()
        message = retry_message(desk.names, admitted.envelope, admitted.body, STEP_ASIDE_S, now_us)
        step = Step([waiting.delivery], send=[message], rows=list(waiting.rows))
        step.done = lambda: desk.hands.go_on(admitted.envelope.task_id, admitted.envelope.life)
        return step
