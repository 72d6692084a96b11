"""The router's files, read again while it runs: what they say now, and what of it is new."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from reach_worker.core.manifest import Manifest
from reach_worker.core.policy import RoutingPolicy
from reach_worker.core.tags import TagTable
from reach_worker.errors import Problem


@dataclass(frozen=True, slots=True)
class Reading:
    """What the files say. ``None`` where they cannot be read as what they should be: then what was known stays.

    ``manifests`` by file; ``broken``: files that hold none; ``gone``: that their folder is not there. ``later``: settings
    that take effect at the next start only.
    """

    manifests: Mapping[str, Manifest] | None
    broken: frozenset[str]
    tags: TagTable | None
    routing: RoutingPolicy | None
    gone: Problem | None = None
    problems: tuple[Problem, ...] = ()
    warnings: tuple[Problem, ...] = ()
    later: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Known:
    """What was last taken from the files."""

    manifests: Mapping[str, Manifest]
    tags: TagTable
    routing: RoutingPolicy


@dataclass(frozen=True, slots=True)
class Changed:
    """What is to be taken: new and changed manifests, ids whose file is gone, another table or policy."""

    manifests: tuple[Manifest, ...] = ()
    removed: frozenset[str] = field(default_factory=frozenset)
    tags: TagTable | None = None
    routing: RoutingPolicy | None = None

    def __bool__(self) -> bool:
        return bool(self.manifests or self.removed or self.tags or self.routing)


def take_up(known: Known, reading: Reading) -> tuple[Known, Changed]:
    """What is known now, and what is new in it. A broken file keeps the manifest that it had."""
    files = known.manifests
    if reading.manifests is not None:
        kept = {file: manifest for file, manifest in files.items() if file in reading.broken}
        files = {**kept, **reading.manifests}
    before = {manifest.id: manifest for manifest in known.manifests.values()}
    after = {manifest.id: manifest for manifest in files.values()}
    changed = Changed(
        manifests=tuple(
            manifest for _, manifest in sorted(after.items()) if _differs(before.get(manifest.id), manifest)
        ),
        removed=frozenset(before.keys() - after.keys()),
        tags=None if reading.tags in (None, known.tags) else reading.tags,
        routing=None if reading.routing in (None, known.routing) else reading.routing,
    )
    now = replace(
        known, manifests=files, tags=reading.tags or known.tags, routing=reading.routing or known.routing
    )
    return now, changed


def _differs(before: Manifest | None, after: Manifest) -> bool:
    """Whether the declaration is another one; that its tags are spelled anew does not make it one."""
    return before is None or before.hash != after.hash
