"""Walking statements.

In: a list of statements. Out: whether the walk gets to their end; other ways to leave (return, break, continue) are
kept in the frame, each with the state in which it leaves. What always holds: where a condition is not known, both
branches are walked, and what they leave behind is merged.
"""

from __future__ import annotations

import ast
import builtins
import functools
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ingot.frontend.jit.proof.domain import open_sizes
from ingot.frontend.jit.proof.domain.abstract_values import (
    NONE,
    AbstractTensor,
    AbstractValue,
    Fresh,
    Iterator,
    Known,
    Raised,
    View,
    WalkState,
    is_undetermined,
    known,
    merge,
)
from ingot.frontend.jit.proof.domain.place_guards import ABSENT
from ingot.frontend.jit.proof.semantics import abstract_operators, attribute_lookup, containers
from ingot.frontend.jit.proof.walk import contexts, expressions

if TYPE_CHECKING:
    from ingot.frontend.jit.proof.walk.walker import Walker


def run(walker: Walker, body: list[ast.stmt]) -> bool:
    for node in body:
        walker.step(node)
        walker.frame.lines = node.lineno, node.end_lineno or node.lineno
        action = _STATEMENTS.get(type(node))
        if action is None:
            walker.refuse(f"has a statement that is not understood: {type(node).__name__}")
        if not action(walker, node):
            return False
    return True


def _leave(walker: Walker, kind: str, value: AbstractValue = NONE) -> bool:
    walker.frame.exits.append((kind, walker.state, value))
    return False


def _return(walker: Walker, node: ast.Return) -> bool:
    return _leave(walker, "return", NONE if node.value is None else walker.evaluate(node.value))


def _expression(walker: Walker, node: ast.Expr) -> bool:
    if not isinstance(node.value, ast.Constant):
        walker.evaluate(node.value)
    return True


# --- assignments ------------------------------------------------------------------------------------------------------


def _assign(walker: Walker, node: ast.Assign) -> bool:
    value = walker.evaluate(node.value)
    for target in node.targets:
        assign(walker, target, value)
    return True


def _annotated(walker: Walker, node: ast.AnnAssign) -> bool:
    if node.value is not None:
        assign(walker, node.target, walker.evaluate(node.value))
    return True


def _augmented(walker: Walker, node: ast.AugAssign) -> bool:
    target: Any = node.target
    if isinstance(target, ast.Name):
        current = expressions.load(walker, target.id)
        result = abstract_operators.in_place(walker, type(node.op), current, walker.evaluate(node.value))
        expressions.store(walker, target.id, result)
        return True
    base = walker.evaluate(target.value)
    if isinstance(target, ast.Attribute):
        name = expressions.mangled(walker, target.attr)
        current = walker.attribute(base, name)
        result = abstract_operators.in_place(walker, type(node.op), current, walker.evaluate(node.value))
        attribute_lookup.store(walker, base, name, result)
    else:
        key = walker.evaluate(target.slice)
        current = containers.item(walker, base, key)
        result = abstract_operators.in_place(walker, type(node.op), current, walker.evaluate(node.value))
        containers.store_item(walker, base, key, result)
    return True


def assign(walker: Walker, target: ast.expr, value: AbstractValue) -> None:
    match target:
        case ast.Name():
            expressions.store(walker, target.id, value)
        case ast.Attribute():
            name = expressions.mangled(walker, target.attr)
            attribute_lookup.store(walker, walker.evaluate(target.value), name, value)
        case ast.Subscript():
            containers.store_item(walker, walker.evaluate(target.value), walker.evaluate(target.slice), value)
        case ast.Tuple() | ast.List():
            _unpack(walker, target.elts, value)
        case _:
            walker.refuse("assigns to something that is not understood")


def _unpack(walker: Walker, targets: list[ast.expr], value: AbstractValue) -> None:
    stars = [index for index, target in enumerate(targets) if isinstance(target, ast.Starred)]
    if isinstance(value, AbstractTensor) and value.meta is None and not stars:
        items: list[AbstractValue] = [AbstractTensor(has_dtype=value.has_dtype) for _ in targets]
    elif walker.class_of(value) is not None and is_undetermined(value) and not stars:
        open_sizes.pin(walker, value)
        items = [walker.determined() for _ in targets]
    else:
        items = walker.iterate(value)
    if not stars:
        if len(items) != len(targets):
            raise Raised(ValueError, "wrong number of values to unpack")
    else:
        before, after = stars[0], len(targets) - stars[0] - 1
        if len(items) < before + after:
            raise Raised(ValueError, "not enough values to unpack")
        middle = walker.new_list(items[before : len(items) - after])
        items = [*items[:before], middle, *items[len(items) - after :]]
    for target, item in zip(targets, items, strict=True):
        assign(walker, target.value if isinstance(target, ast.Starred) else target, item)


