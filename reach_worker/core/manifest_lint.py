"""What is allowed in a manifest and probably not meant, alone and beside the others of its fleet."""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from reach_worker.core.document import Document
from reach_worker.core.foreign import is_foreign
from reach_worker.core.manifest import COST_RANGE, Capability, Manifest
from reach_worker.errors import Problem

SHORTEST_LATENCY_MS: Final = 10
LONGEST_LATENCY_MS: Final = 10 * 60_000
SHORTEST_TIMEOUT_MS: Final = 100
SIMILAR: Final = 0.7
"""Share of common words from which two capability texts are nearly the same."""


def manifest_warnings(manifest: Manifest, document: Document | None = None) -> list[Problem]:
    """Values that look like the wrong unit or contradict each other. ``document`` gives them their lines."""
    document = document or Document(None)
    return [
        document.located(Problem(message, f"/capabilities/{index}/{field}", hint=hint))
        for index, capability in enumerate(manifest.capabilities)
        for field, message, hint in (
            *_latency(capability),
            *_timeout(capability),
            *_cost(capability),
            *_foreign(manifest, capability),
        )
    ]


class _Doubt(NamedTuple):
    field: str
    message: str
    hint: str


def _latency(capability: Capability) -> Iterator[_Doubt]:
    latency = capability.declared_latency_ms
    if latency < SHORTEST_LATENCY_MS:
        message = f"{latency:g} ms is very short, is it in seconds?"
        yield _Doubt("latency_ms", message, f"{latency:g} s is latency_ms: {latency * 1000:g}")
    elif latency > LONGEST_LATENCY_MS:
        message = f"{latency:g} ms is {latency / 60_000:.0f} minutes, is it in microseconds?"
        yield _Doubt("latency_ms", message, "latency_ms is the usual time to the answer, in milliseconds")


def _timeout(capability: Capability) -> Iterator[_Doubt]:
    timeout, latency = capability.timeout_ms, capability.declared_latency_ms
    if timeout is None:
        return
    if timeout < SHORTEST_TIMEOUT_MS:
        message = f"{timeout} ms is very short, is it in seconds?"
        yield _Doubt("timeout_ms", message, f"{timeout} s is timeout_ms: {timeout * 1000}")
    elif timeout < latency and "declared_latency_ms" in capability.model_fields_set:
        message = f"attempts end after {timeout} ms and usually take {latency:g} ms"
        yield _Doubt("timeout_ms", message, "most attempts would time out; raise timeout_ms above latency_ms")


def _cost(capability: Capability) -> Iterator[_Doubt]:
    cost, (least, most) = capability.declared_cost, COST_RANGE
    if not least <= cost <= most:
        message = f"{cost:g} is outside {least:g}-{most:g} and counts as {capability.cost:g}"
        yield _Doubt("cost", message, "cost is relative; money belongs in price")


def _foreign(manifest: Manifest, capability: Capability) -> Iterator[_Doubt]:
    """Its workers say neither that they are there nor that they begin."""
    if not is_foreign(manifest):
        return
    if capability.timeout_ms is None:
        message = "a worker that only consumes is given up after this time, and none is declared"
        yield _Doubt("id", message, "declare timeout_ms: the longest time from task to reply")
    if capability.side_effects:
        message = "a worker that only consumes does not say when it begins: what may have run needs a person"
        yield _Doubt(
            "side_effects",
            message,
            "run it with `adapter: {kind: queue}`, and what never began is tried again",
        )


def fleet_warnings(
    manifests: Sequence[Manifest], documents: Mapping[str, Document] | None = None
) -> list[Problem]:
    """What only the whole fleet shows. ``documents`` by agent id give the warnings their places."""
    homes = _homes(manifests)
    found = [*_only_one(homes), *_near_duplicates(homes)]
    nowhere = Document(None)
    return [(documents or {}).get(home.agent_id, nowhere).located(problem) for home, problem in found]


class _Home(NamedTuple):
    """Where a capability is declared."""

    agent_id: str
    position: int
    capability: Capability

    def problem(self, message: str, field: str, hint: str) -> "tuple[_Home, Problem]":
        return self, Problem(message, f"/capabilities/{self.position}/{field}", hint=hint)


def _homes(manifests: Sequence[Manifest]) -> dict[str, list[_Home]]:
    """The capabilities of the fleet by id, each with its agents; all in the order of ids."""
    homes: defaultdict[str, list[_Home]] = defaultdict(list)
    for manifest in sorted(manifests, key=lambda manifest: manifest.id):
        for index, capability in enumerate(manifest.capabilities):
            homes[capability.id].append(_Home(manifest.id, index, capability))
    return dict(sorted(homes.items()))


def _only_one(homes: Mapping[str, list[_Home]]) -> Iterator[tuple[_Home, Problem]]:
    for capability_id, agents in homes.items():
        if len(agents) == 1:
            message = f"only agent {agents[0].agent_id!r} has the capability {capability_id!r}"
            hint = "while it is away such tasks wait, and a failed one can be retried nowhere else"
            yield agents[0].problem(message, "id", hint)


def _near_duplicates(homes: Mapping[str, list[_Home]]) -> Iterator[tuple[_Home, Problem]]:
    """One warning for each capability whose text is nearly that of one before it."""
    seen: list[tuple[str, frozenset[str]]] = []
    for capability_id, (home, *_) in homes.items():
        words = _words(home.capability)
        likeness, other = max(((_jaccard(words, known), name) for name, known in seen), default=(0.0, ""))
        if likeness >= SIMILAR:
            message = (
                f"the text of {capability_id!r} is nearly that of {other!r} ({likeness:.0%} the same words)"
            )
            hint = "say in each description what only this one does, or make them one capability"
            yield home.problem(message, "description" if home.capability.description else "id", hint)
        seen.append((capability_id, words))


def _words(capability: Capability) -> frozenset[str]:
    """The words of name and description; scripts that do not part their words count by character."""
    text = f"{capability.title} {capability.description}".casefold()
    return frozenset(re.findall(r"[^\W_\u2e80-\u9fff\uac00-\ud7af]+|[\u2e80-\u9fff\uac00-\ud7af]", text))


def _jaccard(one: frozenset[str], other: frozenset[str]) -> float:
    both = one | other
    return len(one & other) / len(both) if both else 0.0
