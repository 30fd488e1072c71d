"""Calls that take the elements of a tensor where a mask is true: x[mask] and masked_select.

How many there are depends on values, so such calls run at once. Generated code does it where there are many elements.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from ingot.runtime.selection import can_select

FEWEST = 1 << 14
"""The fewest elements: with fewer, Python's part of the call costs more than generated code gains."""
_FUNCTIONS = (torch.Tensor.__getitem__, torch.Tensor.masked_select, torch.masked_select)


def is_large_selection(function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether a call is `select(*args)` of many elements."""
    if function not in _FUNCTIONS or kwargs or len(args) != 2:
        return False
    source, mask = args
    are_tensors = isinstance(source, torch.Tensor) and isinstance(mask, torch.Tensor)
    return are_tensors and source.numel() >= FEWEST and can_select(source, mask)
