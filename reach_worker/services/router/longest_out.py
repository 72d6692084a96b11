"""How long a dispatch can be out."""

from reach_worker.core.recovery import MICROSECONDS
from reach_worker.services.router.desk import Desk


def longest_out_us(desk: Desk, capability_id: str) -> int:
    """After so many microseconds the router that sent a dispatch has given it up, whatever its agent may take.

    Where that router could not hear, or the store cannot tell, it is a little later; who acts on it before is found out.
    """
    timeouts = desk.policies.timeouts
    offers = desk.fleet.capable(capability_id)
    declared = [offer.capability.timeout_ms for offer in offers if offer.capability.timeout_ms]
    longest_s = max([timeouts.attempt_ms, *declared]) / 1000
    return int((timeouts.pickup_s + longest_s + 2 * timeouts.backstop_s) * MICROSECONDS)
