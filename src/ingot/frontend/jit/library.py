"""How operations that stay PyTorch's are called: the quickest way that does the same.

A dispatcher's operator called from Python converts every argument by its schema; torch's own functions of the same
meaning do not, and take a microsecond less. Matrix products can write into memory that was used before, which spares
the system from finding new pages at every call.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch

from ingot.base.sizes import SizeExpression
from ingot.frontend.jit.racing import is_clearly_quicker
from ingot.frontend.jit.tape import all_of
from ingot.frontend.jit.versions import Operation, Version
from ingot.runtime.native.pool import empty

_aten: Any = torch.ops.aten


def linear(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None, *, out: torch.Tensor | None = None
) -> torch.Tensor:
    """PyTorch's linear, also into given memory: its own way to do that adds the bias in a second pass."""
    if out is None:
        return torch.nn.functional.linear(x, weight, bias)
    rows, results = x.reshape(-1, x.shape[-1]), out.view(-1, out.shape[-1])
    if bias is None:
        torch.mm(rows, weight.t(), out=results)
    else:
        torch.addmm(bias, rows, weight.t(), out=results)
    return out


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
    _aten.convolution.default: torch.convolution,
    _aten.cat.default: torch.cat,
    _aten.embedding.default: torch.embedding,
}
"""Functions that take the same arguments in the same order."""

INTO_MEMORY = frozenset(
    {_aten.mm.default, _aten.bmm.default, _aten.addmm.default, _aten.baddbmm.default, _aten.linear.default}
)
"""Those that take `out=` and write there without a copy."""

FEWEST_BYTES = 1 << 16
"""Smaller results come from memory that the C library recycles as well."""


def quicker_linear(operation: Operation) -> Callable[..., Any] | None:
    """A way to call linear that measuring finds quicker than PyTorch's own; None where that is not known."""
    if operation.event.target is not _aten.linear.default:
        return None
    source, weight = (version.note for version in operation.arguments[:2])
    is_plain = weight.strides == (weight.shape[1], 1) and weight.dtype is torch.float32 and source.open_sizes is None
    is_plain = is_plain and weight.device.type == "cpu"
    if not is_plain or len(source.shape) != 2 or source.shape[0] > _MOST_ROWS or weight.nbytes < _FEWEST_WEIGHTS:
        return None
    is_quicker = _is_quicker_swapped(source.shape[0], *weight.shape, torch.get_num_threads())
    return swapped_linear if is_quicker else None


def swapped_linear(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None, *, out: torch.Tensor
) -> torch.Tensor:
    """linear with the roles of both matrices swapped, which reads large weights at a multiple of the speed."""
    turned = torch.mm(weight, x.t()).t()
    return out.copy_(turned) if bias is None else torch.add(turned, bias, out=out)


_MOST_ROWS = 128
_FEWEST_WEIGHTS = 1 << 20
"""Bytes of weights; smaller ones stay in the caches, where both ways are as quick."""


@cache
def _is_quicker_swapped(rows: int, columns: int, inner: int, threads: int) -> bool:
    """Whether the swapped product takes clearly less time than linear, by the best of a few calls."""
    x, weight, bias = torch.randn(rows, inner), torch.randn(columns, inner), torch.randn(columns)
    out = torch.empty(rows, columns)
    with torch.no_grad():
        return is_clearly_quicker(
            lambda: swapped_linear(x, weight, bias, out=out), lambda: torch.nn.functional.linear(x, weight, bias)
        )


def has_proven_sizes(operation: Operation) -> bool:
    """Whether a call's results must have the sizes that are noted for them, whatever those are that stay open."""
    noted = [version.note.sizes for version in operation.products]
    given = [value.note.sizes for value in operation.arguments if isinstance(value, Version)]
    varying = all_of(SizeExpression, [*noted, *given, operation.arguments, operation.keywords])
    if not any(True for _ in varying):
        return True
    name = operation.event.target.overloadpacket.__name__
    if name == "linear":
        return noted == [(*given[0][:-1], given[1][0])]
    if name in ("mm", "bmm", "addmm", "baddbmm") and len(given) >= 2:
        return noted == [(*given[-2][:-1], given[-1][-1])]
    if name == "_scaled_dot_product_flash_attention_for_cpu":
        return noted == [(*given[0][:-1], given[2][-1]), given[0][:-1]]
    if name == "select" and -2 <= operation.arguments[2] <= 1:  # sizes that stay open are at least 2
        rest = list(given[0])
        del rest[operation.arguments[1]]
        return noted == [tuple(rest)]
    return name in _LIKE_THE_FIRST and all(sizes == given[0] for sizes in noted)


_LIKE_THE_FIRST = frozenset({"bernoulli", "native_dropout", "rand_like", "randn_like", "empty_like", "clone"})
"""Operators whose results have the sizes of their first argument."""

__all__ = ["DIRECT", "FEWEST_BYTES", "INTO_MEMORY", "empty", "has_proven_sizes", "quicker_linear"]
