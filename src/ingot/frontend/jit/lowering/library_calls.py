"""How operations that stay PyTorch's are called: the quickest way that does the same.

A dispatcher's operator called from Python converts every argument by its schema; torch's own functions of the same
meaning do not, and take a microsecond less. Matrix products can write into memory that was used before, which spares
the system from finding new pages at every call. Masks of dropout are drawn by generated code, the same numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ingot.base.sizes import Size, SizeExpression
from ingot.frontend.jit.lowering.rolling import rolled
from ingot.frontend.jit.lowering.row_lookups import looked_up
from ingot.frontend.jit.rewrites.padded_products import PADDED_PRODUCT, padded_product
from ingot.frontend.jit.rewrites.product_strategies import PACKED_PRODUCT, linear, packed_product
from ingot.frontend.jit.trace.index_bounds import part_of_axis
from ingot.frontend.jit.trace.ssa import Operation, Version
from ingot.frontend.jit.trace.trace import all_of
from ingot.runtime.cpu.random_numbers import bernoulli_
from ingot.runtime.native.memory.pool import empty
from ingot.runtime.optimizers.steps import ADAM_STEP, SGD_STEP, UNSCALE_STEP, adam_step, sgd_step, unscale_step
from ingot.runtime.optimizers.torch_steps import TORCH_STEP, torch_step

_aten: Any = torch.ops.aten


DIRECT: dict[torch._ops.OpOverload, Callable[..., Any]] = {
    _aten.view.default: torch.Tensor.view,
    _aten.t.default: torch.Tensor.t,
    _aten.transpose.int: torch.Tensor.transpose,
    _aten.permute.default: torch.Tensor.permute,
    _aten.unsqueeze.default: torch.Tensor.unsqueeze,
    _aten.expand.default: torch.Tensor.expand,
    _aten.select.int: torch.Tensor.select,
    _aten.detach.default: torch.Tensor.detach,
    _aten.unbind.int: torch.Tensor.unbind,
    _aten.mm.default: torch.mm,
    _aten.bmm.default: torch.bmm,
    _aten.addmm.default: torch.addmm,
    _aten.baddbmm.default: torch.baddbmm,
    _aten.linear.default: linear,
    PACKED_PRODUCT: packed_product,
    PADDED_PRODUCT: padded_product,
    _aten.convolution.default: torch.convolution,
    _aten.cat.default: torch.cat,
    _aten.embedding.default: torch.embedding,
    _aten.index.Tensor: looked_up,
    _aten.roll.default: rolled,
    _aten.bernoulli_.float: bernoulli_,
    ADAM_STEP: adam_step,
    SGD_STEP: sgd_step,
    TORCH_STEP: torch_step,
    UNSCALE_STEP: unscale_step,
}
"""Functions that take the same arguments in the same order."""

INTO_MEMORY = frozenset(
    {
        *(_aten.mm.default, _aten.bmm.default, _aten.addmm.default, _aten.baddbmm.default, _aten.linear.default),
        *(PACKED_PRODUCT, _aten.index.Tensor, _aten.roll.default),
    }
)
"""Operators that take `out=` and write there without a copy."""

FEWEST_BYTES = 1 << 16
"""Results below this many bytes come from memory that the C library recycles as well."""


def has_proven_sizes(operation: Operation) -> bool:
    """Whether a call's results must have the sizes that are noted for them, for all values of open sizes."""
    noted = [version.note.sizes for version in operation.products]
    given = [value.note.sizes for value in operation.arguments if isinstance(value, Version)]
    varying = all_of(SizeExpression, [*noted, *given, operation.arguments, operation.keywords])
    if not any(True for _ in varying):
        return True
    name = operation.event.target.overloadpacket.__name__
    if name == "linear":
        return noted == [(*given[0][:-1], given[1][0])]
    if name == "packed_product":
        return noted == [(*given[0][:-1], operation.arguments[2])]
    if name in ("mm", "bmm", "addmm", "baddbmm") and len(given) >= 2:
        return noted == [(*given[-2][:-1], given[-1][-1])]
    if name == "_scaled_dot_product_flash_attention_for_cpu":
        return noted == [(*given[0][:-1], given[2][-1]), given[0][:-1]]
    if name == "slice" and not operation.keywords and len(noted) == 1:  # the ends are open: generalising bounds them
        return part_of_axis(operation.arguments, given[0], noted[0]) is not None
    if name == "embedding" and len(given) == 2:
        return noted == [(*given[1], given[0][1])]
    if name == "gather" and len(given) == 2:
        return noted == [given[1]]
    if name == "cat":
        return noted == [_joined(operation)]
    if name == "arange" and operation.event.target is _aten.arange.default:
        return noted == [(operation.arguments[0],)]
    if name in _ARITHMETIC and len(given) == 1 and not all_of(Version, operation.keywords):  # with a number
        return noted == [given[0]]
    if name == "select" and _is_there(operation.arguments[2]):
        rest = list(given[0])
        del rest[operation.arguments[1]]
        return noted == [tuple(rest)]
    return name in _LIKE_THE_FIRST and all(sizes == given[0] for sizes in noted)


def _joined(operation: Operation) -> tuple[Size, ...] | None:
    """The sizes of tensors that are joined along an axis; None where they are not known to fit."""
    tensors, *rest = operation.arguments
    shapes = [one.note.sizes for one in tensors]
    rank = len(shapes[0])
    axis = rest[0] if rest else 0
    if operation.keywords or not -rank <= axis < rank or any(len(shape) != rank for shape in shapes):
        return None
    axis %= rank
    around = [(*shape[:axis], *shape[axis + 1 :]) for shape in shapes]
    if any(one != around[0] for one in around):
        return None
    length: Size = 0
    for shape in shapes:
        length = shape[axis] + length
    return (*shapes[0][:axis], length, *shapes[0][axis + 1 :])


def _is_there(index: Any) -> bool:
    """Whether an axis has an element: one whose size stays open has two, and an index that does is bounded."""
    return isinstance(index, SizeExpression) or -2 <= index <= 1


_ARITHMETIC = frozenset({"add", "sub", "mul", "div"})
_LIKE_THE_FIRST = frozenset({"bernoulli", "native_dropout", "rand_like", "randn_like", "empty_like", "clone"})
"""Operators whose results have the sizes of their first argument."""

__all__ = ["DIRECT", "FEWEST_BYTES", "INTO_MEMORY", "empty", "has_proven_sizes"]
