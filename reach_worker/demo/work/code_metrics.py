"""How large and how branched Python source is."""

import ast
import io
import tokenize
from dataclasses import dataclass

from reach_worker.demo.work.code_tree import Function, methods, own_nodes, parameters
from reach_worker.demo.work.fields import PayloadError

_LAYOUT = {tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
_BRANCHES = (ast.If, ast.IfExp, ast.For, ast.AsyncFor, ast.While, ast.ExceptHandler)


@dataclass(frozen=True, slots=True)
class Lines:
    """Lines by what they hold; one with code and a comment is code. `total` is the sum of the others."""

    total: int
    code: int
    comment: int
    blank: int


@dataclass(frozen=True, slots=True)
class FunctionMetrics:
    """One function; `name` is dotted from the module down, `parameters` leaves self and cls out."""

    name: str
    line: int
    lines: int
    parameters: int
    complexity: int


def line_counts(source: str) -> Lines:
    r"""Count the lines of source that parses and has `\n` line ends.

    Raises:
        PayloadError: the tokenizer and the parser disagree about the source.
    """
    code: set[int] = set()
    comments: set[int] = set()
    try:
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if token.type == tokenize.COMMENT:
                comments.add(token.start[0])
            elif token.type not in _LAYOUT:
                code.update(range(token.start[0], token.end[0] + 1))
    except (tokenize.TokenError, SyntaxError) as error:
        raise PayloadError("source", f"cannot be cut into tokens: {error}") from error
    total = source.count("\n") + (not source.endswith("\n"))
    remarks = len(comments - code)
    return Lines(total, len(code), remarks, total - len(code) - remarks)


def classes(tree: ast.Module) -> list[ast.ClassDef]:
    """Every class, nested ones too."""
    return [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]


def complexities(tree: ast.Module) -> list[FunctionMetrics]:
    """Every function by line."""
    with_self = methods(tree)
    found = [_measured(function, name, int(function in with_self)) for function, name in _named(tree)]
    return sorted(found, key=lambda function: (function.line, function.name))


def complexity(function: Function) -> int:
    """Cyclomatic complexity: decisions plus 1; a function inside is counted for itself.

    T. J. McCabe, "A Complexity Measure", IEEE Transactions on Software Engineering SE-2(4), 1976,
    pp. 308-320; as there, each condition of a compound predicate is a decision.
    """
    return 1 + sum(_decisions(node) for node in own_nodes(function))


def _decisions(node: ast.AST) -> int:
    if isinstance(node, ast.BoolOp):
        return len(node.values) - 1
    if isinstance(node, ast.comprehension):
        return 1 + len(node.ifs)
    if isinstance(node, ast.match_case):
        return int(not _always_matches(node))
    return int(isinstance(node, _BRANCHES))


def _always_matches(case: ast.match_case) -> bool:
    """`case _:` or `case name:` without a guard."""
    return case.guard is None and isinstance(case.pattern, ast.MatchAs) and case.pattern.pattern is None


def _named(tree: ast.Module) -> list[tuple[Function, str]]:
    """Every function with its dotted name."""
    found: list[tuple[Function, str]] = []
    waiting: list[tuple[ast.AST, str]] = [(tree, "")]
    while waiting:
        node, prefix = waiting.pop()
        for child in ast.iter_child_nodes(node):
            inner = prefix
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                inner = f"{prefix}{child.name}."
                if not isinstance(child, ast.ClassDef):
                    found.append((child, f"{prefix}{child.name}"))
            waiting.append((child, inner))
    return found


def _measured(function: Function, name: str, implicit: int) -> FunctionMetrics:
    """Measure one function; `implicit` is 1 where the first parameter is self or cls."""
    return FunctionMetrics(
        name=name,
        line=function.lineno,
        lines=(function.end_lineno or function.lineno) - function.lineno + 1,
        parameters=max(0, len(parameters(function)) - implicit),
        complexity=complexity(function),
    )
