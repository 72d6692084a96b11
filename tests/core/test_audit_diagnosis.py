"""What the doctor makes of what was seen."""

from collections.abc import Iterable

import pytest

from reach_worker.core.diagnosis import (
    Finding,
    Found,
    Seen,
    Severity,
    of_declarations,
    of_fleet,
    of_names,
    of_traffic,
    of_version,
)
from reach_worker.core.diagnosis_policies import of_bindings, of_policy
from reach_worker.core.diagnosis_store import DAY_US, MB, StoreHealth, of_files, of_store
from reach_worker.core.diagnosis_times import Holding, of_clock, of_consumer_timeout
from reach_worker.core.document import Document
from reach_worker.core.manifest import Manifest, manifest_from
from reach_worker.core.names import Names
from reach_worker.core.tags import TagTable

OK, INFO, WARNING, ERROR = Severity.OK, Severity.INFO, Severity.WARNING, Severity.ERROR
NAMES = Names("reach.v1")
NOW = 1_800_000_000_000_000


def manifest(agent_id: str, *capabilities: str, timeout_ms: int | None = None) -> Manifest:
    declared = [
        {"id": each, **({} if timeout_ms is None else {"timeout_ms": timeout_ms})} for each in capabilities
    ]
    data = {"id": agent_id, "mutually_exclusive_tags": [], "capabilities": declared}
    return manifest_from(Document(data), tags=TagTable({}))


def told(findings: Iterable[Finding]) -> list[tuple[Severity, str]]:
    """Severity and place of each; every one that is not well says what to do."""
    found = list(findings)
    assert all(each.advice for each in found if each.severity is not OK)
    assert all(each.what for each in found)
    return [(each.severity, each.where) for each in found]


@pytest.mark.parametrize(
    ("version", "severity", "words"),
    [
        ("3.8.9", ERROR, "no at-least-once dead lettering"),
        ("3.9.27", ERROR, "no at-least-once dead lettering"),
        ("3.10.8", INFO, "may come back without a leader"),
        ("3.13.7", INFO, "no delivery limit unless"),
        ("4.0.5", OK, "a delivery limit of 20 unless they state one, as ours do"),
        ("4.2.0", OK, "delivery limit of 20"),
        ("4.3.1", OK, "puts no end to requeued messages"),
        ("5.0", OK, "puts no end to requeued messages"),
        ("", WARNING, "does not say its version"),
        ("rabbit", WARNING, "'rabbit'"),
    ],
)
def test_what_a_version_implies(version: str, severity: Severity, words: str) -> None:
    finding = of_version(version)

    assert finding.severity is severity
    assert words in finding.what
    assert ("requeued" in finding.what) == (version in ("4.3.1", "5.0"))


def test_missing_different_and_refused_queues() -> None:
    seen = [
        Seen(NAMES.intake, Found.MISSING),
        Seen(NAMES.agent("quick"), Found.MISSING),
        Seen(NAMES.dlq, Found.OTHER, detail="x-delivery-limit is 7, 20 is wanted"),
        Seen(NAMES.returns, Found.REFUSED, detail="ACCESS_REFUSED"),
        Seen(NAMES.unmatched, Found.AS_WANTED),
        Seen(NAMES.retry(250), Found.AS_WANTED),
    ]

    findings = list(of_declarations(seen, {NAMES.intake, NAMES.dlq}))

    assert told(findings) == [
        (ERROR, NAMES.intake),
        (WARNING, NAMES.agent("quick")),
        (ERROR, NAMES.dlq),
        (WARNING, NAMES.returns),
        (OK, "broker"),
    ]
    assert "x-delivery-limit is 7, 20 is wanted" in findings[2].what
    assert findings[-1].what.startswith("2 queues")
    assert told(of_declarations(seen[:1], {NAMES.intake})) == [(ERROR, NAMES.intake)]


