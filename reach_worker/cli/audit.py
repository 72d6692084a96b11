"""``reach audit``: conservation, proved from the store and the broker."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any, Final

import click

from reach_worker import wiring
from reach_worker.cli.auditing import Named, Question, Report
from reach_worker.cli.auditing import audit as look
from reach_worker.cli.command import ReachCommand, json_option
from reach_worker.cli.failures import OK, TROUBLE
from reach_worker.cli.human_times import local_second
from reach_worker.cli.invocation import Invocation, pass_invocation
from reach_worker.cli.output import Node, print_json, print_tree
from reach_worker.cli.parameters import duration
from reach_worker.clock import SystemClock
from reach_worker.settings import Settings

SHOWN: Final = 20


@click.command(
    cls=ReachCommand,
    examples=["reach audit", "reach audit --since 1d", "reach audit --strict --patience 5s --json"],
)
@click.option("--since", type=duration, help="Only tasks that were first seen since then: 2h, 1d.")
@click.option("--strict", is_flag=True, help="A dead letter that is not in dlq any more counts as lost.")
@click.option(
    "--patience",
    type=duration,
    default="40s",
    show_default=True,
    help="How long to look again at tasks that seem to be nowhere.",
)
@click.option(
    "--listen", "listen_s", type=duration, default="1.5s", show_default=True, help="How long to listen."
)
@json_option
@pass_invocation
def audit(
    invocation: Invocation, since: float | None, strict: bool, patience: float, listen_s: float, as_json: bool
) -> int:
    """Prove that every accepted task has one end, or name where it is.

    Compares store, spill file, queues and who is there. It may run at any time: of live queues it reads only the
    counts. What seems to be nowhere is looked at again, until it has moved or the patience is over. JSON has times in
    microseconds, UTC. Exit status 1: not all is accounted for, or not all could be looked at.
    """
    clock = SystemClock()
    since_us = 0 if since is None else clock.utc_us() - int(since * 1e6)
    question = Question(since_us, strict, patience, listen_s)
    settings = invocation.settings
    return wiring.run(lambda: _audit(settings, question, clock, as_json=as_json))


async def _audit(settings: Settings, question: Question, clock: SystemClock, *, as_json: bool) -> int:
    report = await look(settings, question, clock)
    if as_json:
        print_json(as_data(report))
    else:
        print_tree(as_tree(report))
    return OK if report.ok else TROUBLE


def as_data(report: Report) -> dict[str, Any]:
    """One object for programs. Lists name the first thousand; the counts beside them are of all."""
    return {
        "ok": report.ok,
        "accepted": report.accepted,
        "ended": report.ended,
        "open": report.open,
        "waiting": dict(sorted(report.waiting.items())),
        "doubled": [asdict(one) for one in report.doubled],
        "orphans": [asdict(one) for one in report.orphans],
        "letters": report.letters,
        "unmatched": report.unmatched,
        "letters_gone": report.letters_gone.first,
        "letters_gone_count": report.letters_gone.count,
        "letters_left": report.letters_left.first,
        "letters_left_count": report.letters_left.count,
        "letters_twice": report.letters_twice.first,
        "letters_twice_count": report.letters_twice.count,
        "unknown_to_store": report.unknown.first,
        "unknown_to_store_count": report.unknown.count,
        "spilled_rows": report.spilled,
        "spilled_unreadable": report.unreadable,
        "unchecked": report.unchecked,
    }


def as_tree(report: Report) -> Node:
    """The same for people: totals, then each oddity with where it is and what to do."""
    root = Node(_verdict(report), "bold green" if report.ok else "bold red")
    ended = ", ".join(f"{count} {state}" for state, count in sorted(report.ended.items())) or "none"
    root.add(f"accepted {report.accepted}: ended {ended}; open {report.open}")
    if report.waiting:
        places = root.add("open tasks, in whatever period they came")
        for place, count in sorted(report.waiting.items()):
            places.add(f"{count} {place}")
    root.add(f"on the broker: {report.letters} dead letters, {report.unmatched} unmatched")
    for trouble in report.unchecked:
        root.add(f"not looked at: {trouble}", "red").add("mend that (see `reach doctor`), then ask again")
    _faults(root, report)
    _remarks(root, report)
    return root


def _verdict(report: Report) -> str:
    if report.ok:
        return "every accepted task is accounted for"
    if report.unchecked:
        return "not everything could be looked at"
    return "not every accepted task is accounted for"


def _faults(root: Node, report: Report) -> None:
    if report.orphans:
        node = root.add(f"{len(report.orphans)} orphans: accepted, not ended, and nowhere", "red")
        for one in report.orphans[:SHOWN]:
            line = node.add(
                f"task {one.task_id}, life {one.life}, since {local_second(one.since)}: {one.where}"
            )
            line.add(one.advice)
        _and_more(node, len(report.orphans))
    if report.doubled:
        node = root.add(f"{len(report.doubled)} ended more than once", "red")
        for twice in report.doubled[:SHOWN]:
            ends = ", ".join(f"{end['state']} at {local_second(end['at'])}" for end in twice.ends)
            node.add(f"task {twice.task_id}, life {twice.life}: {ends}").add(
                f"see `reach explain {twice.task_id}`"
            )
        _and_more(node, len(report.doubled))


def _remarks(root: Node, report: Report) -> None:
    if report.spilled or report.unreadable:
        node = root.add(f"{report.spilled} rows are in the spill file; they are counted here", "yellow")
        node.add("a router that runs writes them into the store when it can")
        if report.unreadable:
            node.add(f"{report.unreadable} lines there cannot be read: what they said is not known", "red")
    told = (
        (
            report.letters_gone,
            "dead letters are not in dlq any more: a person removed them, or a replay of them is on its way",
            "if nobody did, they are lost; `--strict` counts them so",
        ),
        (
            report.letters_left,
            "messages in dlq or unmatched are of tasks that went on or ended otherwise",
            "see `reach explain TASK`; what succeeded late can be dropped: `reach dlq drop --task-id TASK`",
        ),
        (
            report.letters_twice,
            "dead letters are in dlq more than once: a router died between sending one and recording it",
            "a replay runs the task once, whatever it sends; or drop them: `reach dlq drop --task-id TASK`",
        ),
        (
            report.unknown,
            "messages in dlq or unmatched are of tasks that the store does not know",
            "what the broker gave up itself, or what came while the store was away; `reach dlq show TASK`",
        ),
    )
    for named, what, advice in told:
        if named.count:
            node = root.add(f"{named.count} {what}", "red" if _counts(report, named) else "yellow")
            node.add(advice)
            for line in _lines(named):
                node.add(line)
            _and_more(node, named.count)


def _counts(report: Report, named: Named) -> bool:
    return report.strict and named is report.letters_gone


def _lines(named: Named) -> Iterator[str]:
    for one in named.first[:SHOWN]:
        yield f"task {one['task_id']}, life {one['life']}{_more(one)}"


def _more(one: Mapping[str, object]) -> str:
    said = {name: value for name, value in one.items() if name in ("where", "state", "reason") and value}
    words = ", ".join(f"{name} {value}" for name, value in said.items())
    return f": {words}" if words else ""


def _and_more(node: Node, count: int) -> None:
    if count > SHOWN:
        node.add(f"and {count - SHOWN} more; --json names them")
