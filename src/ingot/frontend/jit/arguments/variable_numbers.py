"""Numbers that were passed and only feed arithmetic on tensors: they may change without a new recording.

Two things must hold, one seen in the function's text and one while it runs. In the text, every use of the parameter is
an operand of + - * / or an argument of a few functions of torch, so that its value decides nothing. While it runs, an
equal number that is marked stands for it: the recording sees to which functions of torch it is handed, and notices
other code that asks for its value.
"""

from __future__ import annotations

import ast
import inspect
import linecache
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import torch

from ingot.frontend.jit.arguments.structure import LEAF, Shape

_ARITHMETIC = (ast.Add, ast.Sub, ast.Mult, ast.Div)
_FUNCTIONS = frozenset(
    (
        *("add", "sub", "subtract", "mul", "multiply", "div", "divide", "true_divide", "rsub", "addcmul", "addcdiv"),
        *("lerp", "clamp", "clip", "clamp_min", "clamp_max", "where", "masked_fill", "full_like", "leaky_relu", "elu"),
        *("celu", "hardtanh", "threshold", "softplus", "layer_norm", "group_norm", "rms_norm"),
    )
)
"""Functions of torch that hand any number on to one operator."""
_SEES_ALL = frozenset({"locals", "vars", "eval", "exec", "dir", "_getframe", "currentframe"})
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef, ast.comprehension)


def arithmetic_parameters(function: Callable[..., Any]) -> frozenset[str]:
    """The parameters of a function that may be numbers given at every call; none if its text cannot be had."""
    plain = function.__func__ if isinstance(function, types.MethodType) else function
    if not isinstance(plain, types.FunctionType):
        return frozenset()
    found = _PARAMETERS.get(plain)
    if found is None:
        found = _PARAMETERS[plain] = _arithmetic_parameters(plain)
    return found


_PARAMETERS: WeakKeyDictionary[types.FunctionType, frozenset[str]] = WeakKeyDictionary()
"""For functions that are still alive."""


def positions_of(names: frozenset[str], function: Callable[..., Any], shape: Shape) -> dict[int, int | str]:
    """Where these parameters are among the leaves of a call's arguments: by leaf, its position or keyword."""
    ordered = positional_names(function)
    found: dict[int, int | str] = {}
    leaf = 0
    passed, named = shape.parts
    for position, part in enumerate(passed.parts):
        if part is LEAF and position < len(ordered) and ordered[position] in names:
            found[leaf] = position
        leaf += _leaves(part)
    for name, part in zip(named.context, named.parts, strict=True):
        if part is LEAF and name in names:
            found[leaf] = name
        leaf += _leaves(part)
    return found


def positional_names(function: Callable[..., Any]) -> Sequence[str]:
    """The names of the parameters that can be passed by position; none for an object that is no function."""
    plain = function.__func__ if isinstance(function, types.MethodType) else function
    if not isinstance(plain, types.FunctionType):
        return ()
    code = plain.__code__
    return code.co_varnames[int(plain is not function) : code.co_argcount]


def _leaves(shape: Shape) -> int:
    return 1 if shape.kind is None else sum(map(_leaves, shape.parts))


# --- in the text ------------------------------------------------------------------------------------------------------


def _arithmetic_parameters(function: types.FunctionType) -> frozenset[str]:
    definition = _definition(function)
    if definition is None:
        return frozenset()
    code = function.__code__
    names = set(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount])
    parents = {child: parent for parent in ast.walk(definition) for child in ast.iter_child_nodes(parent)}
    for node in ast.walk(definition):
        word = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else None
        if word in _SEES_ALL:
            return frozenset()
        names.difference_update(_bound_again(node, definition))
        if isinstance(node, ast.Name) and node.id in names and not _is_arithmetic(node, parents, definition, function):
            names.discard(node.id)
    return frozenset(names)


def _definition(function: types.FunctionType) -> ast.FunctionDef | None:
    """The text of a function, parsed; None if it cannot be had or is not the text of this code."""
    code = function.__code__
    try:
        text = _text(function)
        tree = ast.parse(f"if True:\n{text}" if text[:1].isspace() else text)  # indented, its strings stay as they are
        compiled = compile(tree, "<text>", "exec", dont_inherit=True)
    except (OSError, TypeError, SyntaxError, ValueError):
        return None
    definition = tree.body[0].body[0] if isinstance(tree.body[0], ast.If) else tree.body[0]
    if not isinstance(definition, ast.FunctionDef) or definition.name != code.co_name:
        return None
    candidates = (value for value in compiled.co_consts if isinstance(value, types.CodeType))
    is_same = any(_words(candidate) == _words(code) for candidate in candidates)
    return definition if is_same else None


def _text(function: types.FunctionType) -> str:
    """The lines of a function. Its globals are at hand: `inspect.getsource` looks through all modules for them."""
    code = function.__code__
    linecache.checkcache(code.co_filename)
    lines = linecache.getlines(code.co_filename, function.__globals__)
    if not lines:
        raise OSError(f"there is no text of {code.co_name}")
    return "".join(inspect.getblock(lines[code.co_firstlineno - 1 :]))


