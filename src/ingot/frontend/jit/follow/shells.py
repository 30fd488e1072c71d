"""Shells: ordinary tensors with their final memory, not yet written, and the trap set.

In: metadata. Out: a tensor that has it. Memory that is not written costs no physical pages.
"""

from __future__ import annotations

import torch

from ingot.frontend.jit.follow.steps import Metadata
from ingot.frontend.jit.follow.trap import Trap
from ingot.runtime.native.pool import empty
from ingot.runtime.native.prototypes import DTYPES, row_major_strides


def new_shell(metadata: Metadata, trap: Trap) -> torch.Tensor:
    """A tensor with this metadata that nothing may read before it is written."""
    dtype, shape, strides, device = metadata
    if device.type == "cpu" and dtype in DTYPES and strides == row_major_strides(shape):
        shell = empty(tuple(shape), dtype)
    else:
        shell = torch.empty_strided(shape, strides, dtype=dtype, device=device)
    trap.set(shell)
    return shell