def _delete(walker: Walker, node: ast.Delete) -> bool:
    for target in node.targets:
        match target:
            case ast.Name():
                walker.state.frames[walker.frame.identity].pop(target.id, None)
            case ast.Subscript():
                containers.delete_item(walker, walker.evaluate(target.value), walker.evaluate(target.slice))
            case ast.Attribute():
                attribute_lookup.delete(walker, walker.evaluate(target.value), expressions.mangled(walker, target.attr))
            case _:
                walker.refuse("deletes something that is not understood")
    return True


# --- branches and loops -----------------------------------------------------------------------------------------------


def _if(walker: Walker, node: ast.If) -> bool:
    outcome = expressions.condition(walker, node.test)
    if outcome is not None:
        return run(walker, node.body if outcome else node.orelse)
    return either(walker, [lambda: run(walker, node.body), lambda: run(walker, node.orelse)])


def either(walker: Walker, actions: list[Callable[[], bool]]) -> bool:
    """Walks several pieces of code, one of which runs, always the same one."""
    before, ends, error, leaves = walker.state, [], None, False
    for action in actions:
        walker.state = before.copy()
        try:
            with walker.answers.unasked():
                is_through = action()
            if is_through:
                ends.append(walker.state)
            else:
                leaves = True
        except Raised as raised:
            walker.may_raise()
            error = raised
    if leaves or error is not None:
        walker.answers.lose("which branch it takes depends on a value that is not known")
    if ends:
        walker.state = functools.reduce(merge, ends)
        return True
    if error is not None and not leaves:
        raise error
    return False


def _for(walker: Walker, node: ast.For) -> bool:
    source = walker.evaluate(node.iter)
    if isinstance(source, Fresh) and source.cls is Iterator:
        return _loop(walker, node, lambda _: containers.advance(walker, source))
    items, container = walker.iterate(source), containers.shown(source)
    before = walker.state.items.get(container.identity) if isinstance(container, Fresh) else None
    gives_keys = not isinstance(source, View) or source.kind == "keys"

    def following(count: int) -> AbstractValue | None:
        now = walker.state.items.get(container.identity) if isinstance(container, Fresh) else None
        if now is not before and not (gives_keys and containers.has_kept_keys(walker, before, now)):
            walker.refuse("changes a container while it iterates over it")
        return items[count] if count < len(items) else None

    return _loop(walker, node, following)


def _while(walker: Walker, node: ast.While) -> bool:
    def following(_: int) -> AbstractValue | None:
        walker.frame.lines = node.lineno, node.end_lineno or node.lineno
        outcome = expressions.condition(walker, node.test)
        if outcome is None:
            walker.refuse("repeats a loop for as long as something holds that is not known here")
        return NONE if outcome else None

    return _loop(walker, node, following)


def _loop(walker: Walker, node: ast.For | ast.While, following: Callable[[int], AbstractValue | None]) -> bool:
    frame, breaks, count, ended = walker.frame, [], 0, True
    outer, frame.exits = frame.exits, []
    while True:
        try:
            if (item := following(count)) is None:
                break
            ends = [walker.state] if _iteration(walker, node, item) else []
        except Raised:
            if not breaks and not frame.exits:
                frame.exits = outer
                raise
            walker.may_raise()  # another branch has left: this one is not the one that runs
            ends = []
        count += 1
        ends += [state for kind, state, _ in frame.exits if kind == "continue"]
        breaks += [state for kind, state, _ in frame.exits if kind == "break"]
        outer += [leaving for leaving in frame.exits if leaving[0] not in ("continue", "break")]
        frame.exits = []
        if not ends:
            ended = False
            break
        walker.state = functools.reduce(merge, ends)
    frame.exits = outer
    return _end_loop(walker, node, ended, breaks)


def _iteration(walker: Walker, node: ast.For | ast.While, item: AbstractValue) -> bool:
    if isinstance(node, ast.For):
        assign(walker, node.target, item)
    return run(walker, node.body)


def _end_loop(walker: Walker, node: ast.For | ast.While, ended: bool, breaks: list[WalkState]) -> bool:
    """Walks what comes after the last iteration, and merges it with the states that a `break` left behind."""
    if ended and node.orelse:
        try:
            ended = run(walker, node.orelse)
        except Raised:
            if not breaks:
                raise
            walker.may_raise()
            ended = False
    ends = breaks + ([walker.state] if ended else [])
    if ends:
        walker.state = functools.reduce(merge, ends)
    return bool(ends)


def _assert(walker: Walker, node: ast.Assert) -> bool:
    if not __debug__:
        return True
    outcome = expressions.condition(walker, node.test)
    if outcome is None:
        walker.may_raise()
    elif not outcome:
        raise Raised(AssertionError)
    return True


