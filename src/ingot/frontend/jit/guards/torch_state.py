"""Settings of PyTorch that decide what operations a call does, besides its arguments."""

from __future__ import annotations

from collections.abc import Hashable

import torch

STATES = ("grad mode", "autocast's dtype", "the default dtype", "inference mode", "the GPU's settings")
"""What `state_of_torch` tells, in order."""


def state_of_torch() -> Hashable:
    """What decides the operations of a call besides its arguments."""
    is_autocast = torch.is_autocast_enabled("cpu")
    return (
        torch.is_grad_enabled(),
        torch.get_autocast_dtype("cpu") if is_autocast else None,
        torch.get_default_dtype(),
        torch.is_inference_mode_enabled(),
        _state_of_cuda() if torch.cuda.is_initialized() else None,
    )


def _state_of_cuda() -> Hashable:
    """What "cuda" means, and what decides by which of several operators PyTorch does something on a GPU.

    How precisely operators compute is read by PyTorch at every call, and asks for no other recording.
    """
    return (
        torch.cuda.current_device(),
        torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else None,
        torch._C._get_cudnn_enabled(),
        torch._C._get_cudnn_deterministic(),
        torch._C._get_deterministic_algorithms(),
        torch._C._get_flash_sdp_enabled(),
        torch._C._get_mem_efficient_sdp_enabled(),
        torch._C._get_math_sdp_enabled(),
        torch._C._get_cudnn_sdp_enabled(),
    )
