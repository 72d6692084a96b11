"""Adapters run on both loops: asyncio's own, and the one that the package runs on."""

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import pytest
import uvloop

HERE: Final = Path(__file__).parent


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], Any]]:
    """Processes and sockets end in other ways on each."""
    return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """On uvloop a signal cannot end a test that hangs."""
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.timeout(60, method="thread"))
