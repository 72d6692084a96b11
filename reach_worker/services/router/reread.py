"""Taking up what was read again from the files: another policy, other tags, other manifests."""

import logging
from dataclasses import replace

from reach_worker.core.admission import ask_of
from reach_worker.core.changes import routing_changes
from reach_worker.core.fresh_files import Changed
from reach_worker.core.policy import RoutingPolicy
from reach_worker.core.tags import TagTable
from reach_worker.services.fleet_watch import FleetWatch
from reach_worker.services.news import News
from reach_worker.services.router.desk import Desk

log = logging.getLogger(__name__)


def reread(changed: Changed, desk: Desk, watch: FleetWatch) -> News:
    """Take it between two turns, so that every decision is made by one set of rules."""
    if changed.routing is not None:
        _reroute(changed.routing, desk)
    news = watch.reread(changed)
    if changed.tags is not None:
        _retag(changed.tags, desk)
    return news


def _reroute(routing: RoutingPolicy, desk: Desk) -> None:
    before = desk.policies.routing
    desk.policies = replace(desk.policies, routing=routing)
    what = routing_changes(before, routing)
    if what:
        log.info("routing is %s now, it was %s; changed: %s", routing.name, before.name, ", ".join(what))


def _retag(tags: TagTable, desk: Desk) -> None:
    """What waits asks in the new spelling too."""
    desk.tags = tags
    for waiting in desk.hands.waiting.values():
        waiting.ask = ask_of(waiting.admitted, tags)
    log.info("the table of tags has changed")
