"""A random graph while it is being drawn: the values made so far, and calls of operators on them.

Every size has a known number from the start, so that sample calls of the op table, which are written for fixed shapes,
can be made on values with symbolic sizes too. Calls that the builder refuses leave the sketch as it was.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import ingot
from ingot import DataType
from ingot.base import sizes
from ingot.base.dtypes import COMPLEX, COMPUTED, in_order
from ingot.base.sizes import Size
from ingot.ir.handles import Handle, Scalar, Tensor, Vector
from ingot.ops import Kind, Op, table
from ingot.ops.samples import ANYWHERE, Domain
from ingot.ops.samples import Operand as Placeholder
from tests.property.random_values import draw_number, draw_tensor

DTYPES = in_order(COMPUTED)
PUBLIC = [op for op in table().values() if op.is_public]
MOST_ELEMENTS = 3000
"""Larger values are computed, but nothing is built on them."""

READS_SIGN_OF_NAN = frozenset({"signbit"})
"""The sign of a NaN that arithmetic made is unspecified, so these are applied to inputs only."""


@dataclass(frozen=True, slots=True, eq=False)
class Value:
    """A tensor of the sketch with the numbers its sizes will turn out to be."""

    handle: Tensor
    shape: tuple[int, ...]

    @property
    def dtype(self) -> DataType:
        return self.handle.dtype

    @property
    def has_symbols(self) -> bool:
        return any(not isinstance(size, int) for size in self.handle.shape)


class Sketch:
    def __init__(self, random: Random):
        self.random = random
        self.builder = ingot.GraphBuilder()
        self.values: list[Value] = []
        self.scalars: list[Scalar] = []
        self.inputs: list[Value] = []
        self.arguments: list[Any] = []
        """What the graph will be called with."""
        self.operators: list[str] = []
        """Names of all operators called, in order."""
        self.binary_calls: list[tuple[str, Any, Any]] = []
        self._sizes: dict[str, int] = {}

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    # --- inputs -------------------------------------------------------------------------------------------------------

    def new_input(self, shape: Sequence[int], dtype: DataType, domain: Domain = ANYWHERE) -> Value:
        """Declare a tensor argument, with some sizes symbolic, and draw it."""
        symbolic = self.random.choice((0.0, 0.0, 0.5, 1.0))
        declared = [self._declared(size) if self.chance(symbolic) else size for size in shape]
        handle = self.builder.input(declared, dtype)
        for size, number in zip(handle.shape, shape, strict=True):
            if not isinstance(size, int):
                self._sizes[str(size)] = number
        value = Value(handle, tuple(shape))
        self.arguments.append(draw_tensor(self.random, shape, dtype, domain))
        self.inputs.append(value)
        self.values.append(value)
        return value

    def _declared(self, size: int) -> int | str:
        """A symbol for a size. 1 stays fixed, as a size that may be anything does not broadcast, and so does 0."""
        if size < 2:
            return size
        return f"length{size}" if self.chance(0.5) else -1

    def new_scalar(self) -> Scalar:
        dtype = self.random.choice((DataType.Double, DataType.Double, DataType.Float, DataType.Int, DataType.Bool))
        handle = self.builder.scalar(dtype)
        number = draw_number(self.random, dtype)
        if dtype is DataType.Int:
            self._sizes[f"n{len(self.arguments)}"] = int(number)
        self.arguments.append(number)
        self.scalars.append(handle)
        return handle

    def new_shape(self) -> tuple[int, ...]:
        """Mostly small; some long enough for torch's vector code, some without elements."""
        rank = self.random.choices(range(5), (1, 3, 5, 3, 1))[0]
        lengths = self.random.choices((0, 1, 2, 3, 4, 5, 7, 35), (0.2, 3, 4, 4, 3, 2, 1, 1.5), k=rank)
        while math.prod(lengths) > MOST_ELEMENTS:
            lengths[lengths.index(max(lengths))] = 2
        return tuple(lengths)

    def new_dtype(self) -> DataType:
        """Any type, float32 and float64 more often: most rules are about them."""
        return self.random.choice([*DTYPES, DataType.Float, DataType.Float, DataType.Double])

    # --- choosing -----------------------------------------------------------------------------------------------------

    def pick(self, accept: Callable[[Value], bool] = lambda value: True) -> Value | None:
        """A value of the sketch, the latest ones more often."""
        accepted = [value for value in self.values if accept(value)]
        if not accepted:
            return None
        latest = self.random.choices((1, 4, len(accepted)), (3, 3, 4))[0]
        return self.random.choice(accepted[-latest:])

    def any_value(self) -> Value:
        found = self.pick()
        assert found is not None, "a sketch starts with an input"
        return found

    def unused_values(self) -> list[Value]:
        used = {operand for node in self.builder._nodes for operand in node.operands}
        once = {id(value.handle): value for value in self.values}  # handles have no truth that tells whether they equal
        return [value for value in once.values() if value.handle.node not in used]

    def number_of(self, size: Size) -> int:
        return sizes.evaluate(size, self._sizes)

    def shape_of(self, handle: Tensor) -> tuple[int, ...]:
        return tuple(map(self.number_of, handle.shape))

    def value_of(self, handle: Tensor) -> Value:
        return Value(handle, self.shape_of(handle))

    # --- calling ------------------------------------------------------------------------------------------------------

    def call(self, name: str, *arguments: Any, **keywords: Any) -> Any:
        """Call an operator and keep its results; None where the builder refuses the arguments."""
        plain = [argument.handle if isinstance(argument, Value) else argument for argument in arguments]
        undo = self._undo()
        try:
            result = getattr(self.builder.ops, name)(*plain, **keywords)
        except ingot.IngotError:
            undo()
            return None
        if not self._assumptions_hold():
            undo()
            return None
        self.operators.append(name)
        if len(plain) == 2 and all(isinstance(argument, Handle | int | float) for argument in plain):
            self.binary_calls.append((name, plain[0], plain[1]))
        for element in result if isinstance(result, tuple) else (result,):
            self._keep(element)
        return result

    def _undo(self) -> Callable[[], None]:
        """Takes back whatever a call is about to add to the builder, which has no way of its own to forget."""
        growing = (self.builder._nodes, self.builder._assumptions)
        lengths = [len(items) for items in growing]
        outputs, ordinals = len(self.builder._outputs), self.builder._ordinals

        def undo() -> None:
            for items, length in zip(growing, lengths, strict=True):
                while len(items) > length:
                    items.popitem()
            del self.builder._outputs[outputs:]
            self.builder._ordinals = ordinals

        return undo

    def _assumptions_hold(self) -> bool:
        return all(self.number_of(a.left) == self.number_of(a.right) for a in self.builder._assumptions)

    def _keep(self, result: Any) -> None:
        if isinstance(result, Scalar):
            self.scalars.append(result)
        elif isinstance(result, Vector):
            self.call("full", result, self.random.choice((0, 1.5, True)), self.random.choice(DTYPES))
        else:
            value = self.value_of(result)
            # The builder refuses to look for the largest of no elements, but only where it knows that there are none.
            if math.prod(value.shape) <= MOST_ELEMENTS and _is_fixed(value, 0):
                self.values.append(value)

    def call_sample(self, op: Op) -> bool:
        """Make one of the operator's sample calls on values of the sketch; whether the builder took one."""
        for _ in range(4):
            from_inputs = op.name in READS_SIGN_OF_NAN
            primary = self.random.choice(self.inputs) if from_inputs else self.any_value()
            if op.dtypes <= COMPLEX:
                complex_value = self.pick(lambda value: value.dtype.is_complex)
                primary = complex_value or self.new_input(self.new_shape(), self.random.choice(in_order(COMPLEX)))
            assert op.samples is not None and op.signature is not None
            samples = op.samples(primary.shape)
            if not samples:
                continue
            sample = self.random.choice(samples)
            filling = _Filling(self, op, primary, mixed=self.chance(0.3))
            kinds = [parameter.kind for parameter in op.signature.parameters]
            arguments = [
                filling.filled(argument, kind) for argument, kind in zip(sample.arguments, kinds, strict=False)
            ]
            keywords = {name: filling.filled(argument, "") for name, argument in sample.keywords.items()}
            if self.call(op.name, *arguments, **keywords) is not None:
                return True
        return False


