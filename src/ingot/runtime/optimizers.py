"""Steps of optimizers over many parameters at once, on the CPU.

In: lists of parameters, gradients and state, all dense and of one type, and the settings of the step. Out: parameters,
state and step counts, written in place. A trace names a step by an operator of ingot's own; programs call the functions
here.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

TYPES = frozenset({torch.float32, torch.float64})
"""The types of parameters whose steps are compiled."""
_library = torch.library.Library("ingot", "FRAGMENT")
_library.define(
    "adam_step(Tensor(a!)[] parameters, Tensor[] gradients, Tensor(b!)[] averages, Tensor(c!)[] squares, "
    "Tensor(d!)[] counts, float rate, float beta1, float beta2, float weight_decay, float eps, "
    "bool is_decoupled, bool maximize, int[] moves) -> ()"
)
_library.define(
    "sgd_step(Tensor(a!)[] parameters, Tensor[] gradients, Tensor(b!)[] buffers, float rate, float momentum, "
    "float dampening, float weight_decay, bool nesterov, bool maximize, int[] moves) -> ()"
)
ADAM_STEP: torch._ops.OpOverload = torch.ops.ingot.adam_step.default
SGD_STEP: torch._ops.OpOverload = torch.ops.ingot.sgd_step.default


_ONE = torch.tensor(1.0, dtype=torch.float32, device="cpu")
"""A step more: as a plain number it would be made a tensor for every count."""


def adam_step(
    parameters: list[torch.Tensor],
    gradients: list[torch.Tensor],
    averages: list[torch.Tensor],
    squares: list[torch.Tensor],
    counts: list[torch.Tensor],
    rate: float,
    beta1: float,
    beta2: float,
    weight_decay: float,
    eps: float,
    is_decoupled: bool,
    maximize: bool,
    moves: list[int],
) -> None:
    """A step of Adam, or of AdamW where weights decay apart from the gradients."""
    torch._foreach_add_(counts, _ONE, alpha=1)
    step = torch._fused_adamw_ if is_decoupled else torch._fused_adam_
    step(
        parameters,
        gradients,
        averages,
        squares,
        [],
        counts,
        lr=rate,
        beta1=beta1,
        beta2=beta2,
        weight_decay=weight_decay,
        eps=eps,
        amsgrad=False,
        maximize=maximize,
    )
    _move_versions((parameters, gradients, averages, squares), moves)


def sgd_step(
    parameters: list[torch.Tensor],
    gradients: list[torch.Tensor],
    buffers: list[torch.Tensor],
    rate: float,
    momentum: float,
    dampening: float,
    weight_decay: float,
    nesterov: bool,
    maximize: bool,
    moves: list[int],
) -> None:
    """A step of SGD; there are no buffers where there is no momentum."""
    torch._fused_sgd_(
        parameters,
        gradients,
        buffers,
        weight_decay=weight_decay,
        momentum=momentum,
        lr=rate,
        dampening=dampening,
        nesterov=nesterov,
        maximize=maximize,
        is_first_step=False,
    )
    _move_versions((parameters, gradients, buffers), moves)


def _move_versions(columns: Sequence[list[torch.Tensor]], moves: Sequence[int]) -> None:
    """Count writes as the optimizer would that a step stands for: graphs that need what was there before see them."""
    for tensors, count in zip(columns, moves, strict=False):
        for _ in range(count):
            torch.autograd.graph.increment_version(tensors)
