"""Settings of PyTorch that decide what operations a call does, besides its arguments."""

from __future__ import annotations

from collections.abc import Hashable

import torch

STATES = ("grad mode", "autocast's dtype", "the default dtype", "inference mode")
"""What `state_of_torch` tells, in order."""


def state_of_torch() -> Hashable:
    """What decides the operations of a call besides its arguments."""
    is_autocast = torch.is_autocast_enabled("cpu")
    return (
        torch.is_grad_enabled(),
        torch.get_autocast_dtype("cpu") if is_autocast else None,
        torch.get_default_dtype(),
        torch.is_inference_mode_enabled(),
    )
