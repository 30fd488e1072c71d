"""Rows looked up by a tensor of indices: x[index].

PyTorch's `index` walks through rows element by element; its `index_select` copies them whole, several times as quickly,
and takes no negative indices. In: the arguments of `index`. Out: its result, or its error, bit for bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

_aten: Any = torch.ops.aten
_WHOLE = (torch.int64, torch.int32)


def looked_up(
    x: torch.Tensor, indices: Sequence[torch.Tensor | None], *, out: torch.Tensor | None = None
) -> torch.Tensor:
    """x[indices], also into given memory, which must be as large as the result."""
    index = indices[0]
    if len(indices) == 1 and index is not None and index.dtype in _WHOLE and _has_rows(x, index):
        sizes = (*index.shape, *x.shape[1:])
        positions = index if index.dim() == 1 else index.reshape(-1)
        try:
            if out is None:
                return torch.index_select(x, 0, positions).view(sizes)
            torch.index_select(x, 0, positions, out=out.view(positions.shape[0], *x.shape[1:]))
        except (IndexError, RuntimeError):
            pass  # a negative index, or one that `index` refuses in words of its own
        else:
            return out
    return _aten.index.Tensor(x, indices) if out is None else _aten.index.Tensor_out(x, indices, out=out)


def _has_rows(x: torch.Tensor, index: torch.Tensor) -> bool:
    """Whether x lies row after row in the memory of a processor, where an index beyond the end is an error at once."""
    return x.dim() > 0 and x.device.type == index.device.type == "cpu" and x.is_contiguous()
