"""Ways through a Python syntax tree that several rules share. None of them recurses."""

import ast
from collections.abc import Iterable, Iterator

Function = ast.FunctionDef | ast.AsyncFunctionDef
Scope = ast.Module | ast.ClassDef | Function | ast.Lambda
_SCOPES = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


def functions(tree: ast.AST) -> Iterator[Function]:
    """Every `def` and `async def`, nested ones too."""
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def methods(tree: ast.AST) -> set[Function]:
    """The functions that stand directly in a class and are no static methods."""
    return {
        node
        for owner in ast.walk(tree)
        if isinstance(owner, ast.ClassDef)
        for node in owner.body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not is_static(node)
    }


def is_static(function: Function) -> bool:
    """Whether it is decorated with a plain `@staticmethod`."""
    return any(isinstance(mark, ast.Name) and mark.id == "staticmethod" for mark in function.decorator_list)


def own_nodes(scope: Scope) -> Iterator[ast.AST]:
    """The nodes of a scope's body; a scope nested in it is given as one node and not entered."""
    body: Iterable[ast.AST] = [scope.body] if isinstance(scope, ast.Lambda) else scope.body
    waiting = list(body)
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, _SCOPES):
            waiting.extend(ast.iter_child_nodes(node))
        elif not isinstance(node, ast.Lambda):
            waiting.extend(node.decorator_list)


def parameters(function: Function | ast.Lambda) -> list[ast.arg]:
    """All parameters in order, `*args` and `**kwargs` included."""
    given = function.args
    starred = [arg for arg in (given.vararg, given.kwarg) if arg is not None]
    return [*given.posonlyargs, *given.args, *given.kwonlyargs, *starred]


def names(tree: ast.AST) -> Iterator[ast.Name]:
    """Every name read, written or deleted."""
    return (node for node in ast.walk(tree) if isinstance(node, ast.Name))
