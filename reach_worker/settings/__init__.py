"""The settings: one frozen model of ``config/reach.yaml`` and ``REACH_*`` variables, and the fleet's files.

Nothing is read at import; the environment is passed in.
"""

from reach_worker.settings.fleet import FleetFiles, load_fleet, load_manifests
from reach_worker.settings.load import load_settings, read_settings
from reach_worker.settings.model import (
    BrokerSettings,
    PathSettings,
    RouterSettings,
    Settings,
    StoreSettings,
    redacted,
)
from reach_worker.settings.reference import render_reference
from reach_worker.settings.sources import Sources

__all__ = [
    "BrokerSettings",
    "FleetFiles",
    "PathSettings",
    "RouterSettings",
    "Settings",
    "Sources",
    "StoreSettings",
    "load_fleet",
    "load_manifests",
    "load_settings",
    "read_settings",
    "redacted",
    "render_reference",
]