def _raise(walker: Walker, node: ast.Raise) -> bool:
    if node.exc is None:
        walker.refuse("raises the exception that is being handled")
    # Where no handler catches it, what it says does not matter: the call that was recorded did not raise.
    expression = node.exc.func if isinstance(node.exc, ast.Call) and not walker.tries else node.exc
    value = walker.evaluate(expression)
    cls = value.value if isinstance(value, Known) and isinstance(value.value, type) else walker.class_of(value)
    if cls is None or not issubclass(cls, BaseException):
        walker.refuse("raises something that is not understood")
    raise Raised(cls, ast.unparse(node.exc)[:80], value)


# --- definitions ------------------------------------------------------------------------------------------------------


def _function(walker: Walker, node: ast.FunctionDef) -> bool:
    value: AbstractValue = expressions.closure(walker, node)
    for decorator in reversed(node.decorator_list):
        value = walker.call(walker.evaluate(decorator), [value])
    expressions.store(walker, node.name, value)
    return True


def _import(walker: Walker, node: ast.Import) -> bool:
    for alias in node.names:
        module = _module(walker, alias.name)
        if alias.asname is None:
            expressions.store(walker, alias.name.split(".")[0], _module(walker, alias.name.split(".")[0]))
        else:
            expressions.store(walker, alias.asname, module)
    return True


def _import_from(walker: Walker, node: ast.ImportFrom) -> bool:
    name = node.module or ""
    if node.level:
        package = walker.entry(walker.frame.globals, "__package__", None, "__package__")
        if not isinstance(package, str):
            walker.refuse("imports relative to a package that is not known")
        parts = package.split(".")
        name = ".".join([*parts[: len(parts) - node.level + 1], *([name] if name else [])])
    module = _module(walker, name)
    for alias in node.names:
        if alias.name == "*":
            walker.refuse("imports every name of a module")
        try:
            value = walker.attribute(module, alias.name)
        except Raised as raised:
            raise Raised(ImportError, str(raised)) from None
        expressions.store(walker, alias.asname or alias.name, value)
    return True


def _module(walker: Walker, name: str) -> Known:
    if walker.entry(walker.frame.builtins, "__import__", ABSENT, "__import__") is not builtins.__import__:
        walker.refuse("imports with a function that is not Python's own")
    module = walker.entry(sys.modules, name, None, f"sys.modules[{name!r}]")
    if module is None:
        walker.refuse(f"imports {name}, which is not imported yet")
    return known(module, name)


def _pass(walker: Walker, node: ast.stmt) -> bool:
    return True


_STATEMENTS: dict[type, Callable[[Any, Any], bool]] = {
    ast.Return: _return,
    ast.Expr: _expression,
    ast.Assign: _assign,
    ast.AnnAssign: _annotated,
    ast.AugAssign: _augmented,
    ast.Delete: _delete,
    ast.If: _if,
    ast.For: _for,
    ast.While: _while,
    ast.Break: lambda walker, node: _leave(walker, "break"),
    ast.Continue: lambda walker, node: _leave(walker, "continue"),
    ast.Assert: _assert,
    ast.Raise: _raise,
    ast.FunctionDef: _function,
    ast.Import: _import,
    ast.ImportFrom: _import_from,
    ast.Pass: _pass,
    ast.Global: _pass,
    ast.Nonlocal: _pass,
    ast.Try: contexts.run_try,
    ast.With: contexts.run_with,
}


# --- names ------------------------------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=10_000)
def local_names(node: ast.FunctionDef | ast.Lambda) -> tuple[frozenset[str], frozenset[str]]:
    """The local variables of a function, and the names that it declares as global."""
    found: set[str] = set()
    outside: set[str] = set()
    declared: set[str] = set()
    arguments = node.args
    for group in (arguments.posonlyargs, arguments.args, arguments.kwonlyargs, [arguments.vararg, arguments.kwarg]):
        found.update(argument.arg for argument in group if argument is not None)
    body = node.body if isinstance(node.body, list) else [node.body]
    for child in body:
        _collect(child, found, outside, declared)
    return frozenset(found - outside), frozenset(declared)


def _collect(node: ast.AST, found: set[str], outside: set[str], declared: set[str]) -> None:
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            found.add(node.name)
            for part in [*node.decorator_list]:
                _collect(part, found, outside, declared)
            return
        case ast.Lambda():
            return
        case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
            found.update(child.target.id for child in ast.walk(node) if isinstance(child, ast.NamedExpr))
            return
        case ast.Global() | ast.Nonlocal():
            outside.update(node.names)
            declared.update(node.names if isinstance(node, ast.Global) else ())
        case ast.Name(ctx=ast.Store() | ast.Del()):
            found.add(node.id)
        case ast.Import() | ast.ImportFrom():
            found.update(alias.asname or alias.name.split(".")[0] for alias in node.names)
        case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
            found.add(name)
    for child in ast.iter_child_nodes(node):
        _collect(child, found, outside, declared)