class _Filling:
    """Puts values of a sketch, or fresh inputs, in the place of a sample call's placeholders."""

    def __init__(self, sketch: Sketch, op: Op, primary: Value, mixed: bool):
        self.sketch = sketch
        self.op = op
        self.primary = primary
        self.mixed = mixed
        """Whether operands of different types may meet."""
        self.primary_placed = False

    def filled(self, argument: Any, kind: str) -> Any:
        if isinstance(argument, Placeholder):
            return self.operand(argument, kind)
        if isinstance(argument, list) and any(isinstance(element, Placeholder) for element in argument):
            return [self.filled(element, "") for element in argument]
        if kind == "Sizes" and isinstance(argument, list):
            return [self.size(element) for element in argument]
        return self.size(argument) if kind == "SizeValue" else argument

    def operand(self, placeholder: Placeholder, kind: str) -> Any:
        dtype = placeholder.dtype or self.primary.dtype
        if not _takes_anything(placeholder.domain, dtype):
            return self.sketch.new_input(placeholder.shape, dtype, placeholder.domain).handle
        if placeholder.shape == self.primary.shape and dtype is self.primary.dtype and not self.primary_placed:
            self.primary_placed = True
            return self.primary.handle
        if kind == "Operand" and self.sketch.scalars and placeholder.dtype is None and self.sketch.chance(0.1):
            return self.sketch.random.choice(self.sketch.scalars)
        found = self.sketch.pick(lambda value: self.fits(value, placeholder))
        if found is None or self.sketch.chance(0.1):
            found = self.sketch.new_input(placeholder.shape, dtype, placeholder.domain)
        return found.handle

    def fits(self, value: Value, placeholder: Placeholder) -> bool:
        dtype = placeholder.dtype or (None if self.mixed else self.primary.dtype)
        if dtype is not None and value.dtype is not dtype:
            return False
        if not _takes_anything(placeholder.domain, value.dtype):
            return False
        if self.op.kind is Kind.POINTWISE:
            return _broadcasts(value, self.primary)
        return value.shape == placeholder.shape and _is_fixed(value, 1)

    def size(self, number: Any) -> Any:
        """A number of a sample as the symbolic size it stands for, where there is one."""
        handle = self.primary.handle
        if not isinstance(number, int) or not self.primary.has_symbols or self.sketch.chance(0.3):
            return number
        for axis, size in enumerate(self.primary.shape):
            if size == number and not isinstance(handle.shape[axis], int):
                return handle.shape[axis] if self.sketch.chance(0.5) else handle.size(axis)
        return number


def _takes_anything(domain: Domain, dtype: DataType) -> bool:
    """Whether a domain keeps operands within bounds for the sake of accuracy only: PyTorch takes any float."""
    return not dtype.is_integer or (domain.lowest_integer is None and domain.highest_integer is None)


def _is_fixed(value: Value, number: int) -> bool:
    """Whether no symbolic size of a value happens to be this number."""
    return all(isinstance(size, int) or n != number for size, n in zip(value.handle.shape, value.shape, strict=True))


def _broadcasts(value: Value, other: Value) -> bool:
    """Whether two shapes meet without a symbolic size having to be repeated."""
    pairs = zip(
        reversed(list(zip(value.handle.shape, value.shape, strict=True))),
        reversed(list(zip(other.handle.shape, other.shape, strict=True))),
        strict=False,
    )
    return all(
        number == other_number or size == 1 or other_size == 1 for (size, number), (other_size, other_number) in pairs
    )
