"""A decision as the reach log has it: put together only when somebody looks at it, and as JSON at little cost."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import orjson

from reach_worker.core.routing import Decision

CANDIDATES: Final = "candidates"


class DecisionRecord(Mapping[str, Any]):
    """``Decision.as_dict()``, with what the shadow policy would have chosen under ``shadow`` where there is one."""

    __slots__ = ("_decision", "_head")

    def __init__(self, decision: Decision, shadow: Decision | None = None) -> None:
        self._decision = decision
        self._head = decision.head()
        if shadow is not None:
            self._head["shadow"] = shadow.summary()

    def __getitem__(self, name: str) -> Any:
        if name == CANDIDATES:
            return [candidate.as_dict() for candidate in self._decision.candidates]
        return self._head[name]

    def __iter__(self) -> Iterator[str]:
        yield from self._head
        yield CANDIDATES

    def __len__(self) -> int:
        return len(self._head) + 1

    def json(self) -> bytes:
        """The same as JSON."""
        head = orjson.dumps(self._head)[:-1]
        return b'%b,"candidates":[%b]}' % (head, b",".join([one.json() for one in self._decision.candidates]))
