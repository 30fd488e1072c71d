"""Walking `try` and `with`.

In: one of these statements. Out: whether the walk gets to its end. What always holds: what runs at the end of a
statement is walked for every way of leaving it; inside a statement that would catch an exception, code of which it is
not known whether it raises is refused.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from ingot.frontend.jit.proof.domain.abstract_values import (
    NONE,
    AbstractValue,
    Determined,
    Known,
    Raised,
    Refused,
    Tuple,
    WalkState,
)
from ingot.frontend.jit.proof.semantics import torch_names
from ingot.frontend.jit.proof.walk import expressions

if TYPE_CHECKING:
    from ingot.frontend.jit.proof.walk.walker import Walker


def run_try(walker: Walker, node: ast.Try) -> bool:
    def body() -> bool:
        return _run_caught(walker, node) if node.handlers else _run_else(walker, node)

    if not node.finalbody:
        return body()
    leaving = (ast.Return, ast.Break, ast.Continue)
    if any(isinstance(child, leaving) for statement in node.finalbody for child in ast.walk(statement)):
        walker.refuse("leaves a 'finally' early, which drops exceptions")
    return _finally(walker, body, lambda: walker.run(node.finalbody))


def _run_else(walker: Walker, node: ast.Try) -> bool:
    return walker.run(node.body) and walker.run(node.orelse)


def _run_caught(walker: Walker, node: ast.Try) -> bool:
    lets_operations = _lets_operations(walker, node)
    walker.tries += 1
    walker.open_tries += lets_operations
    depth = len(walker.stack)
    exits = list(walker.frame.exits)
    try:
        ends = walker.run(node.body)
    except Raised as raised:
        assert len(walker.stack) == depth
        walker.tries -= 1
        walker.open_tries -= lets_operations
        if len(walker.frame.exits) != len(exits):
            walker.refuse("leaves a 'try' in more than one way")
        return _handle(walker, node, raised)
    except BaseException:
        walker.tries -= 1
        walker.open_tries -= lets_operations
        raise
    walker.tries -= 1
    walker.open_tries -= lets_operations
    return ends and walker.run(node.orelse)


def _lets_operations(walker: Walker, node: ast.Try) -> bool:
    """Whether a statement catches no exception that an operation raises because of values. It raises
    NotImplementedError for types and devices, which are the same at each call like the recorded one."""
    names = [handler.type.id if isinstance(handler.type, ast.Name) else "" for handler in node.handlers]
    if set(names) != {NotImplementedError.__name__}:
        return False
    return all(
        isinstance(value, Known) and value.value is NotImplementedError
        for value in (walker.evaluate(handler.type) for handler in node.handlers if handler.type is not None)
    )


def _handle(walker: Walker, node: ast.Try, raised: Raised) -> bool:
    for handler in node.handlers:
        if handler.type is not None:
            value = walker.evaluate(handler.type)
            classes = walker.sequence(value) if isinstance(value, Tuple) else [value]
            for one in classes or []:
                if not isinstance(one, Known):
                    walker.refuse("catches exceptions of classes that are not known")
            if not issubclass(raised.cls, tuple(one.value for one in classes or [])):  # type: ignore[attr-defined]
                continue
        if handler.name:
            if raised.value is None or isinstance(raised.value, Known):
                raised.value = walker.new(raised.cls, attributes={})
            expressions.store(walker, handler.name, raised.value)
        return walker.run(handler.body)
    raise raised


def _finally(walker: Walker, body: Callable[[], bool], last: Callable[[], bool]) -> bool:
    """Walks a piece of code, and another one at every way of leaving it."""
    frame = walker.frame
    outer, frame.exits = frame.exits, []
    try:
        ends = body()
    except Raised:
        if not frame.exits:
            frame.exits = outer
            last()
            raise
        walker.may_raise()  # another branch has left: this one is not the one that runs
        ends = False
    leaving, frame.exits = frame.exits, outer
    return _run_last(walker, last, leaving, ends)


def _run_last(walker: Walker, last: Callable[[], bool], leaving: list[tuple[str, WalkState, Any]], ends: bool) -> bool:
    """Walks the last part of a statement for every way of leaving it, and for its end if the walk gets there."""
    paths = leaving + ([("end", walker.state, NONE)] if ends else [])
    ends, is_left, error = False, False, None
    end = walker.state
    for kind, state, value in paths:
        walker.state = state
        try:
            is_through = last()
        except Raised as raised:
            error = raised
            continue
        is_left = True
        if is_through and kind == "end":
            ends, end = True, walker.state
        elif is_through:
            walker.frame.exits.append((kind, walker.state, value))
    walker.state = end
    if error is not None:
        if len(paths) > 1:
            walker.may_raise()
        if not is_left:
            raise error
    return ends


# --- with -------------------------------------------------------------------------------------------------------------


def run_with(walker: Walker, node: ast.With) -> bool:
    return _with(walker, node, 0)


def _with(walker: Walker, node: ast.With, index: int) -> bool:
    if index == len(node.items):
        return walker.run(node.body)
    context = walker.evaluate(node.items[index].context_expr)
    target = node.items[index].optional_vars
    cls = walker.class_of(context)
    if cls in torch_names.SETTINGS:
        walker.changes_settings = True
        return _setting(walker, node, index, context, target)
    enter, leave = walker.method(context, "__enter__"), walker.method(context, "__exit__")
    if enter is None or leave is None:
        walker.refuse("enters a context that is not understood")
    entered = walker.call(enter, [])
    if target is not None:
        walker.assign(target, entered)
    catches = _catches(walker, leave)
    walker.tries += catches
    try:
        return _finally(walker, lambda: _with(walker, node, index + 1), lambda: _left(walker, leave))
    finally:
        walker.tries -= catches


def _catches(walker: Walker, leave: AbstractValue) -> bool:
    """Whether a context may suppress an exception that is raised inside."""
    before, walker.state = walker.state, walker.state.copy()
    tries, walker.tries = walker.tries, 0
    try:
        with walker.answers.unasked():
            return walker.truth(walker.call(leave, [Determined(), Determined(), Determined()])) is not False
    except (Refused, Raised):
        return True
    finally:
        walker.state, walker.tries = before, tries


def _setting(walker: Walker, node: ast.With, index: int, context: AbstractValue, target: ast.expr | None) -> bool:
    if target is not None:
        walker.assign(target, context)
    before = walker.is_autocast
    walker.is_autocast = before or walker.class_of(context) is torch.autocast
    try:
        return _with(walker, node, index + 1)
    finally:
        walker.is_autocast = before


def _left(walker: Walker, leave: AbstractValue) -> bool:
    walker.call(leave, [NONE, NONE, NONE])
    return True
