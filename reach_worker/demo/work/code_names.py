"""Names in Python source: bound and never used, or hiding a builtin."""

import ast
import builtins
import re
from collections.abc import Iterator

from reach_worker.demo.work.code_tree import Function, Scope, functions, names, own_nodes, parameters

_FROM_SITE = {"copyright", "credits", "exit", "help", "license", "quit"}  # only where `site` was loaded
BUILTINS = frozenset(name for name in dir(builtins) if not name.startswith("_")) - _FROM_SITE
_NAMED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.ExceptHandler)
_WORD = re.compile(r"[^\W\d]\w*")

Position = tuple[int, int, str]
"""Line from 1, column from 0 in bytes, name."""


def unused_imports(tree: ast.Module) -> Iterator[tuple[ast.alias, str]]:
    """Imports whose name occurs nowhere else in the module: not read, not in `__all__` or an annotation.

    `import x as x` and `from m import x as x` re-export and are used by that.
    """
    used = {node.id for node in names(tree) if not isinstance(node.ctx, ast.Store)}
    used |= _listed_in_all(tree) | _in_text_annotations(tree)
    for node in ast.walk(tree):
        for alias, name in _imported(node):
            if name not in used and alias.asname != alias.name:
                yield alias, name


def unused_variables(tree: ast.Module) -> Iterator[tuple[ast.stmt | ast.expr | ast.excepthandler, str]]:
    """Local names that are assigned and never read, once per name, at the first assignment.

    Loop targets and unpacked tuples are let off, and so are names that begin with an underscore.
    """
    for function in functions(tree):
        used = _used_in(function)
        if "locals" in used:
            continue
        seen: set[str] = set()
        for node, name in sorted(_assigned(function), key=lambda pair: (pair[0].lineno, pair[0].col_offset)):
            if name not in used and name not in seen and not name.startswith("_"):
                seen.add(name)
                yield node, name


def shadowed_builtins(tree: ast.Module) -> Iterator[Position]:
    """Parameters, variables, functions, classes and imports named like a builtin; class members may be."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            for parameter in parameters(node):
                if parameter.arg in BUILTINS:
                    yield parameter.lineno, parameter.col_offset, parameter.arg
        if isinstance(node, ast.Module | ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield from (position for position in _bound(node) if position[2] in BUILTINS)


def _imported(node: ast.AST) -> Iterator[tuple[ast.alias, str]]:
    """Each name that an import binds."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            yield alias, alias.asname or alias.name.partition(".")[0]
    elif isinstance(node, ast.ImportFrom) and node.module != "__future__":
        for alias in node.names:
            if alias.name != "*":
                yield alias, alias.asname or alias.name


def _listed_in_all(tree: ast.Module) -> set[str]:
    listed: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if any(isinstance(target, ast.Name) and target.id == "__all__" for target in targets):
                listed |= _texts(node.value)
    return listed


def _in_text_annotations(tree: ast.Module) -> set[str]:
    """The words of annotations that are written as strings."""
    annotations: list[ast.expr | None] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.arg | ast.AnnAssign):
            annotations.append(node.annotation)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            annotations.append(node.returns)
    texts = {text for annotation in annotations if annotation is not None for text in _texts(annotation)}
    return {word for text in texts for word in _WORD.findall(text)}


def _texts(tree: ast.expr) -> set[str]:
    return {
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }


def _used_in(function: Function) -> set[str]:
    """Names read or deleted in the function or inside it, added to, or belonging to an outer scope."""
    used = {node.id for node in names(function) if not isinstance(node.ctx, ast.Store)}
    for node in ast.walk(function):
        if isinstance(node, ast.Global | ast.Nonlocal):
            used.update(node.names)
        elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            used.add(node.target.id)
    return used


def _assigned(function: Function) -> Iterator[tuple[ast.stmt | ast.expr | ast.excepthandler, str]]:
    """Plain assignments of the function's own body: `x = 1`, `x: int = 1`, `(x := 1)`, `as x`."""
    for node in own_nodes(function):
        if isinstance(node, ast.ExceptHandler) and node.name is not None:
            yield node, node.name
        for target in _plain_targets(node):
            if isinstance(target, ast.Name):
                yield target, target.id


def _plain_targets(node: ast.AST) -> list[ast.expr]:
    if isinstance(node, ast.Assign):
        return node.targets
    if isinstance(node, ast.NamedExpr) or (isinstance(node, ast.AnnAssign) and node.value is not None):
        return [node.target]
    if isinstance(node, ast.With | ast.AsyncWith):
        return [item.optional_vars for item in node.items if item.optional_vars is not None]
    return []


def _bound(scope: Scope) -> Iterator[Position]:
    """Every name that the scope's own body binds."""
    for node in own_nodes(scope):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.col_offset, node.id
        elif isinstance(node, _NAMED):
            yield node.lineno, node.col_offset, node.name or ""
        elif isinstance(node, ast.Import | ast.ImportFrom):
            yield from ((alias.lineno, alias.col_offset, name) for alias, name in _imported(node))
