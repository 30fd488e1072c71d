"""Operators that move complex numbers as they move any others, and those that look only at shapes."""

from __future__ import annotations

from typing import Any

from ingot.base.dtypes import part_type
from ingot.ops.definitions.complex_numbers.parts import joined, part_by_part
from ingot.ops.record import of_complex, same_of_complex

same_of_complex(
    *("broadcast_in_dim", "permute", "reshape", "squeeze", "slice", "pad", "cat", "unsqueeze", "transpose", "movedim"),
    *("flatten", "select", "unbind", "narrow", "split", "split_with_sizes", "chunk", "stack", "roll", "repeat", "tile"),
    *("pixel_shuffle", "broadcast", "expand", "stride_order", "size", "shape", "tril", "triu", "index_select"),
    *("gather", "take_along_axis", "set", "segment_set", "masked_fill"),
)


@of_complex("where")
def _where(b: Any, condition: Any, x: Any, y: Any) -> Any:
    return part_by_part(b, lambda left, right: b.where(condition, left, right), x, y)


@of_complex("full")
def _full(b: Any, shape: Any, value: Any, dtype: Any = None) -> Any:
    """A bare complex number makes the complex type of the default floating-point type."""
    part = b.default_float if dtype is None and value.dtype.text == "c128" else part_type(dtype or value.dtype)
    return joined(b, b.full(shape, b.real(value), part), b.full(shape, _imaginary(b, value), part))


def _imaginary(b: Any, value: Any) -> Any:
    return b.imag(value) if value.dtype.is_complex else b.constant(0)
