"""Putting a router on a bus: what it consumes, what it hears, and the router itself."""

from collections.abc import Callable
from typing import Final

from reach_worker.core.announcement import FEEDBACK, WHO
from reach_worker.core.cancel import CANCEL_TASK
from reach_worker.core.hearsay import HEARSAY
from reach_worker.core.lookup import FETCH
from reach_worker.core.presence import PresencePolicy
from reach_worker.core.status import QUESTION, Health
from reach_worker.ports import Store, SubscribingBus
from reach_worker.services.router.desk import Desk
from reach_worker.services.router.router import Router

OUTCOMES_PREFETCH: Final = 500
HEARD: Final = (
    WHO,
    QUESTION,
    CANCEL_TASK,
    FETCH,
    "presence.#",
    "manifest.#",
    "router.#",
    f"{FEEDBACK}.#",
    f"{HEARSAY}.#",
)
"""Routing keys of the events that a router hears."""


def router_on(
    bus: SubscribingBus, desk: Desk, presence: PresencePolicy, store: Store, health: Callable[[], Health]
) -> Router:
    """The router of a desk, on a bus that is not running yet."""
    names, intake = desk.names, desk.policies.intake
    bus.subscribe("intake", names.intake, intake.held_at_most(), wanted=False)
    bus.subscribe("returns", names.returns, intake.prefetch, wanted=False)
    bus.subscribe("outcomes", names.outcomes(desk.router_id), OUTCOMES_PREFETCH, at_once=True)
    bus.subscribe_mailbox("router", [(names.events, key) for key in HEARD])
    router = Router(desk, presence, bus, store, health)
    bus.on_session = router.watch.session_began
    return router
