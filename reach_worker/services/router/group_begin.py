"""A race or fan-out begins: each agent gets its leg, and a watch of the whole group goes round."""

from reach_worker.core.envelope import Envelope
from reach_worker.core.group import Leg, Round, fanout_agents, leg_envelope, leg_id, race_agents, room
from reach_worker.core.recovery import MICROSECONDS
from reach_worker.core.routing import Decision
from reach_worker.ports import Decided, Sent
from reach_worker.services.effects import Step
from reach_worker.services.router.desk import Desk
from reach_worker.services.router.hands import Waiting
from reach_worker.services.router.led import Group, Led
from reach_worker.services.router.messages import returned_message, watch_message


class GroupBegin:
    """Begins rounds; from then on the group is among those that are ``led`` here."""

    def __init__(self, desk: Desk, led: Led) -> None:
        self._desk = desk
        self._led = led

    def begin(self, waiting: Waiting, decision: Decision) -> Step | None:
        """Give each agent its leg; ``None`` where there is nobody to give one to now."""
        admitted, desk = waiting.admitted, self._desk
        envelope, task, race = admitted.envelope, admitted.task, admitted.task.mode == "race"
        if self._led.begun(envelope):
            return Step([waiting.delivery], rows=list(waiting.rows))
        agents, missing = (race_agents(decision), []) if race else fanout_agents(decision)
        if not agents:
            return None
        legs = tuple(Leg(leg_id(envelope, agent_id), agent_id) for agent_id in agents)
        until = envelope.deadline
        if until is None and not race:
            until = desk.clock.utc_us() + int(desk.policies.timeouts.fanout_s * MICROSECONDS)
        of = Round(envelope.next_attempt, desk.router_id, until, legs, tuple(missing))
        left = room(task, desk.policies.intake.max_body_bytes)
        group = Group(envelope, task, admitted.body, of, left, desk.session)
        step = Step([waiting.delivery])
        step.send = [
            *(
                returned_message(desk.names, leg_envelope(envelope, leg, of, race=race), admitted.body)
                for leg in legs
            ),
            watch_message(desk.names, envelope, admitted.body, of, desk.clock.utc_us()),
        ]
        step.rows = [desk.accepted(envelope), *waiting.rows, self._decided(envelope, decision, group)]
        step.done = lambda: self._began(group)
        step.undo = lambda worst: self._not_begun(waiting, worst)
        return step

    def _began(self, group: Group) -> None:
        self._led.open[group.envelope.task_id] = group
        self._desk.hands.go_on(group.envelope.task_id, group.envelope.life)
        if group.round.number == 1:
            self._desk.retry_budget.first_attempt(self._desk.clock.monotonic())

    def _not_begun(self, waiting: Waiting, worst: Sent) -> None:
        """What was sent of it begins nothing twice; where the session ended its message comes again."""
        if worst is not Sent.UNCERTAIN:
            waiting.reason = f"the broker did not take its legs: {worst.value}"
            self._desk.hands.wait(waiting, first=True)

    def _decided(self, envelope: Envelope, decision: Decision, group: Group) -> Decided:
        legs = [leg.agent_id for leg in group.round.legs]
        return Decided(
            decision_id=self._desk.clock.new_id(),
            task_id=envelope.task_id,
            life=envelope.life,
            attempt=envelope.next_attempt,
            at=self._desk.clock.utc_us(),
            router=self._desk.router_id,
            decision={
                **decision.as_dict(),
                "mode": group.task.mode,
                "legs": legs,
                "missing": dict(group.round.missing),
            },
        )