def _words(code: types.CodeType) -> tuple[Any, ...]:
    """What tells one version of a function's text from another, wherever the function stands."""
    free = code.co_freevars + code.co_cellvars
    constants = sorted(repr(value) for value in code.co_consts if not isinstance(value, types.CodeType))
    names = {*code.co_names, *free} - {"__class__"}
    return code.co_name, code.co_varnames, code.co_argcount, code.co_kwonlyargcount, names, constants


def _bound_again(node: ast.AST, definition: ast.FunctionDef) -> set[str]:
    """Names that a node binds, or takes along into a scope of its own."""
    if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
        return {node.id}
    if isinstance(node, ast.Global | ast.Nonlocal):
        return set(node.names)
    if isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
        return {node.name}
    if isinstance(node, ast.MatchMapping) and node.rest:
        return {node.rest}
    if isinstance(node, ast.alias):
        return {(node.asname or node.name).split(".")[0]}
    if isinstance(node, _SCOPES) and node is not definition:
        inner = {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}
        return inner | {one.arg for one in ast.walk(node) if isinstance(one, ast.arg)} | {getattr(node, "name", "")}
    return set()


def _is_arithmetic(
    use: ast.Name, parents: Mapping[ast.AST, ast.AST], definition: ast.FunctionDef, function: types.FunctionType
) -> bool:
    parent = parents[use]
    if isinstance(parent, ast.BinOp):
        return isinstance(parent.op, _ARITHMETIC)
    if isinstance(parent, ast.AugAssign):
        return isinstance(parent.op, _ARITHMETIC) and parent.value is use
    if isinstance(parent, ast.keyword):
        parent = parents[parent] if parent.arg is not None else definition
    return isinstance(parent, ast.Call) and parent.func is not use and _is_torchs(parent.func, function)


def _is_torchs(called: ast.expr, function: types.FunctionType) -> bool:
    """Whether an expression is one of torch's functions, reached through the name of a module of torch."""
    path: list[str] = []
    while isinstance(called, ast.Attribute):
        path.insert(0, called.attr)
        called = called.value
    if not isinstance(called, ast.Name) or not path or path[-1] not in _FUNCTIONS:
        return False
    found: Any = function.__globals__.get(called.id)
    for name in path[:-1]:
        found = getattr(found, name, None) if isinstance(found, types.ModuleType) else None
    is_local = (
        called.id in function.__code__.co_varnames + function.__code__.co_freevars + function.__code__.co_cellvars
    )
    return found in (torch, torch.nn.functional) and not is_local


# --- while it runs ----------------------------------------------------------------------------------------------------


class MarkedArguments:
    """The arguments of a call, with equal but marked ones in place of numbers that may vary."""

    def __init__(self, positions: Mapping[int, int | str], args: Sequence[Any], kwargs: Mapping[str, Any]):
        self.looked_at: set[int] = set()
        self.args = list(args)
        self.kwargs = dict(kwargs)
        for leaf, place in positions.items():
            given: Any = self.args if isinstance(place, int) else self.kwargs
            kind = _KINDS.get(type(given[place]))
            if kind is not None:
                given[place] = kind(given[place])
                given[place].looked_at, given[place].leaf = self.looked_at, leaf


class Marked:
    """A number that knows its place among the arguments. Torch takes it as it is, everything else is noticed."""

    looked_at: set[int]
    leaf: int


def marks_in(args: Sequence[Any], kwargs: Mapping[str, Any]) -> frozenset[int]:
    """The places of the marked numbers among what a function of torch is given."""
    return frozenset(value.leaf for value in (*args, *kwargs.values()) if isinstance(value, Marked))


class _Float(Marked, float): ...


class _Int(Marked, int): ...


_KINDS: dict[type, Any] = {float: _Float, int: _Int}

_TELLING = """__add__ __radd__ __sub__ __rsub__ __mul__ __rmul__ __truediv__ __rtruediv__ __floordiv__ __rfloordiv__
    __mod__ __rmod__ __pow__ __rpow__ __divmod__ __rdivmod__ __lt__ __le__ __gt__ __ge__ __eq__ __ne__ __bool__ __hash__
    __neg__ __abs__ __int__ __float__ __index__ __round__ __trunc__ __floor__ __ceil__ __repr__ __str__ __format__"""
"""Methods that tell something of a number's value."""


def _noticing(plain: type, name: str) -> Callable[..., Any]:
    def method(self: Any, *others: Any) -> Any:
        if any(isinstance(other, torch.Tensor) for other in others):
            return NotImplemented  # the tensor's own method takes it from here
        self.looked_at.add(self.leaf)
        return getattr(plain, name)(plain.__pos__(self), *others)

    return method


for _plain, _kind in _KINDS.items():
    _kind.__name__ = _kind.__qualname__ = _plain.__name__  # as torch says it in its errors
    for _name in _TELLING.split():
        if hasattr(_plain, _name):
            setattr(_kind, _name, _noticing(_plain, _name))
