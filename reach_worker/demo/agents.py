"""The demo's seven agents, in the two styles there are: decorated functions, and a class with decorated methods.

Each has a manifest under ``config/agents``. ``reach agent reach_worker.demo.agents:summarizer`` serves one.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from reach_worker import Agent, BadRequest, Context, capability
from reach_worker.clock import SystemClock
from reach_worker.demo.work import JOBS

MANIFESTS: Final = Path(__file__).parent / "config" / "agents"

Payload = Mapping[str, Any]
Result = dict[str, Any]

log_analyzer = Agent(manifest=MANIFESTS / "log-analyzer.yaml")
log_archive = Agent(manifest=MANIFESTS / "log-archive.yaml")
doc_search = Agent(manifest=MANIFESTS / "doc-search.yaml")
summarizer = Agent(manifest=MANIFESTS / "summarizer.yaml")
flaky_summarizer = Agent(manifest=MANIFESTS / "flaky-summarizer.yaml")
report_maker = Agent(manifest=MANIFESTS / "report-maker.yaml")


def done(capability_id: str, payload: Payload) -> Result:
    """The job's result. A payload that it cannot work with is the caller's fault, and no agent's."""
    try:
        return JOBS[capability_id](payload)
    except ValueError as error:
        raise BadRequest(str(error)) from error


def look_busy(context: Context, seconds: float) -> None:
    """Take the time that real work would, for people to see it; an attempt that is to stop ends it early."""
    context.cancelled.wait(seconds)


# One function may serve several agents.


@log_archive.capability("log.query")
@log_analyzer.capability("log.query")
def log_query(payload: Payload, context: Context) -> Result:
    """The requests in an access log that pass some filters."""
    look_busy(context, 0.3)
    return done("log.query", payload)


@log_archive.capability("log.count")
@log_analyzer.capability("log.count")
def log_count(payload: Payload, context: Context) -> Result:
    """The requests in an access log, grouped."""
    look_busy(context, 0.3)
    return done("log.count", payload)


@log_analyzer.capability("log.top_urls")
def log_top_urls(payload: Payload, context: Context) -> Result:
    """The most wanted URLs of an access log."""
    look_busy(context, 0.2)
    return done("log.top_urls", payload)


@doc_search.capability("doc.search")
def search(payload: Payload, context: Context) -> Result:
    """The passages of the shipped documents that fit a query."""
    look_busy(context, 0.2)
    return done("doc.search", payload)


@summarizer.capability("text.summarize")
def summarize(payload: Payload, context: Context) -> Result:
    """The sentences that say most of what a text says."""
    look_busy(context, 0.2)
    return done("text.summarize", payload)


@summarizer.capability("text.keywords")
def keywords(payload: Payload) -> Result:
    """The words that say what a text is about."""
    return done("text.keywords", payload)


@flaky_summarizer.capability("text.summarize")
def summarize_badly(payload: Payload, context: Context) -> Result:
    """Fail, always: this agent shows what its breaker is for."""
    look_busy(context, 0.1)
    message = f"no memory left for a text of {len(payload['text'])} characters (it fails on purpose)"
    raise RuntimeError(message)


@report_maker.capability("report.table")
async def table(payload: Payload) -> Result:
    """Rows as a Markdown table. An ``async def`` runs on the worker's own loop, so it must never block."""
    await SystemClock().sleep(0.1)
    return done("report.table", payload)


class CodeReviewer(Agent):
    """The same as a class: one object, its handlers methods that share what it keeps."""

    def __init__(self) -> None:
        super().__init__(manifest=MANIFESTS / "code-reviewer.yaml")
        self.known: dict[str, Result] = {}

    @capability("code.review")
    def review(self, payload: Payload, context: Context) -> Result:
        """What is likely to be wrong in some Python source."""
        look_busy(context, 0.2)
        return done("code.review", payload)

    @capability("code.metrics")
    def metrics(self, payload: Payload) -> Result:
        """Sizes and complexity of some Python source, remembered for the shipped samples."""
        sample = payload.get("sample")
        if sample is None:
            return done("code.metrics", payload)
        if sample not in self.known:
            self.known[sample] = done("code.metrics", payload)
        return self.known[sample]


code_reviewer = CodeReviewer()

AGENTS: Final[Mapping[str, Agent]] = {
    agent.manifest.id: agent
    for agent in (
        log_analyzer,
        log_archive,
        doc_search,
        summarizer,
        flaky_summarizer,
        code_reviewer,
        report_maker,
    )
}
"""Every agent by its id."""
