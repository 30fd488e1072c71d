"""How operations that stay PyTorch's are called: the quickest way that does the same.

A dispatcher's operator called from Python converts every argument by its schema; torch's own functions of the same
meaning do not, and take a microsecond less. Matrix products can write into memory that was used before, which spares
the system from finding new pages at every call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ingot.frontend.jit.versions import Operation, Version
from ingot.runtime.native.pool import empty

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
    _aten.convolution.default: torch.convolution,
    _aten.cat.default: torch.cat,
    _aten.embedding.default: torch.embedding,
}
"""Functions that take the same arguments in the same order."""

INTO_MEMORY = frozenset({_aten.mm.default, _aten.bmm.default, _aten.addmm.default, _aten.baddbmm.default})
"""Those that take `out=` and write there without a copy."""

FEWEST_BYTES = 1 << 16
"""Smaller results come from memory that the C library recycles as well."""


def has_proven_sizes(operation: Operation) -> bool:
    """Whether a call's result must have the sizes that are noted for it, whatever the sizes of its operands are."""
    products = operation.products
    if len(products) != 1 or products[0].note.open_sizes is None:
        return all(product.note.open_sizes is None for product in products)
    given = [value.note.sizes for value in operation.arguments if isinstance(value, Version)]
    name = operation.event.target.overloadpacket.__name__
    if name in ("mm", "bmm", "addmm", "baddbmm") and len(given) >= 2:
        left, right = given[-2:]
        return products[0].note.sizes == (*left[:-1], right[-1])
    return name in _LIKE_THE_FIRST and products[0].note.sizes == given[0]


_LIKE_THE_FIRST = frozenset({"bernoulli", "rand_like", "randn_like", "empty_like", "clone"})
"""Operators whose result has the sizes of their first argument."""

__all__ = ["DIRECT", "FEWEST_BYTES", "INTO_MEMORY", "empty", "has_proven_sizes"]
