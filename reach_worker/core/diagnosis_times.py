"""Findings about time: the broker's consumer timeout against what is held, and clocks that disagree."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from reach_worker.core.diagnosis import Finding, Severity
from reach_worker.core.manifest import Manifest

WHERE: Final = "consumer timeout"
FUTURE_S: Final = 2.0
"""A row may be so far ahead of our clock: it was written while we looked."""
JUMP_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Holding:
    """Seconds that a message is held without an acknowledgement, and what the settings say of the broker's limit.

    ``attempt_s``: the limit of an attempt that its capability does not state. ``real_s``: the broker's own word,
    ``None`` where nobody could ask it.
    """

    stated_s: float
    real_s: float | None
    hold_s: float
    pickup_s: float
    attempt_s: float


def of_consumer_timeout(holding: Holding, manifests: Iterable[Manifest]) -> Iterator[Finding]:
    """After its consumer timeout the broker takes back what is not acknowledged, and closes the channel."""
    stated_s, real_s = holding.stated_s, holding.real_s
    if real_s is None:
        what = f"not asked for; the settings say {stated_s:g} s"
        advice = "on the broker's machine: `reach doctor --ctl rabbitmqctl`; set broker.consumer_timeout_s to what it has"
        yield Finding(Severity.INFO, WHERE, what, advice)
    elif real_s < stated_s:
        what = f"the broker has {real_s:g} s, the settings say {stated_s:g} s: long tasks are taken back and run again"
        yield Finding(Severity.ERROR, WHERE, what, f"set broker.consumer_timeout_s to {real_s:g}")
    elif real_s > stated_s:
        what = f"the broker has {real_s:g} s, the settings say {stated_s:g} s: tasks are parked sooner than needed"
        yield Finding(Severity.INFO, WHERE, what, f"set broker.consumer_timeout_s to {real_s:g}")
    else:
        yield Finding(Severity.OK, WHERE, f"{stated_s:g} s, as the settings say")
    limit_s = stated_s if real_s is None else min(stated_s, real_s)
    for name, held_s in (("a router's hold", holding.hold_s), ("timeouts.pickup_s", holding.pickup_s)):
        if 2 * held_s > limit_s:
            what = f"{name} of {held_s:g} s is more than half of {limit_s:g} s: the broker may take messages back"
            advice = "raise consumer_timeout on the broker and broker.consumer_timeout_s, or lower timeouts.pickup_s"
            yield Finding(Severity.ERROR if held_s >= limit_s else Severity.WARNING, WHERE, what, advice)
    yield from _longest(limit_s, holding.attempt_s, manifests)


def _longest(limit_s: float, attempt_s: float, manifests: Iterable[Manifest]) -> Iterator[Finding]:
    declared = [
        ((each.timeout_ms or attempt_s * 1000) / 1000, manifest.id, each.id)
        for manifest in manifests
        for each in manifest.capabilities
    ]
    if not declared:
        return
    longest_s, agent_id, capability = max(declared)
    if 2 * longest_s > limit_s:
        what = (
            f"a task may take {longest_s:g} s, more than half of {limit_s:g} s: it is kept as a parked copy"
        )
        advice = "nothing to do for agents of this kind; for a foreign worker raise the broker's limit"
        yield Finding(Severity.INFO, f"capability {capability} of {agent_id}", what, advice)
    else:
        what = f"the longest task may take {longest_s:g} s ({capability} of {agent_id}), well below {limit_s:g} s"
        yield Finding(Severity.OK, WHERE, what)


def of_clock(now_us: int, newest_us: int | None, jumped_s: float) -> Iterator[Finding]:
    """The newest row of the store lies in the future, or the clock jumped while we looked (by so many seconds)."""
    ahead_s = 0.0 if newest_us is None else (newest_us - now_us) / 1e6
    if ahead_s > FUTURE_S:
        what = f"the newest row of the store is {ahead_s:.0f} s ahead of this machine's clock"
        advice = "set the clocks by NTP: deadlines and the memory for duplicates count by them"
        yield Finding(Severity.ERROR, "clock", what, advice)
    if abs(jumped_s) > JUMP_S:
        what = f"it jumped by {jumped_s:+.1f} s while this ran"
        yield Finding(Severity.WARNING, "clock", what, "let NTP slew the clock, and look again")
    elif ahead_s <= FUTURE_S:
        what = "it runs evenly, and nothing in the store is ahead of it"
        yield Finding(Severity.OK, "clock", what if newest_us is not None else "it runs evenly")
