"""What calls of PyTorch's operators mean in a graph: from one recorded call to nodes.

In: an overload, and its arguments with handles in the place of tensors. Out: handles of exactly the shapes and dtypes
eager gives. What always holds: a call that has no exact meaning in the op table raises an UnsupportedError and is left
to PyTorch. Any other error is a mistake in a row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import torch
from torch._ops import OpOverload

from ingot.base.errors import ArgumentError, DTypeError, ShapeError, SignatureError, UnsupportedError
from ingot.base.sizes import SizeExpression
from ingot.frontend.aten import (
    activations,
    derivatives,
    eager_rounding,
    factories,
    indexing,
    losses,
    normalizations,
    pointwise,
    pooling,
    recurrent,
    reductions,
    views,
)
from ingot.frontend.aten.overloads import functional_form
from ingot.frontend.aten.table import EAGER_ROWS, GPU_ROWS, ROWS, unsupported
from ingot.ir.builder import Builder
from ingot.ir.handles import Handle

__all__ = ["Lowering", "functional_form", "lowering_for"]

Lowering = Callable[[Builder, Sequence[Any], Mapping[str, Any]], Handle | tuple[Handle, ...]]

MODULES = (
    activations,
    derivatives,
    eager_rounding,
    factories,
    indexing,
    losses,
    normalizations,
    pointwise,
    pooling,
    recurrent,
    reductions,
    views,
)
"""Where the rows of the table stand."""


@cache
def lowering_for(overload: OpOverload, device: str = "cpu", numerics: str = "fast") -> Lowering | None:
    """How to write a call of this overload as nodes, for tensors on a kind of device; None if no call of it has a
    meaning in the op table. `numerics` is the flag: where half types are rounded."""
    namespace, _, name = str(overload).partition(".")
    row = ROWS.get(name) if namespace == "aten" else None
    if row is None:
        return None
    if device == "cuda":
        row = GPU_ROWS.get(name, row)
    elif numerics == "eager":
        row = EAGER_ROWS.get(name, row)
    parameters = overload._schema.arguments
    positional = [parameter for parameter in parameters if not parameter.kwarg_only]
    by_name = [parameter for parameter in parameters if parameter.kwarg_only and parameter.name not in OPTIONS]

    def lower(b: Builder, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> Any:
        given = list(arguments)
        for parameter in positional[len(given) :]:
            given.append(_argument(parameter, keywords))
        named = {parameter.name: _argument(parameter, keywords) for parameter in by_name}
        _check_options(keywords)
        for parameter, value in zip(positional, given, strict=True):
            if isinstance(value, complex) and str(overload.overloadpacket) not in _TAKES_COMPLEX_NUMBERS:
                unsupported("complex numbers are not lowered here")
            if isinstance(value, SizeExpression) and "int" not in str(parameter.type):
                unsupported("arithmetic with a size that stays open is not lowered")
        try:
            return row(b, *given, **named)
        except SignatureError:
            raise  # it was the row that called an operator
        except _REFUSALS as error:
            raise UnsupportedError(f"{error}; the call is left to PyTorch") from error

    return lower


_TAKES_COMPLEX_NUMBERS = frozenset(
    f"aten.{name}" for name in ("add", "sub", "rsub", "mul", "div", "eq", "ne", "where", "full", "full_like", "fill")
)
"""Operators that take a complex number beside tensors."""
_REFUSALS = (ArgumentError, DTypeError, ShapeError)
"""What the op table says of numbers, types and shapes that it does not take."""


def _argument(parameter: Any, keywords: Mapping[str, Any]) -> Any:
    if parameter.name in keywords:
        return keywords[parameter.name]
    if not parameter.has_default_value():
        unsupported(f"the argument {parameter.name!r} is missing")
    return parameter.default_value


OPTIONS = frozenset({"layout", "device", "pin_memory", "memory_format", "non_blocking"})
"""Keywords that say where and how a result lies in memory: row by row, on the device of the run. The caller, who knows
the devices of tensors, checks that this is the device asked for."""


def _check_options(keywords: Mapping[str, Any]) -> None:
    if keywords.get("layout") not in (None, torch.strided) or keywords.get("pin_memory"):
        unsupported("only strided tensors in memory that is not pinned are lowered")
    if keywords.get("memory_format") not in (None, torch.contiguous_format, torch.preserve_format):
        unsupported(f"{keywords['memory_format']} is not lowered")
