"""Where a run of the demo takes place: a folder of its own, and names on the broker that no other run has."""

import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from reach_worker import wiring
from reach_worker.bus.topology import Topology
from reach_worker.core.manifest import Manifest
from reach_worker.core.names import Names
from reach_worker.errors import BadInput, Problem
from reach_worker.settings import Settings, load_fleet, load_settings

SHIPPED: Final = Path(__file__).parent / "config"
URL: Final = "REACH_AMQP_URL"

NO_BROKER: Final = Problem(
    f"{URL} is not set, and the demo needs a RabbitMQ",
    hint="`scripts/run` starts one, runs the demo on it and stops it; to keep one: "
    f"`scripts/broker start`, then `export {URL}=$(scripts/broker url)`",
)


@dataclass(frozen=True, slots=True)
class Stage:
    """A run's folder: ``config/``, ``data/`` with the store, ``logs/``. ``environ`` is for its processes.

    Of the caller's ``REACH_*`` variables only the broker's URL counts: the others would change what is shown.
    """

    root: Path
    settings: Settings
    manifests: tuple[Manifest, ...]
    environ: Mapping[str, str]

    @property
    def config(self) -> Path:
        """The settings' file."""
        return self.root / "config" / "reach.yaml"

    @property
    def names(self) -> Names:
        """This run's names on the broker."""
        return Names(self.settings.broker.prefix)

    def log(self, process: str) -> Path:
        """Where a process writes what it has to say."""
        return self.root / "logs" / f"{process}.log"

    def began(self) -> bool:
        """A process was started."""
        return any((self.root / "logs").iterdir())

    def topology(self) -> Topology:
        """Everything that this run leaves on the broker."""
        return wiring.known_topology(self.settings, self.manifests)


@dataclass(slots=True)
class Keeping:
    """Whether the folder stays when the run is over."""

    kept: bool


@contextmanager
def set_up(environ: Mapping[str, str], unique: str, keeping: Keeping) -> Iterator[Stage]:
    """A stage; its folder is removed at the end unless it is to be kept. Raises ``BadInput`` where no broker is named."""
    if not environ.get(URL, "").strip():
        raise BadInput(NO_BROKER)
    root = Path(tempfile.mkdtemp(prefix="reach-demo-"))
    try:
        yield _furnished(root, environ, f"reach-demo-{unique[:12]}")
    finally:
        if not keeping.kept:
            shutil.rmtree(root, ignore_errors=True)


def _furnished(root: Path, environ: Mapping[str, str], prefix: str) -> Stage:
    shutil.copytree(SHIPPED, root / "config")
    (root / "logs").mkdir()
    config = root / "config" / "reach.yaml"
    with config.open("a", encoding="utf-8") as file:
        file.write(f"\nbroker:\n  prefix: {prefix}\n")
    settings = load_settings(config, {URL: environ[URL]})
    passed_on = {name: value for name, value in environ.items() if not name.startswith("REACH_")}
    return Stage(root, settings, load_fleet(settings).manifests, {**passed_on, URL: environ[URL]})