@pytest.mark.parametrize(
    ("queue", "messages", "consumers", "severity", "words"),
    [
        (NAMES.intake, 0, 0, ERROR, "no router takes tasks; 0 messages waiting"),
        (NAMES.intake, 9, 1, None, ""),
        (NAMES.returns, 1, 0, ERROR, "1 message waiting, and nobody consumes"),
        (NAMES.outcomes("r1"), 2, 0, ERROR, "nobody consumes"),
        (NAMES.outcomes("r1"), 2, 1, None, ""),
        (NAMES.agent("quick"), 2, 0, WARNING, "nobody consumes"),
        (NAMES.agent("quick"), 2, 4, None, ""),
        (NAMES.lane("text.echo"), 5, 0, None, ""),
        (NAMES.lane("text.gone"), 5, 0, WARNING, "5 tasks waiting, and nobody offers this"),
        (NAMES.dlq, 3, 0, WARNING, "3 dead letters"),
        (NAMES.dlq, 0, 0, None, ""),
        (NAMES.unmatched, 1, 0, WARNING, "1 task that no agent may take"),
        (NAMES.retry(250), 7, 0, None, ""),
    ],
)
def test_messages_that_nobody_takes(
    queue: str, messages: int, consumers: int, severity: Severity | None, words: str
) -> None:
    seen = {queue: Seen(queue, Found.AS_WANTED, messages, consumers)}

    findings = list(of_traffic(seen, NAMES, {"text.echo"}))

    assert told(findings) == ([] if severity is None else [(severity, queue)])
    assert all(words in each.what for each in findings)


def test_names_that_are_not_ascii_or_hardly_fit() -> None:
    names = list(
        of_names(NAMES, [manifest("报表", "text.echo", "数据.查询"), manifest("plain", "text.echo")])
    )
    assert told(names) == [(INFO, "agent 报表"), (INFO, "capability 数据.查询")]
    assert NAMES.agent("报表") in names[0].what

    assert told(of_names(NAMES, [manifest("a", "c" * 100)])) == []
    assert told(of_names(Names("p" * 200), [manifest("a", "c")])) == [
        (WARNING, "agent a"),
        (WARNING, "capability c"),
    ]
    assert told(of_names(Names("p" * 200), [manifest("a", "c" * 100)]))[1][0] is ERROR


def test_who_is_declared_and_not_there() -> None:
    manifests = {
        each.id: each for each in (manifest("quick", "text.echo"), manifest("slow", "text.echo", "text.hold"))
    }

    assert told(of_fleet(manifests, {}, [])) == [
        (WARNING, "routers"),
        (WARNING, "agent quick"),
        (WARNING, "agent slow"),
        (WARNING, "capability text.echo"),
        (WARNING, "capability text.hold"),
    ]
    assert told(of_fleet(manifests, {"quick": {"text.echo"}}, ["r1"])) == [
        (OK, "routers"),
        (WARNING, "agent slow"),
        (WARNING, "capability text.hold"),
        (OK, "agents"),
    ]
    live = {"quick": {"text.echo"}, "slow": {"text.echo", "text.hold"}}
    assert told(of_fleet(manifests, live, ["r1"])) == [(OK, "routers"), (OK, "agents")]


@pytest.mark.parametrize(
    ("real_s", "hold_s", "pickup_s", "timeout_ms", "severities"),
    [
        (1800.0, 30.0, 60.0, 8000, [OK, OK]),
        (None, 30.0, 60.0, 8000, [INFO, OK]),
        (3600.0, 30.0, 60.0, 8000, [INFO, OK]),
        (600.0, 30.0, 60.0, 8000, [ERROR, OK]),
        (100.0, 30.0, 60.0, 8000, [ERROR, WARNING, OK]),
        (50.0, 30.0, 60.0, 8000, [ERROR, WARNING, ERROR, OK]),
        (1800.0, 30.0, 60.0, 901_000, [OK, INFO]),
        (1800.0, 30.0, 60.0, 900_000, [OK, OK]),
    ],
)
def test_the_consumer_timeout(
    real_s: float | None, hold_s: float, pickup_s: float, timeout_ms: int, severities: list[Severity]
) -> None:
    holding = Holding(1800.0, real_s, hold_s, pickup_s, attempt_s=8.0)

    findings = told(of_consumer_timeout(holding, [manifest("quick", "text.echo", timeout_ms=timeout_ms)]))

    assert [severity for severity, _ in findings] == severities


