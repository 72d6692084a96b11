"""What the demo's agents do: plain functions from a payload to a JSON-able result."""

from collections.abc import Callable, Mapping
from typing import Any

from reach_worker.demo.work import access_log, code_review, documents, report, summarize

Job = Callable[[Mapping[str, Any]], dict[str, Any]]
"""A job takes a validated payload; it raises `ValueError` where it cannot do what is asked."""

JOBS: Mapping[str, Job] = {
    "log.query": access_log.query,
    "log.count": access_log.count,
    "log.top_urls": access_log.top_urls,
    "doc.search": documents.search,
    "text.summarize": summarize.summarize,
    "text.keywords": summarize.keywords,
    "code.review": code_review.review,
    "code.metrics": code_review.metrics,
    "report.table": report.table,
}
"""Capability id to the function behind it."""
