"""Walking expressions.

In: an expression. Out: its abstract value. What always holds: parts are walked in the order in which Python evaluates
them; an expression with plain values alone is computed.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ingot.frontend.jit.proof.domain.abstract_values import (
    NONE,
    AbstractValue,
    Bound,
    Closure,
    Determined,
    Frame,
    Iterator,
    Known,
    Raised,
    is_undetermined,
    known,
    plain,
    tuple_of,
)
from ingot.frontend.jit.proof.domain.place_guards import ABSENT, CellContents
from ingot.frontend.jit.proof.semantics import abstract_operators, containers

if TYPE_CHECKING:
    from ingot.frontend.jit.proof.walk.walker import Walker


def evaluate(walker: Walker, node: ast.expr) -> AbstractValue:
    walker.step(node)
    action = _EXPRESSIONS.get(type(node))
    if action is None:
        walker.refuse(f"has an expression that is not understood: {type(node).__name__}")
    return action(walker, node)


def condition(walker: Walker, node: ast.expr) -> bool | None:
    """Whether an expression counts as true where Python branches by it; None if that is not known, but always the same.
    Python asks each operand of `and`, `or` and a chain of comparisons once there; of a value, the result once more.
    """
    match node:
        case ast.UnaryOp(op=ast.Not()):
            outcome = condition(walker, node.operand)
            return None if outcome is None else not outcome
        case ast.BoolOp():
            walker.step(node)
            return _boolean_condition(walker, node, 0)
        case ast.Compare() if len(node.ops) > 1:
            walker.step(node)
            return _compare_condition(walker, node, 0, evaluate(walker, node.left))
    return walker.truth(evaluate(walker, node))


def _boolean_condition(walker: Walker, node: ast.BoolOp, index: int) -> bool | None:
    stops = isinstance(node.op, ast.Or)
    outcome = condition(walker, node.values[index])
    if index == len(node.values) - 1 or outcome is stops:
        return outcome
    if outcome is not None:
        return _boolean_condition(walker, node, index + 1)
    return _either(walker, stops, lambda: _boolean_condition(walker, node, index + 1))


def _compare_condition(walker: Walker, node: ast.Compare, index: int, left: AbstractValue) -> bool | None:
    right = evaluate(walker, node.comparators[index])
    outcome = walker.truth(abstract_operators.compare(walker, type(node.ops[index]), left, right))
    if index == len(node.ops) - 1 or outcome is False:
        return outcome
    if outcome is not None:
        return _compare_condition(walker, node, index + 1, right)
    return _either(walker, False, lambda: _compare_condition(walker, node, index + 1, right))


def _either(walker: Walker, outcome: bool, rest: Callable[[], bool | None]) -> bool | None:
    """Either this outcome or the one of what comes after, always the same of the two."""

    def other() -> AbstractValue:
        found = rest()
        return Determined(bool) if found is None else Known(found)

    return walker.truth(walker.fork([lambda: Known(outcome), other]))


# --- names ------------------------------------------------------------------------------------------------------------


def mangled(walker: Walker, name: str) -> str:
    """A name as Python spells it inside a class."""
    around = walker.frame.class_name
    if around is None or not name.startswith("__") or name.endswith("__"):
        return name
    return f"_{around.lstrip('_')}{name}"


def _name(walker: Walker, node: ast.Name) -> AbstractValue:
    return load(walker, node.id)


def load(walker: Walker, name: str) -> AbstractValue:
    name = mangled(walker, name)
    frame: Frame | None = walker.frame
    while frame is not None and name not in frame.global_names:
        if name in frame.names:
            value = walker.state.frames[frame.identity].get(name)
            if value is None:
                walker.refuse(f"reads the variable {name!r}, which may not be set")
            return value
        if name in frame.cells:
            return _cell(walker, frame.cells[name], name)
        frame = frame.parent
    return _global(walker, name)


def _cell(walker: Walker, cell: Any, name: str) -> AbstractValue:
    try:
        value = cell.cell_contents
    except ValueError:
        walker.refuse(f"reads the variable {name!r}, which is not set")
    walker.guard((CellContents, id(cell)), lambda: CellContents(cell, value, name))
    return known(value, name)


def _global(walker: Walker, name: str) -> AbstractValue:
    frame = walker.frame
    value = walker.entry(frame.globals, name, ABSENT, name)
    if value is ABSENT:
        value = walker.entry(frame.builtins, name, ABSENT, name)
        if value is ABSENT:
            raise Raised(NameError, f"name {name!r} is not defined")
    return known(value, name)


def store(walker: Walker, name: str, value: AbstractValue) -> None:
    name = mangled(walker, name)
    frame: Frame | None = walker.frame
    while frame is not None and name not in frame.global_names:
        if name in frame.names:
            names = walker.state.frames[frame.identity]
            # A variable that was not set before cannot have been read ahead of time.
            walker.mutations += frame.is_captured and name in names
            names[name] = value
            return
        frame = frame.parent
    walker.refuse(f"sets the variable {name!r}, which is not its own")


# --- simple expressions -----------------------------------------------------------------------------------------------


def _constant(walker: Walker, node: ast.Constant) -> AbstractValue:
    return Known(node.value)


def _attribute(walker: Walker, node: ast.Attribute) -> AbstractValue:
    value = evaluate(walker, node.value)
    walker.line = node.end_lineno or node.lineno
    return walker.attribute(value, mangled(walker, node.attr))


def _subscript(walker: Walker, node: ast.Subscript) -> AbstractValue:
    return containers.item(walker, evaluate(walker, node.value), evaluate(walker, node.slice))


def _slice(walker: Walker, node: ast.Slice) -> AbstractValue:
    parts = [NONE if part is None else evaluate(walker, part) for part in (node.lower, node.upper, node.step)]
    return tuple_of(parts, slice)


def _elements(walker: Walker, nodes: list[ast.expr]) -> list[AbstractValue]:
    values: list[AbstractValue] = []
    for node in nodes:
        if isinstance(node, ast.Starred):
            values += walker.iterate(evaluate(walker, node.value))
        else:
            values.append(evaluate(walker, node))
    return values


def _dict(walker: Walker, node: ast.Dict) -> AbstractValue:
    entries: dict[Any, AbstractValue] = {}
    for key, value in zip(node.keys, node.values, strict=True):
        if key is None:
            entries.update(containers.mapping(walker, evaluate(walker, value)))
        else:
            where = containers.hashed(walker, evaluate(walker, key))
            entries[where] = evaluate(walker, value)
    return walker.new(dict, entries)


def _set(walker: Walker, node: ast.Set) -> AbstractValue:
    return containers.new_set(walker, set, _elements(walker, node.elts))


def _call(walker: Walker, node: ast.Call) -> AbstractValue:
    function = evaluate(walker, node.func)
    args = _elements(walker, node.args)
    kwargs: dict[str, AbstractValue] = {}
    for keyword in node.keywords:
        value = evaluate(walker, keyword.value)
        if keyword.arg is not None:
            more: dict[Any, AbstractValue] = {keyword.arg: value}
        else:
            more = containers.mapping(walker, value)
        if not more.keys().isdisjoint(kwargs):
            raise Raised(TypeError, "got multiple values for a keyword argument")
        kwargs.update(more)
    walker.line = node.lineno
    return walker.call(function, args, kwargs)


# --- operators --------------------------------------------------------------------------------------------------------


def _binary(walker: Walker, node: ast.BinOp) -> AbstractValue:
    left = evaluate(walker, node.left)
    return abstract_operators.binary(walker, type(node.op), left, evaluate(walker, node.right))


def _unary(walker: Walker, node: ast.UnaryOp) -> AbstractValue:
    value = evaluate(walker, node.operand)
    if isinstance(node.op, ast.Not):
        outcome = walker.truth(value)
        return walker.determined(bool) if outcome is None else Known(not outcome)
    return abstract_operators.unary(walker, type(node.op), value)


def _boolean(walker: Walker, node: ast.BoolOp) -> AbstractValue:
    stops = isinstance(node.op, ast.Or)

    def following(index: int) -> AbstractValue:
        value = evaluate(walker, node.values[index])
        if index == len(node.values) - 1:
            return value
        outcome = walker.truth(value)
        if outcome is None:
            return walker.fork([lambda: value, lambda: following(index + 1)])
        return walker.answers.asked(value) if outcome is stops else following(index + 1)

    return following(0)


def _compare(walker: Walker, node: ast.Compare) -> AbstractValue:
    def following(index: int, left: AbstractValue) -> AbstractValue:
        right = evaluate(walker, node.comparators[index])
        result = abstract_operators.compare(walker, type(node.ops[index]), left, right)
        if index == len(node.ops) - 1:
            return result
        outcome = walker.truth(result)
        if outcome is None:
            return walker.fork([lambda: result, lambda: following(index + 1, right)])
        return following(index + 1, right) if outcome else walker.answers.asked(result)

    return following(0, evaluate(walker, node.left))


def _conditional(walker: Walker, node: ast.IfExp) -> AbstractValue:
    outcome = condition(walker, node.test)
    if outcome is None:
        return walker.fork([lambda: evaluate(walker, node.body), lambda: evaluate(walker, node.orelse)])
    return evaluate(walker, node.body if outcome else node.orelse)


def _named(walker: Walker, node: ast.NamedExpr) -> AbstractValue:
    value = evaluate(walker, node.value)
    frame = walker.frame
    while isinstance(frame.node, _COMPREHENSIONS) and frame.parent is not None:
        frame = frame.parent
    if node.target.id not in frame.names:
        walker.refuse(f"sets the variable {node.target.id!r}, which is not its own")
    walker.state.frames[frame.identity][node.target.id] = value
    return value


def _joined(walker: Walker, node: ast.JoinedStr) -> AbstractValue:
    parts = [evaluate(walker, part) for part in node.values]
    if all(map(plain, parts)):
        return Known("".join(part.value for part in parts))  # type: ignore[attr-defined]
    walker.may_raise()
    return Determined(str, is_full=any(plain(part) and part.value for part in parts))  # type: ignore[attr-defined]


def _formatted(walker: Walker, node: ast.FormattedValue) -> AbstractValue:
    value = evaluate(walker, node.value)
    layout: AbstractValue = Known("") if node.format_spec is None else evaluate(walker, node.format_spec)
    if node.conversion == -1 and not plain(value) and not is_undetermined(value):
        method = walker.method(value, "__format__")
        if not isinstance(method, Bound) or not isinstance(method.function, Known):
            walker.refuse("makes text of an object that is not understood")
        if method.function.value is not object.__format__:
            return walker.call(method, [layout])
    text = abstract_operators.text_of(walker, value, is_repr=node.conversion in (ord("r"), ord("a")))
    if not plain(layout) or not plain(text):
        return walker.determined(str)
    if node.conversion == ord("a"):
        text = Known(text.value.encode("ascii", "backslashreplace").decode())  # type: ignore[attr-defined]
    source = value if plain(value) and node.conversion == -1 else text
    try:
        return Known(format(source.value, layout.value))  # type: ignore[attr-defined]
    except (TypeError, ValueError) as error:
        raise Raised(type(error), str(error)) from None


def _capture(frame: Frame | None) -> None:
    """Notes that what is made here may read the variables of a frame, and of those around it, later."""
    while frame is not None:
        frame.is_captured, frame = True, frame.parent


def closure(walker: Walker, node: ast.FunctionDef | ast.Lambda) -> Closure:
    arguments = node.args
    defaults = [walker.evaluate(default) for default in arguments.defaults]
    pairs = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    keyword_defaults = {name.arg: walker.evaluate(default) for name, default in pairs if default is not None}
    _capture(walker.frame)
    return Closure(node, walker.frame, defaults, keyword_defaults)


# --- comprehensions ---------------------------------------------------------------------------------------------------


def _comprehension(walker: Walker, node: Any, element: Callable[[], None]) -> None:
    """Walks a comprehension in a frame of its own, as its variables are."""
    names = frozenset(
        name.id
        for part in node.generators
        for name in ast.walk(part.target)
        if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store)
    )
    around = walker.frame
    first = evaluate(walker, node.generators[0].iter)
    frame = Frame(
        node, around.globals, around.builtins, walker.new(Iterator).identity, around.file, names,
        frozenset(), around.class_name, parent=around, first=around.first,
    )  # fmt: skip
    walker.state.frames[frame.identity] = {}

    def generate(index: int, given: AbstractValue | None) -> None:
        if index == len(node.generators):
            element()
            return
        part = node.generators[index]
        if part.is_async:
            walker.refuse("iterates asynchronously")
        source = evaluate(walker, part.iter) if given is None else given
        for item in containers.each_item(walker, source):
            walker.assign(part.target, item)
            _filtered(walker, part.ifs, functools.partial(generate, index + 1, None))

    with walker.entered(frame):
        generate(0, first)


def _filtered(walker: Walker, tests: list[ast.expr], action: Callable[[], None]) -> None:
    for test in tests:
        outcome = condition(walker, test)
        if outcome is None:
            walker.refuse("filters a comprehension by something that is not known here")
        if not outcome:
            return
    action()


def _list_comprehension(walker: Walker, node: ast.ListComp) -> AbstractValue:
    values: list[AbstractValue] = []
    _comprehension(walker, node, lambda: values.append(evaluate(walker, node.elt)))
    return walker.new_list(values)


def _set_comprehension(walker: Walker, node: ast.SetComp) -> AbstractValue:
    values: list[AbstractValue] = []
    _comprehension(walker, node, lambda: values.append(evaluate(walker, node.elt)))
    return containers.new_set(walker, set, values)


def _dict_comprehension(walker: Walker, node: ast.DictComp) -> AbstractValue:
    entries: dict[Any, AbstractValue] = {}

    def element() -> None:
        key = containers.hashed(walker, evaluate(walker, node.key))
        entries[key] = evaluate(walker, node.value)

    _comprehension(walker, node, element)
    return walker.new(dict, entries)


def _generator(walker: Walker, node: ast.GeneratorExp) -> AbstractValue:
    """A generator is walked to its end at once; what takes from it makes sure that nothing has changed since."""
    values: list[AbstractValue] = []
    _capture(walker.frame)
    with walker.unchanged():
        _comprehension(walker, node, lambda: values.append(evaluate(walker, node.elt)))
    return containers.new_iterator(walker, values, is_lazy=True)


_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)

_EXPRESSIONS: dict[type, Callable[[Any, Any], AbstractValue]] = {
    ast.Constant: _constant,
    ast.Name: _name,
    ast.Attribute: _attribute,
    ast.Subscript: _subscript,
    ast.Slice: _slice,
    ast.Tuple: lambda walker, node: tuple_of(_elements(walker, node.elts)),
    ast.List: lambda walker, node: walker.new_list(_elements(walker, node.elts)),
    ast.Dict: _dict,
    ast.Set: _set,
    ast.Call: _call,
    ast.BinOp: _binary,
    ast.UnaryOp: _unary,
    ast.BoolOp: _boolean,
    ast.Compare: _compare,
    ast.IfExp: _conditional,
    ast.NamedExpr: _named,
    ast.JoinedStr: _joined,
    ast.FormattedValue: _formatted,
    ast.ListComp: _list_comprehension,
    ast.SetComp: _set_comprehension,
    ast.DictComp: _dict_comprehension,
    ast.GeneratorExp: _generator,
    ast.Lambda: lambda walker, node: closure(walker, node),
}
