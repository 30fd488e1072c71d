"""Rolling along one axis: two parts of a tensor, copied in the other order into memory that was used before.

In: the arguments of `roll`, and perhaps memory. Out: its result. PyTorch's own `roll` finds new memory at every call,
which takes longer than the copies.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

_aten: Any = torch.ops.aten


def rolled(
    x: torch.Tensor, shifts: Sequence[int], dims: Sequence[int] = (), *, out: torch.Tensor | None = None
) -> torch.Tensor:
    """x with its elements moved along axes, also into given memory, which must have its shape."""
    if out is None:
        return _aten.roll.default(x, shifts, dims)
    if len(shifts) != 1 or len(dims) != 1 or not x.numel():
        return out.copy_(_aten.roll.default(x, shifts, dims))
    (axis,), size = dims, x.shape[dims[0]]
    first = shifts[0] % size
    return torch.cat([x.narrow(axis, size - first, first), x.narrow(axis, 0, size - first)], axis, out=out)
