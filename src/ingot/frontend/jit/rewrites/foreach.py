"""Operations on lists of tensors become operations on their tensors, which can be fused.

    before   aten._foreach_mul_.Scalar([%0, %1], 0.9)
    after    %0 = aten.mul_.Tensor(%0, 0.9)
             %1 = aten.mul_.Tensor(%1, 0.9)

PyTorch does the same on the CPU, one tensor after the other. What the table does not know stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from ingot.frontend.jit.rewrites.trace_rewriting import TracePassResult, TraceRewriter
from ingot.frontend.jit.trace.trace import Trace, TraceOp, TraceValue

_aten: Any = torch.ops.aten
_PREFIX = "_foreach_"
_BINARY = frozenset({"add", "sub", "mul", "div"})
_UNARY = frozenset(
    {
        *("abs", "neg", "exp", "log", "sqrt", "rsqrt", "reciprocal", "sigmoid", "tanh", "sin", "cos", "floor", "ceil"),
        *("round", "trunc", "sign", "erf", "expm1", "log1p", "log2"),
    }
)
_TERNARY = frozenset({"addcmul", "addcdiv"})


@dataclass(frozen=True, slots=True)
class ExpandLists:
    name: str = "expand_lists"
    summary: str = "takes operations on lists of tensors apart into operations on each, which can be fused"
    needs_frozen: bool = False
    keeps_bits: bool = True

    def run(self, trace: Trace) -> TracePassResult:
        rewriter = TraceRewriter(trace)
        for index, event in rewriter.operations():
            target = _target(event)
            if target is not None and all(trace.note(value).device.type == "cpu" for value in event.operands):
                rewriter.put(index, *_expanded(event, target))
        return rewriter.finish()


def _expanded(event: TraceOp, target: torch._ops.OpOverload) -> Iterator[TraceOp]:
    lists = [given for given in event.arguments if isinstance(given, list | tuple)]
    in_place = target._schema.is_mutable
    for index, first in enumerate(lists[0]):
        given = [one[index] if isinstance(one, list | tuple) else one for one in event.arguments]
        keywords = dict(event.keywords)
        if event.target.overloadpacket.__name__.removeprefix(_PREFIX).rstrip("_") in _TERNARY and len(given) > 3:
            keywords["value"] = given.pop()
        result = first if in_place else event.results[index]
        yield TraceOp(target, tuple(given), keywords, result, event.place, event.numbers)


def _target(event: TraceOp) -> torch._ops.OpOverload | None:
    """The operator that does to one tensor what an event does to lists; None if that is not known."""
    name = event.target.overloadpacket.__name__
    if not name.startswith(_PREFIX):
        return None
    name = name.removeprefix(_PREFIX)
    plain, overload = name.rstrip("_"), event.target._overloadname
    are_values = all(
        isinstance(value, TraceValue | int | float)
        for given in event.arguments
        for value in (given if isinstance(given, list | tuple) else [given])
    )
    if not are_values or not event.arguments or not isinstance(event.arguments[0], list | tuple):
        return None
    if plain in _BINARY and overload in ("Scalar", "ScalarList", "List"):
        return getattr(_aten, name).Tensor
    if plain in _TERNARY and overload in ("Scalar", "ScalarList"):
        return getattr(_aten, name).default
    return getattr(_aten, name).default if plain in _UNARY and overload == "default" else None
