"""What a decision leads to, and the one order in which it happens: send (confirmed), record, acknowledge."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from reach_worker.core.message import Delivery, Message
from reach_worker.ports import Bus, Row, Sent, Store


@dataclass(slots=True)
class Step:
    """Everything that follows from one delivery.

    ``before``: rows that must be committed before anything is sent (tasks with side effects). ``first``: task and
    dispatch, where the dispatch that was committed so must also be the one that counts; if it is not, ``overtaken`` gives
    what is done instead (``True``: it was recorded all the same). ``send``: each must be confirmed, else the step is
    undone with the worst result. ``offer``: sent too, but the task does not depend on it; the row is recorded where
    nobody took it (a session that ended is not nobody). ``put_off``: nothing is done now, its delivery is to be handled
    again. ``rows`` and ``acks`` come last. ``ended``: the task that ends with it and the answer, for those who joined.
    """

    acks: list[Delivery] = field(default_factory=list)
    before: list[Row] = field(default_factory=list)
    first: tuple[str, str] | None = None
    overtaken: Callable[[bool], "Step"] | None = None
    ahead: list[Message] = field(default_factory=list)
    send: list[Message] = field(default_factory=list)
    offer: list[tuple[Message, Row]] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    ended: tuple[str, bytes] | None = None
    put_off: bool = False
    undo: Callable[[Sent], None] | None = None
    done: Callable[[], None] = lambda: None


_WORST_FIRST = (Sent.UNCERTAIN, Sent.REFUSED, Sent.UNROUTABLE)


@dataclass(slots=True)
class Carried:
    """How it went.

    ``again``: deliveries of steps that could not be sent and have no ``undo``; they are to be handled again.
    ``recorded``: whether the store took the rows, ``None`` if there were none.
    """

    again: list[Delivery] = field(default_factory=list)
    recorded: bool | None = None


async def carry_out(steps: Sequence[Step], bus: Bus, store: Store) -> Carried:
    """Carry out all steps of a turn together: one burst of messages, one transaction, one batch of acknowledgements."""
    carried = Carried()
    steps = await _prepared(steps, bus, store, carried)
    sent = done_or_undone(steps, await publish(steps, bus), bus)
    for step, worst in sent.undone:
        undo(step, worst, carried.again)
    carried.again += sent.again
    if sent.rows:
        carried.recorded = await store.record(sent.rows)
    await bus.ack(sent.acks)
    return carried


@dataclass(slots=True)
class SentSteps:
    """What is left to do once the broker has answered: rows to record, then deliveries to acknowledge.

    ``undone``: steps that were not sent, each with its worst result; they are not undone yet. ``again``: deliveries to be
    handled again.
    """

    rows: list[Row] = field(default_factory=list)
    acks: list[Delivery] = field(default_factory=list)
    undone: list[tuple[Step, Sent]] = field(default_factory=list)
    again: list[Delivery] = field(default_factory=list)


async def publish(steps: Sequence[Step], bus: Bus) -> list[Sent]:
    """Send all that the steps send and offer, in one burst."""
    messages = [message for step in steps for message in step.send]
    if any(step.offer for step in steps):
        messages = [
            message for step in steps for message in (*step.send, *(message for message, _ in step.offer))
        ]
    return await bus.publish(messages) if messages else []


def done_or_undone(steps: Sequence[Step], answers: Sequence[Sent], bus: Bus) -> SentSteps:
    """Tell the steps that were sent so; ``answers`` are of their messages, in order."""
    sent, results = SentSteps(), iter(answers)
    for step in steps:
        of_step = [next(results) for _ in step.send]
        offered = [(next(results), row) for _, row in step.offer]
        worst = next((result for result in _WORST_FIRST if result in of_step), None)
        if worst is None and not all(_known(result, step, bus) for result, _ in offered):
            worst = Sent.UNCERTAIN
        if worst is not None:
            sent.undone.append((step, worst))
            continue
        sent.rows += step.rows
        if step.put_off:
            sent.again += step.acks
            continue
        sent.rows += [row for result, row in offered if result is not Sent.CONFIRMED]
        sent.acks += step.acks
        step.done()
    return sent


async def _prepared(steps: Sequence[Step], bus: Bus, store: Store, carried: Carried) -> Sequence[Step]:
    """What has to be there before anything is sent; the steps for which it is."""
    if before := [row for step in steps for row in step.before]:
        carried.recorded = await store.record(before)
        if not carried.recorded:
            steps = _not_recorded(steps, carried.again)
        else:
            steps = await _first_ones(steps, store, carried.again)
    if any(step.ahead for step in steps):
        steps = await _led(steps, bus, carried.again)
    return steps


def _known(offered: Sent, step: Step, bus: Bus) -> bool:
    """Whether it is known what became of an offer: taken, or there is nobody who would.

    Where the session ended over it, what led to the step comes again, and with it the offer; a step that no message led
    to, and that can be undone, is found again at the next look. In a session that goes on a refusal is a refusal: a queue
    that is full would have its task ended, and undone, again and again.
    """
    match offered:
        case Sent.CONFIRMED | Sent.UNROUTABLE:
            return True
        case Sent.UNCERTAIN:
            return False
        case Sent.REFUSED:
            found_again = not step.acks and step.undo is not None
            return bus.in_session if found_again else all(bus.current(delivery) for delivery in step.acks)


def _not_recorded(steps: Sequence[Step], again: list[Delivery]) -> list[Step]:
    """The steps that may be carried out all the same; the others are undone."""
    for step in steps:
        if step.before:
            undo(step, Sent.REFUSED, again)
    return [step for step in steps if not step.before]


async def _first_ones(steps: Sequence[Step], store: Store, again: list[Delivery]) -> list[Step]:
    """The steps without those whose task another router has sent, in their place, a moment earlier."""
    asked = [step.first[0] for step in steps if step.first is not None]
    known = await store.known_tasks(asked) if asked else {}
    found = []
    for step in steps:
        task = None if step.first is None else known.get(step.first[0])
        if step.first is None or (task is not None and task.counts(step.first[1])):
            found.append(step)
        elif task is not None and step.overtaken is not None:
            found.append(step.overtaken(task.has(step.first[1])))
        else:
            undo(step, Sent.REFUSED, again)
    return found


async def _led(steps: Sequence[Step], bus: Bus, again: list[Delivery]) -> list[Step]:
    """The steps without those for which the broker did not take what goes ahead of them."""
    results = iter(await bus.publish([message for step in steps for message in step.ahead]))
    found = []
    for step in steps:
        sent = [next(results) for _ in step.ahead]
        if all(result is Sent.CONFIRMED for result in sent):
            found.append(step)
        else:
            undo(step, Sent.REFUSED, again)  # of the step itself it is certain: nothing was sent
    return found


def undo(step: Step, worst: Sent, again: list[Delivery]) -> None:
    """Take back what a step that was not sent had changed; without an ``undo`` its deliveries are handled again."""
    if step.undo is not None:
        step.undo(worst)
    else:
        again += step.acks
