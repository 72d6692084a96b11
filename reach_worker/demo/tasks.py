"""The tasks of the demo, as the bytes that go over the wire, and how each of them should end."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from reach_worker.demo.work import shipped

Ending = Literal["succeeded", "dead_letter", "unmatched"]


@dataclass(frozen=True, slots=True)
class DemoTask:
    """One task. `name` is its task id too, where it has one; `reason` is that of the dead letter."""

    name: str
    body: bytes
    expect: Ending
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class _Sketch:
    """A task before it has a number. `more` holds further top-level fields."""

    capability: str
    payload: Mapping[str, Any]
    label: str = ""
    more: Mapping[str, Any] = field(default_factory=dict)
    expect: Ending = "succeeded"
    reason: str | None = None

    def task(self, number: int) -> DemoTask:
        name = f"demo-{number:03d}-{self.label or self.capability.replace('.', '-').replace('_', '-')}"
        if self.reason == "undecodable":
            return DemoTask(name, _cut_off(_body(name, self)), self.expect, self.reason)
        return DemoTask(name, _body(name, self), self.expect, self.reason)


_BURST = {"from": "2025-03-05T14:00:00Z", "to": "2025-03-05T15:00:00Z"}
_REFUSED = _Sketch(
    "log.query",
    {"status": "many", "limit": 10},
    label="log-query-bad-status",
    expect="dead_letter",
    reason="payload_refused",
)


def demo_tasks() -> list[DemoTask]:
    """About 60 tasks in the order to publish them, with the agents' kinds of work mixed.

    Exactly one is no JSON, one has a payload that its schema refuses, and one asks for what no agent can do.
    """
    kinds = [_log_tasks(), _text_tasks(), _other_tasks(), _special_tasks()]
    return [sketch.task(number) for number, sketch in enumerate(_interleaved(kinds), start=1)]


def repaired(task: DemoTask) -> bytes:
    """The body of the task with the refused payload, corrected: same id, `5xx` in place of `many`.

    Raises:
        ValueError: any other task; there is nothing to correct.
    """
    if task.reason != _REFUSED.reason:
        message = f"{task.name} has no payload to correct"
        raise ValueError(message)
    body = json.loads(task.body)
    return _encoded({**body, "payload": {**body["payload"], "status": "5xx"}})


def _log_tasks() -> Iterator[_Sketch]:
    yield _Sketch("log.count", {"by": "status"})
    yield _Sketch("log.count", {"by": "hour", "status": "5xx", "top": 3})
    yield _Sketch("log.count", {"by": "path", "status": 404, "top": 10})
    yield _Sketch("log.count", {"by": "ip", "top": 5}, more={"domain": "ops"})
    yield _Sketch("log.count", {"by": "method", "path_prefix": "/api/"})
    yield _Sketch("log.count", {"by": "hour", "from": "2025-03-05", "to": "2025-03-06", "top": 24})
    yield _Sketch("log.count", {"by": "ip", "path_prefix": "/wp-login.php"}, more={"requires": ["日志"]})
    yield _Sketch("log.count", {"by": "status", **_BURST}, more={"domain": "audit"})
    yield _Sketch("log.count", {"by": "path", "lines": _sample_lines()}, label="log-count-own-lines")
    yield _Sketch("log.query", {"status": "5xx", **_BURST})
    yield _Sketch("log.query", {"status": 404, "path_prefix": "/products/", "limit": 5})
    yield _Sketch("log.query", {"method": "DELETE"})
    yield _Sketch("log.query", {"method": "post", "path_prefix": "/checkout", "status": "402"})
    yield _Sketch("log.query", {"path_prefix": "/admin/", "limit": 50}, more={"domain": "ops"})
    yield _Sketch("log.query", {"from": "2025-03-07T23:00:00+01:00", "limit": 3})
    yield _Sketch("log.query", {"status": 429}, more={"requires": ["归档"]}, label="log-query-archive")
    yield _Sketch("log.query", {"status": 403, "limit": 3}, more={"requires": ["实时"]})
    yield _Sketch("log.query", {"status": 400, "limit": 2}, more={"deadline_ms": 600_000})
    yield _Sketch("log.top_urls", {"top": 5})
    yield _Sketch("log.top_urls", {"top": 5, "status": "5xx"})
    yield _Sketch(
        "log.top_urls", {"top": 3, "path_prefix": "/static/"}, more={"metadata": {"team": "frontend"}}
    )
    yield _Sketch("log.top_urls", {"top": 10, **_BURST}, more={"flow_id": "demo-outage-review"})


def _text_tasks() -> Iterator[_Sketch]:
    for name, text in (*shipped.documents().items(), *shipped.texts().items()):
        label = f"text-summarize-{name.partition('.')[0]}"
        language = {"requires": ["中文"]} if "-zh" in name else {}
        yield _Sketch("text.summarize", {"text": text, "max_sentences": 3}, label, language)
    yield _Sketch("text.keywords", {"text": shipped.texts()["queue-migration.txt"], "keywords": 8})
    yield _Sketch("text.keywords", {"text": shipped.texts()["retry-storm-zh.txt"], "keywords": 5})
    yield _Sketch("text.keywords", {"text": shipped.documents()["backup-and-restore-zh.md"]})


def _other_tasks() -> Iterator[_Sketch]:
    yield _Sketch("doc.search", {"query": "rotate logs without losing lines"})
    yield _Sketch("doc.search", {"query": "故障复盘的根因", "limit": 3}, label="doc-search-zh")
    yield _Sketch("doc.search", {"query": "how long to wait before a retry"}, more={"domain": "docs"})
    yield _Sketch("doc.search", {"query": "数据库备份 恢复演练"}, label="doc-search-zh")
    yield _Sketch("doc.search", {"query": "replay dead letters after a fix", "limit": 2})
    yield _Sketch(
        "doc.search",
        {"query": "值班 告警 日志轮转"},
        more={"requires": ["文档", "中文"]},
        label="doc-search-zh",
    )
    yield from (_Sketch("code.review", {"sample": name}) for name in shipped.code_samples())
    yield _Sketch("code.review", {"source": _SOURCE, "annotations": True}, label="code-review-source")
    yield _Sketch("code.metrics", {"sample": "rule_engine.py.txt"})
    yield _Sketch("code.metrics", {"sample": "async_poller.py.txt"}, more={"requires": ["Source_Code"]})
    yield _Sketch("code.metrics", {"source": _SOURCE})
    yield _Sketch(
        "report.table", {"rows": [{"agent": "a|b", "tasks": 12, "ok": True}], "title": "Tasks by agent"}
    )
    yield _Sketch("report.table", _DAILY_REPORT, more={"requires": ["日报"]}, label="report-table-zh")
    yield _Sketch("report.table", _LATENCIES, more={"session_id": "demo-session-1"})


def _special_tasks() -> Iterator[_Sketch]:
    """What must not succeed."""
    yield _REFUSED
    yield _Sketch("log.count", {"by": "path"}, label="not-json", expect="dead_letter", reason="undecodable")
    yield _Sketch("image.paint", {"prompt": "一只在键盘上睡觉的猫"}, expect="unmatched")


_SOURCE = """\
def discount(price, customer, codes=[]):
    if customer == None or price < 0:
        return price
    for code in codes:
        if code.active and code.minimum <= price:
            price = price - code.amount
    return price
