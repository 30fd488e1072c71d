"""Single calls as graphs, each made once for all calls on operands of the same types.

In: an overload, a kind of device, arguments with types in the place of tensors and of numbers that stay open, and where
half types are rounded. Out: the graph of the call, whose inputs are those types in the order in which they occur, or
None where the call is left to PyTorch. A builder takes such a graph in by `include`: what was made to see whether a
call can be lowered is what becomes of it.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from torch._ops import OpOverload

from ingot.base.errors import UnsupportedError
from ingot.base.types import ScalarType, TensorType
from ingot.frontend.aten import lowering_for
from ingot.ir.builder import Builder
from ingot.ir.graph import Graph

_MOST_KEPT = 4096


def lowered_call(
    overload: OpOverload, device: str, arguments: Any, keywords: dict[str, Any], numerics: str = "fast"
) -> Graph | None:
    """The graph of a call; None if the op table has no meaning for it."""
    return _lowered(overload, device, numerics, _Arguments((arguments, keywords)))


class _Arguments:
    """Arguments compared by their text, as they may hold lists."""

    __slots__ = ("_text", "value")

    def __init__(self, value: Any):
        self.value = value
        self._text = repr(value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Arguments) and self._text == other._text

    def __hash__(self) -> int:
        return hash(self._text)


@lru_cache(_MOST_KEPT)
def _lowered(overload: OpOverload, device: str, numerics: str, given: _Arguments) -> Graph | None:
    lowering = lowering_for(overload, device, numerics)
    if lowering is None:
        return None
    builder = Builder()
    arguments, keywords = _with_inputs(given.value, builder)
    try:
        made = lowering(builder, arguments, keywords)
    except UnsupportedError:
        return None
    for handle in made if isinstance(made, list | tuple) else (made,):
        builder.add_output(handle)
    return builder.build()


def _with_inputs(value: Any, builder: Builder) -> Any:
    if isinstance(value, TensorType):
        return builder.tensor_input(value.shape, value.dtype)
    if isinstance(value, ScalarType):
        return builder.scalar_input(value.dtype)
    if isinstance(value, list):
        return [_with_inputs(element, builder) for element in value]
    if isinstance(value, tuple):
        return tuple(_with_inputs(element, builder) for element in value)
    if isinstance(value, dict):
        return {name: _with_inputs(element, builder) for name, element in value.items()}
    return value