def test_a_capability_without_a_limit_has_the_usual_one() -> None:
    holding = Holding(1800.0, 1800.0, 30.0, 60.0, attempt_s=1000.0)

    *_, last = of_consumer_timeout(holding, [manifest("quick", "text.echo")])

    assert (last.severity, last.where) == (INFO, "capability text.echo of quick")
    assert list(of_consumer_timeout(holding, []))[1:] == []


@pytest.mark.parametrize(
    ("newest_us", "jumped_s", "severities"),
    [
        (None, 0.0, [OK]),
        (NOW - 5, 0.2, [OK]),
        (NOW + 1_000_000, -0.2, [OK]),
        (NOW + 60_000_000, 0.0, [ERROR]),
        (NOW, -3600.0, [WARNING]),
        (NOW + 60_000_000, 5.0, [ERROR, WARNING]),
    ],
)
def test_the_clock(newest_us: int | None, jumped_s: float, severities: list[Severity]) -> None:
    assert [severity for severity, _ in told(of_clock(NOW, newest_us, jumped_s))] == severities


@pytest.mark.parametrize(
    ("health", "severities"),
    [
        (StoreHealth("s"), [OK]),
        (StoreHealth("s", faults=None), [INFO, OK]),
        (StoreHealth("s", faults=("row 7 is missing",)), [ERROR]),
        (StoreHealth("s", unreadable="is not an SQLite database"), [ERROR]),
        (StoreHealth("s", unreadable="there is no store yet", missing=True), [WARNING]),
        (StoreHealth("s", unwritable="database is locked"), [ERROR]),
        (StoreHealth("s", free=100 * MB), [ERROR, OK]),
        (StoreHealth("s", free=500 * MB), [WARNING, OK]),
        (StoreHealth("s", free=5000 * MB), [OK]),
        (StoreHealth("s", spill_bytes=1), [WARNING, OK]),
        (StoreHealth("s", log_bytes=300 * MB), [WARNING, OK]),
        (StoreHealth("s", oldest_us=NOW - 90 * DAY_US), [OK]),
        (StoreHealth("s", oldest_us=NOW - 99 * DAY_US), [INFO, OK]),
    ],
)
def test_the_store(health: StoreHealth, severities: list[Severity]) -> None:
    assert [severity for severity, _ in told(of_store(health, NOW, 90))] == severities


@pytest.mark.parametrize(
    ("queue", "key", "value", "severity"),
    [
        (NAMES.intake, "expires", 1000, ERROR),
        (NAMES.lane("c"), "message-ttl", 1000, ERROR),
        (NAMES.retry(250), "message-ttl", 100, WARNING),
        (NAMES.dlq, "delivery-limit", 5, ERROR),
        (NAMES.intake, "delivery-limit", 5, WARNING),
        (NAMES.intake, "overflow", "drop-head", ERROR),
        (NAMES.intake, "overflow", "reject-publish", None),
        (NAMES.dlq, "dead-letter-exchange", "x", WARNING),
        (NAMES.intake, "dead-letter-exchange", "x", None),
        (NAMES.intake, "max-length", 1000, INFO),
        (NAMES.intake, "max-length-bytes", 1000, INFO),
        (NAMES.intake, "queue-leader-locator", "balanced", None),
    ],
)
def test_what_a_policy_does(queue: str, key: str, value: object, severity: Severity | None) -> None:
    findings = list(of_policy(NAMES, queue, "ops", {key: value}))

    assert told(findings) == ([] if severity is None else [(severity, queue)])
    assert all("'ops'" in each.what and key in each.what for each in findings)


def test_bindings_that_are_not_there() -> None:
    wanted = [(NAMES.tasks, NAMES.intake), (NAMES.lost, NAMES.dlq)]

    assert told(of_bindings(wanted, {*wanted, ("", NAMES.dlq)})) == []
    assert told(of_bindings(wanted, {(NAMES.tasks, NAMES.dlq), wanted[1]})) == [(ERROR, NAMES.tasks)]


def test_how_many_files_may_be_open() -> None:
    assert told([of_files(256), of_files(1024)]) == [(WARNING, "open files"), (OK, "open files")]
