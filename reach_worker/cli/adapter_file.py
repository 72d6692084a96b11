"""The agent in a YAML file: a manifest with an ``adapter`` section."""

import logging
from pathlib import Path

from reach_worker import wiring
from reach_worker.adapters import AdapterAgent, load_agent
from reach_worker.cli.invocation import Invocation
from reach_worker.settings.fleet import SUFFIXES

log = logging.getLogger(__name__)


def is_adapter_file(place: str) -> bool:
    """The place is a file's name, not a module's."""
    return place.endswith(SUFFIXES)


def adapter_at(place: str, invocation: Invocation, manifest: Path | None = None) -> AdapterAgent:
    """The agent in a file; what is probably not meant goes to the log. Raises ``BadInput``.

    ``manifest``: a file that goes over what the agent declares.
    """
    settings = invocation.settings
    agent = load_agent(Path(place), invocation.environ, lambda url: wiring.asking_bus(settings, url))
    if manifest is not None:
        agent.override(manifest)
    for warning in agent.adapter.warnings():
        log.warning("%s: %s", place, warning)
    return agent
