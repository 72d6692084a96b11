"""The variables that a client's settings are read from."""

import os
from collections.abc import Iterator, Sequence


def environment(url: str | Sequence[str] | None, prefix: str | None) -> dict[str, str]:
    """The environment of this process, and over it what was given."""
    given = dict(_given(url, prefix))
    without = {"REACH_BROKER__URL"} if url is not None else set()
    return {name: value for name, value in os.environ.items() if name not in without} | given


def _given(url: str | Sequence[str] | None, prefix: str | None) -> Iterator[tuple[str, str]]:
    if url is not None:
        yield "REACH_AMQP_URL", url if isinstance(url, str) else ",".join(url)
    if prefix is not None:
        yield "REACH_BROKER__PREFIX", prefix
