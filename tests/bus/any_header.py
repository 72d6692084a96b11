"""Content headers as any publisher may write them, and pamqp too."""

from datetime import UTC, datetime
from typing import Any

from hypothesis import strategies as st
from pamqp.commands import Basic
from pamqp.header import ContentHeader

from tests.bus import hostile_publisher as odd

instants = st.datetimes(datetime(1970, 1, 1), datetime(2106, 2, 7), timezones=st.just(UTC))  # noqa: DTZ001 - bounds
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)
scalars = st.one_of(
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(width=32),
    texts,
    instants,
    st.binary(max_size=20).map(bytearray),
    st.none(),
    st.decimals(-(2**31), 2**31 - 1, places=0),
)
names = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
values: st.SearchStrategy[Any] = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(names, inner, max_size=4),
    max_leaves=12,
)
octets = st.integers(0, 255)
properties = st.builds(
    Basic.Properties,
    headers=st.none() | st.dictionaries(names, values, max_size=8),
    delivery_mode=st.sampled_from((None, 1, 2)),
    priority=st.none() | octets,
    timestamp=st.none() | instants,
    **{name: st.none() | texts for name in odd.TEXT_PROPERTIES if name != "cluster_id"},
)
headers = st.builds(ContentHeader, body_size=st.integers(0, 2**64 - 1), properties=properties)
