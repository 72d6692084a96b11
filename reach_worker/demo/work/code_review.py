"""A first look at Python source: likely mistakes, and how complex its functions are."""

import ast
from collections import Counter
from collections.abc import Mapping
from typing import Any

from reach_worker.demo.work import fields, shipped
from reach_worker.demo.work.code_metrics import Lines, classes, complexities, line_counts
from reach_worker.demo.work.code_rules import RULES, Finding, Limits
from reach_worker.demo.work.fields import PayloadError

SYNTAX_ERROR = "syntax-error"
OPTIONAL_RULES = frozenset({"missing-return-annotation"})
_SEVERITIES = ("error", "warning", "info")
_ROUNDED = 2


def review(payload: Mapping[str, Any]) -> dict[str, Any]:
    """Findings in `source` (a text) or `sample` (the name of a shipped file), by line.

    Lines and columns count from 1, columns in characters. Settings: `max_parameters` (5, without self),
    `max_function_lines` (50), `annotations` (false: no findings about missing return annotations), `ignore`
    (rules to leave out). Source that does not parse has one finding, the syntax error.

    Raises:
        ValueError: no source, an unknown sample or rule, or nesting too deep to analyse.
    """
    name, source = _source(payload)
    found = _findings(source, payload)
    by_severity: Counter[str] = Counter(finding.severity for finding in found)
    return {
        "file": name,
        "findings": [
            {
                "line": finding.line,
                "column": finding.column,
                "rule": finding.rule,
                "severity": finding.severity,
                "message": finding.message,
            }
            for finding in found
        ],
        "counts": {severity: by_severity[severity] for severity in _SEVERITIES},
    }


def metrics(payload: Mapping[str, Any]) -> dict[str, Any]:
    """Lines, functions, classes and the cyclomatic complexity of every function of `source` or `sample`.

    Raises:
        ValueError: no source, an unknown sample, or source that does not parse, with line and column.
    """
    name, source = _source(payload)
    tree = _parsed(source)
    if isinstance(tree, Finding):
        raise PayloadError("source", f"line {tree.line}, column {tree.column}: {tree.message}")
    functions = complexities(tree)
    values = [function.complexity for function in functions]
    return {
        "file": name,
        "lines": _lines_shown(line_counts(source)),
        "classes": len(classes(tree)),
        "functions": [
            {
                "name": function.name,
                "line": function.line,
                "lines": function.lines,
                "parameters": function.parameters,
                "complexity": function.complexity,
            }
            for function in functions
        ],
        "max_complexity": max(values, default=None),
        "mean_complexity": round(sum(values) / len(values), _ROUNDED) if values else None,
    }


def _lines_shown(lines: Lines) -> dict[str, int]:
    return {"total": lines.total, "code": lines.code, "comment": lines.comment, "blank": lines.blank}


def _source(payload: Mapping[str, Any]) -> tuple[str, str]:
    r"""A name for the source, and the source with `\n` for every line end."""
    if "sample" in payload:
        name = fields.text(payload, "sample")
        if name not in shipped.code_samples():
            raise PayloadError("sample", f"is none of {', '.join(shipped.code_samples())}")
        source = shipped.code_samples()[name]
    else:
        name, source = "source", fields.text(payload, "source")
    return name, source.replace("\r\n", "\n").replace("\r", "\n")


def _findings(source: str, payload: Mapping[str, Any]) -> list[Finding]:
    rules = _rules(payload)
    limits = Limits(
        parameters=fields.whole(payload, "max_parameters", default=5, at_most=255),
        function_lines=fields.whole(payload, "max_function_lines", default=50, at_most=10_000),
    )
    tree = _parsed(source)
    if isinstance(tree, Finding):
        return [tree]
    lines = source.split("\n")
    found = [_in_characters(finding, lines) for rule in rules for finding in RULES[rule](tree, limits)]
    return sorted(found, key=lambda finding: (finding.line, finding.column, finding.rule, finding.message))


def _rules(payload: Mapping[str, Any]) -> list[str]:
    """The ids of the rules to apply."""
    ignored = payload.get("ignore", [])
    if not isinstance(ignored, list) or not {*RULES}.issuperset(ignored):
        raise PayloadError("ignore", f"must be a list of rules out of {', '.join(RULES)}")
    left_out = {*ignored} if fields.switch(payload, "annotations") else {*ignored, *OPTIONAL_RULES}
    return [rule for rule in RULES if rule not in left_out]


def _parsed(source: str) -> ast.Module | Finding:
    """The syntax tree, or the syntax error as a finding."""
    try:
        return ast.parse(source)
    except SyntaxError as error:
        line, column, message = error.lineno or 1, error.offset or 1, error.msg
    except (RecursionError, MemoryError):
        raise PayloadError("source", "is nested too deeply to analyse") from None
    except ValueError as error:  # a null byte before Python 3.12, a lone surrogate
        line, column, message = 1, 1, str(error)
    return Finding(max(1, line), max(1, column), SYNTAX_ERROR, "error", message)


def _in_characters(finding: Finding, lines: list[str]) -> Finding:
    """The finding with its column in characters: `ast` counts the bytes of UTF-8."""
    before = lines[finding.line - 1].encode()[: finding.column - 1]
    return finding.at_column(len(before.decode(errors="ignore")) + 1)