"""
_DAILY_REPORT = {
    "title": "错误日报",
    "columns": ["服务", "请求数", "错误数", "流量 GB"],
    "rows": [["结算", 1820, 91, 1.5], ["搜索 search", 40210, 12, 38.25], ["登录", 9120, 3, 0.4]],
    "totals": True,
    "decimals": 2,
}
_LATENCIES = {
    "columns": ["step", "p50_ms", "p99_ms", "note"],
    "rows": [["admit", 0.4, 2.1, None], ["bind", 0.2, 1.7, "late\nbinding"], ["settle", 0.3, 2.4, None]],
}


def _sample_lines() -> list[str]:
    """A few lines as a caller would send them, the last one broken."""
    lines = shipped.log_text().split("\n")[:25]
    return [*lines, "this is no log line"]


def _body(name: str, sketch: _Sketch) -> bytes:
    return _encoded(
        {"task_id": name, "capability": sketch.capability, "payload": dict(sketch.payload), **sketch.more}
    )


def _encoded(body: Mapping[str, Any]) -> bytes:
    return json.dumps(body, ensure_ascii=False).encode()


def _cut_off(body: bytes) -> bytes:
    """A body whose sender died half way."""
    return body[: len(body) * 2 // 3]


def _interleaved(kinds: Iterable[Iterable[_Sketch]]) -> list[_Sketch]:
    """All of them, each kind spread evenly over the whole length; the order within a kind is kept."""
    placed: list[tuple[float, int, _Sketch]] = []
    for which, kind in enumerate(kinds):
        sketches = list(kind)
        placed += [((i + 0.5) / len(sketches), which, sketch) for i, sketch in enumerate(sketches)]
    return [sketch for _, _, sketch in sorted(placed, key=lambda place: place[:2])]
