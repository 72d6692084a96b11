"""Where a run takes place: a folder with settings, ledgers, logs, the store and the broker's node."""

import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from reach_worker.core.names import Names
from reach_worker.settings import Settings, load_settings

URL: Final = "REACH_AMQP_URL"
PREFIX: Final = "chaos"

SETTINGS: Final = """\
# The shipped defaults, but for what makes a run quick: whoever is gone is noticed after seconds. All mechanics are on.
broker:
  prefix: chaos
  heartbeat_s: 4
  call_timeout_s: 5
  connect_timeout_s: 5
router:
  grace_s: 5
presence:
  heartbeat_s: 1
  suspect_s: 3
  dead_s: 4
  stalled_s: 20
breaker:
  open_s: 2
  max_open_s: 6
  probe_lease_s: 15
retry:
  base_s: 0.3
  cap_s: 4
  budget_floor_per_min: 600
timeouts:
  pickup_s: 8
  backstop_s: 4
  fanout_s: 15
idempotency:
  window_s: 120
"""


@dataclass(frozen=True, slots=True)
class Stage:
    """The folder of a run. ``environ``: what its processes are given; of the caller's ``REACH_*`` variables none."""

    root: Path
    environ: Mapping[str, str]

    @property
    def config(self) -> Path:
        """The settings' file."""
        return self.root / "config" / "reach.yaml"

    @property
    def ledgers(self) -> Path:
        """Where the agents write down what they run."""
        return self.root / "ledgers"

    @property
    def broker(self) -> Path:
        """The folder of the broker's node."""
        return self.root / "broker"

    @property
    def data(self) -> Path:
        """The folder with the store."""
        return self.root / "data"

    @property
    def names(self) -> Names:
        """The names on the broker."""
        return Names(PREFIX)

    def log(self, process: str) -> Path:
        """Where a process writes what it has to say."""
        return self.root / "logs" / f"{process}.log"

    def settings(self, url: str) -> Settings:
        """The settings of a process that reaches the broker there."""
        return load_settings(self.config, {URL: url})


@dataclass(slots=True)
class Keeping:
    """Whether the folder stays when the run is over."""

    kept: bool


@contextmanager
def set_up(environ: Mapping[str, str], keeping: Keeping) -> Iterator[Stage]:
    """A stage; its folder is removed at the end unless it is to be kept."""
    root = Path(tempfile.mkdtemp(prefix="reach-chaos-"))
    try:
        for name in ("config/agents", "ledgers", "logs", "broker"):
            (root / name).mkdir(parents=True)
        (root / "config" / "tags.yaml").write_text("{}\n", encoding="utf-8")
        (root / "config" / "reach.yaml").write_text(SETTINGS, encoding="utf-8")
        passed_on = {name: value for name, value in environ.items() if not name.startswith("REACH_")}
        yield Stage(root, passed_on)
    finally:
        if keeping.kept:
            shutil.rmtree(root / "broker" / "data", ignore_errors=True)
        else:
            shutil.rmtree(root, ignore_errors=True)
