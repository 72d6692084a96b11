"""What is different between two declarations, in a few words for a log."""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from reach_worker.core.manifest import Manifest
from reach_worker.core.policy import RoutingPolicy

LONGEST: Final = 60
"""Characters of a value that are shown; of a longer one it is only said that it changed."""


def manifest_changes(before: Manifest, after: Manifest) -> list[str]:
    """The fields that differ, those of capabilities that both have by the capability's id."""
    old, new = (json.loads(manifest.declaration) for manifest in (before, after))
    old_by_id, new_by_id = (
        {capability["id"]: capability for capability in data.pop("capabilities")} for data in (old, new)
    )
    both = sorted(old_by_id.keys() & new_by_id.keys())
    return [
        *_differences(old, new),
        *(f"{name} {each}" for name in both for each in _differences(old_by_id[name], new_by_id[name])),
    ]


def routing_changes(before: RoutingPolicy, after: RoutingPolicy) -> list[str]:
    """The rules that differ, however they were written."""
    old, new = before.rules, after.rules
    shadows = (None if policy.shadow is None else policy.shadow.rules for policy in (before, after))
    old["shadow"], new["shadow"] = shadows
    return list(_differences(old, new))


def _differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    for name in dict.fromkeys((*before, *after)):
        old, new = before.get(name), after.get(name)
        if old != new:
            texts = [json.dumps(value, ensure_ascii=False) for value in (old, new)]
            short = all(len(text) <= LONGEST for text in texts)
            yield f"{name} {' → '.join(texts)}" if short else f"{name} changed"
