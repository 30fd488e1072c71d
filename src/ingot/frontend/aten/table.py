"""The table of lowerings, and what its rows have in common.

A row is a function `(builder, *arguments, **keywords)` under the names of the overloads it is for, such as
"add.Tensor": it is called with every argument of the overload's schema, those given and the defaults of the others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from ingot.base.dtypes import DataType
from ingot.base.errors import UnsupportedError
from ingot.base.numbers import convert_number, number_type
from ingot.base.types import ScalarType, TensorType
from ingot.ir.builder import Builder
from ingot.ir.handles import Handle
from ingot.ops.definitions.elementwise import as_element
from ingot.ops.promotion import Promotion, decide

Row = Callable[..., Any]

ROWS: dict[str, Row] = {}
"""Every lowering by the name of its overload."""
GPU_ROWS: dict[str, Row] = {}
"""Those that take the place of others for tensors on GPUs, where PyTorch's own kernels return something else."""
EAGER_ROWS: dict[str, Row] = {}
"""Those that take the place of others on CPUs where half types are to be rounded exactly where eager PyTorch does."""


def lowers(*names: str, rows: dict[str, Row] = ROWS) -> Callable[[Row], Row]:
    """Decorator: the function is the meaning of these overloads."""

    def register(row: Row) -> Row:
        for name in names:
            if name in rows:
                raise TypeError(f"aten.{name} is lowered twice")
            rows[name] = row
        return row

    return register


def as_operator(operator: str, *names: str, rows: dict[str, Row] = ROWS) -> None:
    """These overloads take what an operator of the op table takes, in the same order or under the same names."""

    def row(b: Builder, *arguments: Any, **keywords: Any) -> Any:
        return b.call(operator, arguments, keywords)

    lowers(*names, rows=rows)(row)


def unsupported(what: str) -> NoReturn:
    raise UnsupportedError(f"{what}; the call is left to PyTorch")


def result_type(b: Builder, *operands: Any, promotion: Promotion = Promotion.ARITHMETIC) -> DataType:
    """The type PyTorch gives the result of an operation on handles and numbers."""
    return decide([_type_of(operand) for operand in operands], promotion, b.dialect, b.default_float).result


def require_float(name: str, *values: Handle) -> None:
    for value in values:
        if not value.dtype.is_float:
            unsupported(f"{name} of {value.dtype.text} is not lowered")


def require_one_type(name: str, *values: Handle | None) -> None:
    """Where PyTorch refuses to promote."""
    if len({value.dtype for value in values if value is not None}) > 1:
        unsupported(f"{name} takes operands of one data type")


def converted(b: Builder, value: Any, dtype: DataType) -> Handle:
    """A handle or a number as a value of a data type."""
    if isinstance(value, Handle):
        return b.cast(value, dtype)
    return b.constant(convert_number(value, dtype), dtype)


def filling(b: Builder, value: Any, dtype: DataType) -> Handle:
    """A handle or a number as what a tensor is filled with; what PyTorch may refuse to convert is refused."""
    return as_element(b, value if isinstance(value, Handle) else b.constant(value), dtype)


def widened(
    b: Builder, function: Callable[..., Any], *operands: Any, promotion: Promotion = Promotion.ARITHMETIC
) -> Any:
    """A function of several steps on operands that meet in one type: half types are rounded once, at the end."""
    result = result_type(b, *operands, promotion=promotion)
    wide = [
        operand if operand is None else b.cast(converted(b, operand, result), result.widened) for operand in operands
    ]
    return narrowed(b, function(*wide), result)


def narrowed(b: Builder, value: Any, dtype: DataType) -> Any:
    """What was computed in the wider type, in the type asked for."""
    if isinstance(value, tuple):
        return tuple(narrowed(b, element, dtype) for element in value)
    return b.cast(value, dtype)


def with_size(shape: tuple[Any, ...], axis: int, *sizes: Any) -> tuple[Any, ...]:
    """A shape with the size of one axis replaced by none, one or several."""
    return (*shape[:axis], *sizes, *shape[axis + 1 :])


def _type_of(value: Any) -> TensorType | ScalarType:
    return value.type if isinstance(value, Handle) else ScalarType(number_type(value))
