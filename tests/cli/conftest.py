"""The command line without a broker, called in this process."""

import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from reach_worker.cli.program import reach

Call = Callable[..., Result]


@pytest.fixture(autouse=True)
def _loggers_as_they_were() -> Iterator[None]:
    """The program sets levels for a process of its own."""
    loggers = [logging.getLogger(name) for name in (None, "aio_pika", "aiormq", "aiosqlite")]
    levels = [logger.level for logger in loggers]
    yield
    for logger, level in zip(loggers, levels, strict=True):
        logger.setLevel(level)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to work in, and an environment without settings of ours."""
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("REACH_")]:
        monkeypatch.delenv(name)
    return tmp_path


@pytest.fixture
def call() -> Call:
    """Calls ``reach`` with these arguments, in the folder."""

    def call(*arguments: str, stdin: str = "") -> Result:
        return CliRunner().invoke(reach, arguments, input=stdin, prog_name="reach", catch_exceptions=False)

    return call


MANIFEST = """\
id: {agent}
mutually_exclusive_tags: [secret]
capabilities:
  - id: text.echo
    cost: {cost}
    latency_ms: 1000
    tags: [text]
    input_schema: {{type: object, required: [text], properties: {{text: {{type: string}}}}}}
"""


@pytest.fixture
def config(folder: Path) -> Path:
    """A folder ``config`` with settings and two agents, ``cheap`` and ``dear``."""
    config = folder / "config"
    (config / "agents").mkdir(parents=True)
    (config / "reach.yaml").write_text("router:\n  id: router-7\nrouting:\n  preset: declared\n")
    (config / "tags.yaml").write_text("text: [Texte]\n")
    for agent, cost in (("cheap", 1), ("dear", 4)):
        (config / "agents" / f"{agent}.yaml").write_text(MANIFEST.format(agent=agent, cost=cost))
    return config
