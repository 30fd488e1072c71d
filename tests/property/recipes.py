"""Patterns that optimisation passes look for, drawn with whatever values a sketch has.

A uniform choice of operators would hardly ever meet them: special constants, functions that undo each other, values
combined with themselves, views and their inverses around computation, the same call with its operands exchanged.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

from ingot import DataType
from ingot.base.dtypes import FLOATS, HALVES, INTEGERS
from ingot.ops import Kind, Op, lookup, table
from ingot.ops.samples import Domain
from ingot.ops.samples import Operand as Placeholder
from tests.property.sketch import DTYPES, PUBLIC, READS_SIGN_OF_NAN, Sketch, Value

FLOATING = FLOATS | HALVES

NEUTRAL: list[Any] = [0, 0.0, -0.0, 1, 1.0, -1, -1.0, True, False]
CONSTANTS: list[Any] = [2, 2.0, 0.5, -2, 4, 8.0, 0.25, 1024, 3, 0.1, math.inf, -math.inf, math.nan, 127, -128, 255, 256]
CONSTANTS += [2**31 - 1, -(2**31), 2**63 - 1, -(2**63), 1e-40, 1e-310, 3.4e38, 1e300, 65504.0]
ARITHMETIC = ["add", "sub", "mul", "div", "maximum", "minimum", "eq", "ne", "lt", "le", "gt", "ge"]
ARITHMETIC += ["bitwise_and", "bitwise_or", "bitwise_xor"]
EXPONENTS = [0, 0.0, 0.5, 1, 1.0, 2, 2.0, 3, 4, -1, -2, -0.5, -1.0, 0.25, 1.5, math.nan, math.inf]
UNDONE = ["neg", "abs", "bitwise_not", "logical_not", "floor", "ceil", "round", "trunc", "sign", "relu", "reciprocal"]
UNDONE += ["sqrt", "exp", "log", "set", "isnan", "isfinite"]


def _constant(sketch: Sketch) -> Any:
    return sketch.random.choice(NEUTRAL if sketch.chance(0.6) else CONSTANTS)


def _binary(sketch: Sketch) -> Op:
    """Any operator of two values, those that rules are about more often."""
    return lookup(sketch.random.choice(ARITHMETIC)) if sketch.chance(0.7) else sketch.random.choice(calls_with(2))


@cache
def calls_with(operands: int) -> list[Op]:
    """Operators that a sample calls with this many tensors of one shape and nothing else: all are elementwise."""
    found = []
    for op in PUBLIC:
        assert op.samples is not None and op.signature is not None
        kinds = {parameter.kind for parameter in op.signature.parameters[:operands]}
        for sample in op.samples((2, 2))[:1]:
            plain = all(isinstance(a, Placeholder) and a.shape == (2, 2) and a.dtype is None for a in sample.arguments)
            plain = plain and not sample.keywords and kinds <= {"Operand", "Plain"}
            if plain and len(sample.arguments) == operands and op.name not in READS_SIGN_OF_NAN:
                found.append(op)
    return found


def _domain_of(op: Op, operand: int) -> Domain:
    assert op.samples is not None
    return op.samples((2, 2))[0].arguments[operand].domain


def takes_anything_second(op: Op, dtype: DataType) -> bool:
    """Whether the second operand may be anything: not for divisors, shifts and exponents of integers."""
    domain = _domain_of(op, 1)
    return not dtype.is_integer or (domain.lowest_integer is None and domain.highest_integer is None)


def with_constant(sketch: Sketch) -> None:
    """x op c and c op x, also with c spread over a tensor, and often with a second constant after it."""
    x = sketch.any_value()
    for _ in range(2):
        op = _binary(sketch)
        result = _combined(sketch, op, x, _constant(sketch))
        if result is None or sketch.chance(0.5):
            return
        x = sketch.value_of(result)
        if sketch.chance(0.5):
            _combined(sketch, op, x, _constant(sketch))
            return


def _combined(sketch: Sketch, op: Op, x: Value, constant: Any) -> Any:
    if not takes_anything_second(op, x.dtype) or not takes_anything_second(op, DataType.Int):
        domain = _domain_of(op, 1)
        if x.dtype in INTEGERS or (x.dtype is DataType.Bool and not isinstance(constant, float)):
            low, high = domain.lowest_integer or 0, domain.highest_integer or 100
            constant = sketch.random.choice([low, low + 1, high, *(2**k for k in range(8) if low <= 2**k <= high)])
        return sketch.call(op.name, x, constant)
    other: Any = constant
    if sketch.chance(0.25):
        other = _filled(sketch, x, constant)
    if other is None:
        return None
    arguments = (x, other) if sketch.chance(0.6) else (other, x)
    return sketch.call(op.name, *arguments)


def _filled(sketch: Sketch, x: Value, constant: Any) -> Any:
    """A tensor with one number everywhere, in the shape of x or in one that broadcasts to it."""
    shape = list(x.handle.shape)
    if shape and sketch.chance(0.3):
        shape = shape[1:] if sketch.chance(0.5) else [1, *shape[1:]]
    dtype = x.dtype if sketch.chance(0.7) else sketch.random.choice(DTYPES)
    return sketch.call("full", shape, constant, dtype)


def undone(sketch: Sketch) -> None:
    """Two or three functions in a row, often the same twice."""
    x: Any = sketch.any_value().handle
    first = sketch.random.choice(UNDONE)
    if sketch.chance(0.15):
        first = sketch.random.choice(calls_with(1)).name
    names = [first, first if sketch.chance(0.6) else sketch.random.choice(UNDONE)]
    for name in names + ([first] if sketch.chance(0.2) else []):
        x = x if x is None else sketch.call(name, x)


def cast_chain(sketch: Sketch) -> None:
    """Up and down again, down and up again, and any other way."""
    x: Any = sketch.any_value().handle
    original = x.dtype
    for _ in range(sketch.random.randint(1, 3)):
        family = [dtype for dtype in DTYPES if dtype.is_float == x.dtype.is_float]
        x = sketch.call("cast", x, sketch.random.choice(family if sketch.chance(0.6) else DTYPES))
        if x is not None and sketch.chance(0.15):
            x = sketch.call(sketch.random.choice(UNDONE), x)
        if x is None:
            return
    if sketch.chance(0.7):
        sketch.call("cast", x, original)


def with_itself(sketch: Sketch) -> None:
    """x - x, x / x, x < x, max(x, x) ..., also of x and a copy of it that a pass may see through."""
    x = sketch.any_value()
    other: Any = x.handle
    if sketch.chance(0.3):
        other = sketch.call(sketch.random.choice(("neg", "neg", "abs", "set", "bitwise_not")), x)
    op = _binary(sketch)
    if other is not None and takes_anything_second(op, x.dtype):
        sketch.call(op.name, *((x, other) if sketch.chance(0.5) else (other, x)))


def power(sketch: Sketch) -> None:
    """Small exponents; negative ones for floats only, as PyTorch refuses them for integers."""
    x = sketch.any_value()
    exponent = sketch.random.choice(EXPONENTS)
    if not x.dtype.is_float and not isinstance(exponent, float) and exponent < 0:
        return
    if sketch.chance(0.25):
        filled = sketch.call("full", list(x.handle.shape), abs(exponent), x.dtype)
        if filled is not None and (x.dtype.is_float or math.isfinite(exponent)):
            sketch.call("pow", x, filled)
        return
    sketch.call("pow", x, exponent)


def division(sketch: Sketch) -> None:
    """Divisors that are powers of two, of either sign.

    The smallest int32 and int64 divided by -1 end the process inside PyTorch itself, so -1 is left out for them.
    """
    x = sketch.any_value()
    divisor: Any = sketch.random.choice((1, 2, 4, 8, 16, 3, 7, -2, -4, -3, 64))
    if x.dtype in FLOATING and sketch.chance(0.5):
        divisor = sketch.random.choice((0.5, 0.25, 2.0, 1.0, -1.0, 3.0, 0.1, 2.0**-127, 2.0**127, 2.0**-1022))
    if x.dtype in (DataType.Int8, DataType.Int16) and sketch.chance(0.2):
        divisor = -1
    if x.dtype is DataType.UInt8:
        divisor = abs(divisor)
    sketch.call(sketch.random.choice(("div", "truediv", "remainder", "fmod", "mul", "mod")), x, divisor)


def choice(sketch: Sketch) -> None:
    """where(c, x, x), where(not c, x, y), where of a known condition, where of where."""
    x = sketch.any_value()
    condition: Any = sketch.pick(lambda value: value.dtype is DataType.Bool and value.shape == x.shape)
    if condition is None:
        condition = sketch.call(sketch.random.choice(("lt", "ne", "ge")), x, _constant(sketch))
    if condition is None or sketch.chance(0.15):
        condition = sketch.chance(0.5)
    elif sketch.chance(0.2):
        condition = sketch.call(sketch.random.choice(("logical_not", "bitwise_not")), condition)
    y: Any = x
    if sketch.chance(0.6):
        y = sketch.pick(lambda value: value.shape == x.shape)
    if sketch.chance(0.3):
        y = _constant(sketch)
    chosen = sketch.call("where", condition, *((x, y) if sketch.chance(0.5) else (y, x)))
    if chosen is not None and sketch.chance(0.3):
        sketch.call("where", condition, *((chosen, y) if sketch.chance(0.5) else (x, chosen)))


def exchanged(sketch: Sketch) -> None:
    """An earlier call once more with its operands the other way round, and both results together."""
    calls = [call for call in sketch.binary_calls if _is_safe_to_exchange(call)]
    if not calls:
        return
    name, x, y = sketch.random.choice(calls)
    first, second = sketch.call(name, x, y), sketch.call(name, y, x)
    if first is not None and second is not None:
        sketch.call(sketch.random.choice(("sub", "eq", "add", "maximum", "bitwise_xor")), first, second)


def _is_safe_to_exchange(call: tuple[str, Any, Any]) -> bool:
    name, x, y = call
    op = lookup(name)
    return op in calls_with(2) and takes_anything_second(op, DataType.Int) and op.samples is not None and x is not y


# --- views ------------------------------------------------------------------------------------------------------------


def view_chain(sketch: Sketch) -> None:
    """Views, perhaps with computation between them, perhaps undone in the opposite order."""
    x: Any = sketch.any_value().handle
    inverses: list[Callable[[Any], Any]] = []
    for _ in range(sketch.random.randint(1, 3)):
        step = sketch.random.choice(_VIEWS)(sketch, x)
        if step is None:
            break
        x, inverse = step
        inverses.append(inverse)
        if sketch.chance(0.35):
            computed = _computed(sketch, x)
            x = x if computed is None else computed
    if sketch.chance(0.6):
        for inverse in reversed(inverses):
            x = None if x is None else inverse(x)
    if x is not None and sketch.chance(0.3):
        _reduced(sketch, x)


def _computed(sketch: Sketch, x: Any) -> Any:
    """Something element by element that keeps the shape, on one value or two."""
    if sketch.chance(0.5):
        return sketch.call(sketch.random.choice(calls_with(1)).name, x)
    op = sketch.random.choice(
        [op for op in calls_with(2) if takes_anything_second(op, DataType.Int) and op.kind is Kind.POINTWISE]
    )
    shape = sketch.shape_of(x)
    other: Any = sketch.pick(lambda value: value.shape == shape and value.dtype is x.dtype)
    if other is None or sketch.chance(0.3):
        other = _constant(sketch)
    return sketch.call(op.name, x, other)


def _reduced(sketch: Sketch, x: Any) -> Any:
    names = [op.name for op in table().values() if op.kind in (Kind.REDUCTION, Kind.SCAN)]
    rank = len(x.shape)
    if not rank:
        return None
    name = sketch.random.choice(names)
    if lookup(name).kind is Kind.SCAN or name in ("argmax", "argmin"):
        return sketch.call(name, x, sketch.random.randrange(rank))
    axes = sketch.random.sample(range(rank), sketch.random.randint(1, rank))
    return sketch.call(name, x, axes, sketch.chance(0.3))


def _permuted(sketch: Sketch, x: Any) -> Any:
    order = sketch.random.sample(range(len(x.shape)), len(x.shape))
    inverse = [order.index(axis) for axis in range(len(order))]
    result = sketch.call("permute", x, order)
    if result is None:
        return None
    if sketch.chance(0.15):
        return result, lambda y: _if_rank(sketch, y, len(order), "reshape", list(x.shape))
    return result, lambda y: _if_rank(sketch, y, len(order), "permute", inverse)


def _reshaped(sketch: Sketch, x: Any) -> Any:
    shape = list(x.shape)
    target: list[Any]
    match sketch.random.randrange(4):
        case 0:
            target = [-1] if 0 not in sketch.shape_of(x) else [0]
        case 1:
            position = sketch.random.randint(0, len(shape))
            target = [*shape[:position], 1, *shape[position:]]
        case 2 if len(shape) > 1:
            axis = sketch.random.randrange(len(shape) - 1)
            target = [*shape[:axis], shape[axis] * shape[axis + 1], *shape[axis + 2 :]]
        case _:
            even = [axis for axis, size in enumerate(shape) if isinstance(size, int) and size and size % 2 == 0]
            if not even:
                return None
            target = [*shape[: even[0]], 2, shape[even[0]] // 2, *shape[even[0] + 1 :]]
    result = sketch.call("reshape", x, target)
    return None if result is None else (result, lambda y: _if_rank(sketch, y, len(result.shape), "reshape", shape))


def _broadcasted(sketch: Sketch, x: Any) -> Any:
    """New axes: of size 1, or repeating; undone by squeezing, slicing or reducing."""
    rank = len(x.shape)
    position = sketch.random.randint(0, rank)
    size = sketch.random.choice((1, 1, 2, 3))
    axes = [axis + (axis >= position) for axis in range(rank)]
    result = sketch.call("broadcast_in_dim", x, [*x.shape[:position], size, *x.shape[position:]], axes)
    if result is None:
        return None

    def inverse(y: Any) -> Any:
        if len(y.shape) != rank + 1:
            return None
        if size == 1:
            return sketch.call("squeeze", y, [position])
        if sketch.chance(0.5):
            return sketch.call(sketch.random.choice(("amax", "amin", "sum", "any", "mean")), y, position)
        stops = [*y.shape[:position], 1, *y.shape[position + 1 :]]
        cut = sketch.call("slice", y, [0] * len(y.shape), stops)
        return None if cut is None else sketch.call("squeeze", cut, [position])

    return result, inverse


def _sliced(sketch: Sketch, x: Any) -> Any:
    """A slice; put back by padding, or joined with the part that was left out."""
    shape = sketch.shape_of(x)
    axes = [axis for axis, size in enumerate(shape) if size > 1]
    if not axes:
        return None
    axis = sketch.random.choice(axes)
    start, stop = sorted(sketch.random.sample(range(shape[axis] + 1), 2))
    step = sketch.random.choice((1, 1, 1, 2, 3))
    starts = [start if other == axis else 0 for other in range(len(shape))]
    stops = [stop if other == axis else size for other, size in enumerate(x.shape)]
    steps = [step if other == axis else 1 for other in range(len(shape))]
    result = sketch.call("slice", x, starts, stops, steps)
    if result is None:
        return None

    def inverse(y: Any) -> Any:
        if len(y.shape) != len(shape):
            return None
        if sketch.chance(0.5):
            shift = sketch.random.choice((0, 0, 1))
            widths = [0, 0] * (len(shape) - 1 - axis) + [start + shift, shape[axis] - stop - shift]
            return sketch.call("pad", y, widths, sketch.random.choice((0, 1, -0.0, 2.5)))
        rest = sketch.call("slice", x, [stop if o == axis else 0 for o in range(len(shape))], list(x.shape))
        return None if rest is None else sketch.call("cat", [y, rest], axis)

    return result, inverse


def _padded(sketch: Sketch, x: Any) -> Any:
    if not x.shape:
        return None
    before, after = sketch.random.randint(-1, 2), sketch.random.randint(-1, 2)
    if sketch.shape_of(x)[-1] + min(before, 0) + min(after, 0) < 0:
        return None
    result = sketch.call("pad", x, [before, after], sketch.random.choice((0, 0, 1, -0.0, math.nan, 7)))
    if result is None:
        return None
    shift = sketch.random.choice((0, 0, 1))
    return result, lambda y: sketch.call("pad", y, [shift - before, -shift - after], 0) if y.shape else None


def _joined(sketch: Sketch, x: Any) -> Any:
    """Two tensors joined; undone by slicing one of them out again."""
    if not x.shape:
        return None
    axis = sketch.random.randrange(len(x.shape))
    shape = sketch.shape_of(x)
    other = sketch.pick(lambda value: value.shape == shape and value.dtype is x.dtype)
    second = x if other is None else other.handle
    result = sketch.call("cat", [x, second], axis)
    if result is None:
        return None

    def inverse(y: Any) -> Any:
        if len(y.shape) != len(shape):
            return None
        begin, end = (0, x.shape[axis]) if sketch.chance(0.5) else (x.shape[axis], y.shape[axis])
        if shape[axis] > 1 and sketch.chance(0.2):
            begin, end = 1, x.shape[axis] + 1
        starts = [begin if position == axis else 0 for position in range(len(shape))]
        stops = [end if position == axis else size for position, size in enumerate(y.shape)]
        return sketch.call("slice", y, starts, stops)

    return result, inverse


def _if_rank(sketch: Sketch, x: Any, rank: int, name: str, *arguments: Any) -> Any:
    return sketch.call(name, x, *arguments) if len(x.shape) == rank else None


_VIEWS: list[Callable[[Sketch, Any], Any]] = [
    _permuted,
    _permuted,
    _permuted,
    _reshaped,
    _reshaped,
    _broadcasted,
    _broadcasted,
    _sliced,
    _padded,
    _joined,
]


def filled_tensor(sketch: Sketch) -> None:
    """`full`, seen through views, reductions and casts."""
    x: Any = _filled(sketch, sketch.any_value(), _constant(sketch))
    for _ in range(sketch.random.randint(0, 2)):
        if x is None:
            return
        match sketch.random.randrange(4):
            case 0:
                x = sketch.call("cast", x, sketch.random.choice(DTYPES))
            case 1:
                x = _reduced(sketch, x)
            case 2:
                x = _computed(sketch, x)
            case _:
                step = sketch.random.choice(_VIEWS)(sketch, x)
                x = None if step is None else step[0]


def reduced(sketch: Sketch) -> None:
    """A reduction of a reduction, or of a permuted value."""
    x: Any = sketch.any_value().handle
    if sketch.chance(0.5):
        step = _permuted(sketch, x)
        x = x if step is None else step[0]
    first = _reduced(sketch, x)
    if first is not None and sketch.chance(0.6):
        _reduced(sketch, first)


def host_numbers(sketch: Sketch) -> None:
    """Arithmetic of scalars, which stays on the host."""
    x: Any = sketch.random.choice(sketch.scalars) if sketch.scalars and sketch.chance(0.7) else sketch.new_scalar()
    op = sketch.random.choice(
        [op for op in calls_with(2) if takes_anything_second(op, DataType.Int) and op.kind is Kind.POINTWISE]
    )
    y: Any = _constant(sketch) if sketch.chance(0.5) else sketch.random.choice(sketch.scalars)
    result = sketch.call(op.name, x, y)
    if result is not None and sketch.chance(0.3):
        result = sketch.call(sketch.random.choice(calls_with(1)).name, result)
    if result is not None and sketch.chance(0.5):
        sketch.call(sketch.random.choice(("add", "mul", "maximum", "lt")), sketch.any_value(), result)


def drawn_numbers(sketch: Sketch) -> None:
    """Random numbers, sometimes next to others of the same shape: no two draws are one, and none may be left out."""
    x = sketch.any_value()
    name = sketch.random.choice(("rand_like", "randn_like"))
    if not x.dtype.is_float or sketch.chance(0.3):
        sketch.call(sketch.random.choice(("uniform", "normal")), -1.0, 2.0, list(x.handle.shape), DataType.Float)
    elif sketch.call(name, x) is not None and sketch.chance(0.3):
        sketch.call(name, x)


RECIPES: list[tuple[float, Callable[[Sketch], None]]] = [
    (14, with_constant),
    (8, undone),
    (7, cast_chain),
    (7, with_itself),
    (3, power),
    (4, division),
    (4, choice),
    (4, exchanged),
    (12, view_chain),
    (4, filled_tensor),
    (6, reduced),
    (2, host_numbers),
    (2, drawn_numbers),
]
