"""Delivers every task to the agent that should do it, and proves that it did."""

from reach_worker.agent.agent import Agent, capability
from reach_worker.agent.calls import CallLimit
from reach_worker.agent.context import Context
from reach_worker.agent.outcomes import BadRequest, Cancelled, Handoff, RateLimited, Rejected, Unavailable

__all__ = [
    "Agent",
    "BadRequest",
    "CallLimit",
    "Cancelled",
    "Context",
    "Handoff",
    "RateLimited",
    "Rejected",
    "Unavailable",
    "capability",
]
__version__ = "0.1.0"
