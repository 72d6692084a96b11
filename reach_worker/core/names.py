"""The names of the queues and exchanges."""

import re
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

LONGEST: Final = 160
"""Characters of an id's part of a queue name: with prefix and kind it stays below the 255 bytes of AMQP."""


_VERSION: Final = re.compile(r"\.v\d+$")


@dataclass(frozen=True, slots=True)
class Names:
    """The names of everything under one prefix, such as ``reach.v1``."""

    prefix: str

    @property
    def tasks(self) -> str:
        """The public door: the exchange that tasks are published to."""
        return f"{self.prefix}.tasks"

    @property
    def events(self) -> str:
        """Presence and lifecycle."""
        return f"{self.prefix}.events"

    @property
    def lost(self) -> str:
        """Where the public door sends what it cannot route."""
        return f"{self.prefix}.lost"

    @property
    def intake(self) -> str:
        """Tasks as they were published."""
        return f"{self.prefix}.intake"

    @property
    def returns(self) -> str:
        """The internal way back to the routers."""
        return f"{self.prefix}.returns"

    @property
    def dlq(self) -> str:
        """Dead letters."""
        return f"{self.prefix}.dlq"

    @property
    def unmatched(self) -> str:
        """Tasks that no agent may take."""
        return f"{self.prefix}.unmatched"

    def lane(self, capability: str) -> str:
        """Tasks of one capability that wait for a slot."""
        return f"{self.prefix}.lane.{in_ascii(capability)}"

    def agent(self, agent_id: str) -> str:
        """Dispatches to one agent."""
        return f"{self.prefix}.agent.{in_ascii(agent_id)}"

    def retry(self, rung_ms: int) -> str:
        """A rung of the retry ladder."""
        return f"{self.prefix}.retry.{rung_ms}"

    def outcomes(self, router_id: str) -> str:
        """Outcomes of what one router dispatched."""
        return f"{self.prefix}.outcomes.{in_ascii(router_id)}"

    def ours(self, name: str) -> bool:
        """The name is under the prefix, in this version of the topology or another: ``reach.v1.`` and ``reach.v2.``."""
        stem = _VERSION.sub("", self.prefix)
        if stem != self.prefix:
            return re.match(rf"{re.escape(stem)}\.v\d+(?:\.|$)", name) is not None
        return name == self.prefix or name.startswith(f"{self.prefix}.")


def in_ascii(name: str) -> str:
    """An id as part of a queue's name, which the client library allows only in ASCII.

    ASCII ids stay as they are; others are written in Punycode behind ``xn--``, as in domain names (RFC 3492), and
    very long ones as a hash, and so are ASCII ids that look like such a form: two ids never share a name.
    """
    if name.isascii() and not name.startswith(("xn--", "xh--")):
        return name
    written = "xn--" + name.encode("punycode").decode("ascii")
    if len(written) <= LONGEST and not name.isascii():
        return written
    return "xh--" + blake2b(name.encode(), digest_size=16).hexdigest()
