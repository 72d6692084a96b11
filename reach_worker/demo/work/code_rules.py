"""The rules of a code review. Each looks at one syntax tree and gives its findings."""

import ast
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from reach_worker.demo.work.code_names import shadowed_builtins, unused_imports, unused_variables
from reach_worker.demo.work.code_tree import Function, functions, methods, own_nodes, parameters

Severity = Literal["error", "warning", "info"]

_MUTABLE_DISPLAYS = (ast.List, ast.Dict, ast.Set, ast.ListComp, ast.DictComp, ast.SetComp)
_MUTABLE_CALLS = frozenset(
    {"list", "dict", "set", "bytearray", "defaultdict", "deque", "Counter", "OrderedDict"}
)
_WAITS = (ast.Await, ast.AsyncFor, ast.AsyncWith, ast.Yield, ast.YieldFrom)


@dataclass(frozen=True, slots=True)
class Limits:
    """What counts as too many."""

    parameters: int  # without self or cls
    function_lines: int


@dataclass(frozen=True, slots=True)
class Finding:
    """One remark. Line and column count from 1."""

    line: int
    column: int
    rule: str
    severity: Severity
    message: str

    def at_column(self, column: int) -> "Finding":
        """The same remark at another column of its line."""
        return replace(self, column=column)


Remark = tuple[int, int, str]
"""Line from 1, column from 0 in bytes (as `ast` has them), message."""

Check = Callable[[ast.Module, Limits], Iterator[Remark]]
Rule = Callable[[ast.Module, Limits], Iterator[Finding]]


def _remark(node: ast.stmt | ast.expr | ast.excepthandler | ast.alias, message: str) -> Remark:
    return node.lineno, node.col_offset, message


def _bare_excepts(tree: ast.Module, _limits: Limits) -> Iterator[Remark]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ExceptHandler) and node.type is None:
            yield _remark(node, "bare except also catches KeyboardInterrupt; name what you expect")


def _swallowed_exceptions(tree: ast.Module, _limits: Limits) -> Iterator[Remark]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ExceptHandler) and all(_does_nothing(statement) for statement in node.body):
            yield _remark(node, f"{_caught(node)} is caught and forgotten; handle it, log it, or let it rise")


def _caught(handler: ast.ExceptHandler) -> str:
    match handler.type:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case None:
            return "every exception"
    return "one of several exceptions"


def _does_nothing(statement: ast.stmt) -> bool:
    is_constant = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    return is_constant or isinstance(statement, ast.Pass | ast.Continue)


def _mutable_defaults(tree: ast.Module, _limits: Limits) -> Iterator[Remark]:
    for node in ast.walk(tree):
        if isinstance(node, ast.arguments):
            for default in (*node.defaults, *node.kw_defaults):
                if default is not None and _is_mutable(default):
                    yield _remark(default, "this default is made once and shared by all calls; use None")


def _is_mutable(default: ast.expr) -> bool:
    if not isinstance(default, ast.Call):
        return isinstance(default, _MUTABLE_DISPLAYS)
    match default.func:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name in _MUTABLE_CALLS
    return False


def _unused_imports(tree: ast.Module, _limits: Limits) -> Iterator[Remark]:
    for node, name in unused_imports(tree):
        yield _remark(node, f"{name} is imported but never used")


def _unused_variables(tree: ast.Module, _limits: Limits) -> Iterator[Remark]:
    for node, name in unused_variables(tree):
        yield _remark(node, f"{name} is assigned but never read")


def _shadowed_builtins(tree: ast.Module, _limits: Limits) -> Iterator[Remark]:
    for line, column, name in shadowed_builtins(tree):
        yield line, column, f"{name} hides the builtin of that name"


def _none_comparisons(tree: ast.Module, _limits: Limits) -> Iterator[Remark]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            for operator, left, right in zip(node.ops, sides, sides[1:], strict=False):
                if isinstance(operator, ast.Eq | ast.NotEq) and (_is_none(left) or _is_none(right)):
                    better = "is" if isinstance(operator, ast.Eq) else "is not"
                    yield _remark(left, f"compare to None with `{better}`")


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _empty_f_strings(tree: ast.Module, _limits: Limits) -> Iterator[Remark]:
    specs = {id(node.format_spec) for node in ast.walk(tree) if isinstance(node, ast.FormattedValue)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr) and id(node) not in specs and not _has_placeholder(node):
            yield _remark(node, "f-string without a placeholder; drop the f")


def _has_placeholder(string: ast.JoinedStr) -> bool:
    return any(isinstance(part, ast.FormattedValue) for part in string.values)


def _evals(tree: ast.Module, _limits: Limits) -> Iterator[Remark]:
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(id="eval" | "exec" as name)):
                yield _remark(node, f"{name} runs whatever its input says")


def _too_many_parameters(tree: ast.Module, limits: Limits) -> Iterator[Remark]:
    with_self = methods(tree)
    for function in functions(tree):
        n = len(parameters(function)) - (function in with_self)
        if n > limits.parameters:
            yield _remark(function, f"{function.name} takes {n} parameters, more than {limits.parameters}")


def _long_functions(tree: ast.Module, limits: Limits) -> Iterator[Remark]:
    for function in functions(tree):
        n = (function.end_lineno or function.lineno) - function.lineno + 1
        if n > limits.function_lines:
            yield _remark(function, f"{function.name} is {n} lines long, more than {limits.function_lines}")


def _idle_asyncs(tree: ast.Module, _limits: Limits) -> Iterator[Remark]:
    for function in functions(tree):
        if isinstance(function, ast.AsyncFunctionDef) and not _waits(function) and not _is_stub(function):
            yield _remark(function, f"async {function.name} never awaits; a plain def would do")


def _waits(function: Function) -> bool:
    return any(
        isinstance(node, _WAITS) or (isinstance(node, ast.comprehension) and node.is_async)
        for node in own_nodes(function)
    )


def _is_stub(function: Function) -> bool:
    """A body of nothing but a docstring, `...`, `pass` or `raise`: a declaration for others to fill."""
    return all(_does_nothing(statement) or isinstance(statement, ast.Raise) for statement in function.body)


def _missing_returns(tree: ast.Module, _limits: Limits) -> Iterator[Remark]:
    for function in functions(tree):
        if function.returns is None:
            yield _remark(function, f"{function.name} does not say what it returns")


def _rule(name: str, severity: Severity, check: Check) -> Rule:
    def findings(tree: ast.Module, limits: Limits) -> Iterator[Finding]:
        for line, column, message in check(tree, limits):
            yield Finding(line, column + 1, name, severity, message)

    return findings


_CHECKS: tuple[tuple[str, Severity, Check], ...] = (
    ("bare-except", "error", _bare_excepts),
    ("swallowed-exception", "warning", _swallowed_exceptions),
    ("mutable-default", "error", _mutable_defaults),
    ("unused-import", "warning", _unused_imports),
    ("unused-variable", "warning", _unused_variables),
    ("shadowed-builtin", "warning", _shadowed_builtins),
    ("none-comparison", "warning", _none_comparisons),
    ("empty-f-string", "info", _empty_f_strings),
    ("eval-exec", "error", _evals),
    ("too-many-parameters", "info", _too_many_parameters),
    ("long-function", "info", _long_functions),
    ("async-without-await", "warning", _idle_asyncs),
    ("missing-return-annotation", "info", _missing_returns),
)

RULES: Mapping[str, Rule] = {name: _rule(name, severity, check) for name, severity, check in _CHECKS}
"""Rule id to rule; columns count from 1, in bytes of UTF-8."""
