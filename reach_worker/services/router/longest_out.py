"""How long a dispatch can be out, and how long a store that is away is waited for before it is given up."""

from typing import Final

from reach_worker.core.recovery import MICROSECONDS
from reach_worker.services.router.desk import Desk

DOUBT_S: Final = 60.0
"""So long beyond its time what another router may have settled, or ended, waits for the store to tell."""


def longest_out_us(desk: Desk, capability_id: str) -> int:
    """After so many microseconds the router that sent a dispatch has given it up, whatever its agent may take.

    By what is declared now: one that was sent under a longer ``timeout_ms`` than any that is left is given up later by
    its router. So it is where that router could not hear, or the store cannot tell; who acts on it before is found out.
    """
    timeouts = desk.policies.timeouts
    offers = desk.fleet.capable(capability_id)
    declared = [offer.capability.timeout_ms for offer in offers if offer.capability.timeout_ms]
    longest_s = max([timeouts.attempt_ms, *declared]) / 1000
    return int((timeouts.pickup_s + longest_s + 2 * timeouts.backstop_s) * MICROSECONDS)
