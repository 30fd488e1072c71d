"""The two autograd.Functions: a call with PyTorch's own graph inside, and one that runs two programs.

In: a call, and the tensors that gradients are asked for. Out: the call's outputs, which have this Function as their
grad_fn. A graph inside is what PyTorch makes of the function as it is; its backward pass runs as PyTorch's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch._C._autograd import _get_current_graph_task_keep_graph
from torch._C._autograd import _top_saved_tensors_default_hooks as _saved_tensor_hooks


class DifferentiableCall(Protocol):
    """One call: what it computes, and its gradients."""

    def forward(self) -> tuple[Sequence[torch.Tensor], Sequence[bool], Sequence[torch.Tensor]]:
        """The outputs, which of them need gradients, and the tensors to be kept."""
        ...

    def backward(
        self, kept: Sequence[torch.Tensor], tangents: Sequence[torch.Tensor | None]
    ) -> Sequence[torch.Tensor | None]:
        """The gradients of the inputs; None for one that has none."""
        ...


class Differentiated(torch.autograd.Function):
    """The grad_fn of what a jitted function returns."""

    @staticmethod
    def forward(ctx: Any, call: DifferentiableCall, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        outputs, is_differentiable, kept = call.forward()
        ctx.call = call
        ctx.save_for_backward(*kept)
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(
            *(one for one, is_one in zip(outputs, is_differentiable, strict=True) if not is_one)
        )
        return tuple(outputs)

    @staticmethod
    def backward(ctx: Any, *tangents: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
        return None, *ctx.call.backward(ctx.saved_tensors, tangents)


def is_observed() -> bool:
    """Whether something is switched on that sees each node of a graph, or each tensor that is saved."""
    return torch.is_anomaly_enabled() or _saved_tensor_hooks(True) is not None


def keeps_graph() -> bool:
    """Whether the backward pass that is running was told to keep its graph for another one."""
    return _get_current_graph_task_keep_graph()


def gradients_inside(
    outputs: Sequence[torch.Tensor],
    inputs: Sequence[torch.Tensor],
    tangents: Sequence[torch.Tensor | None],
    keep: bool,
) -> Sequence[torch.Tensor | None]:
    """PyTorch's gradients of the outputs that have tangents; None for inputs that have none, or need none any more."""
    pairs = [(one, tangent) for one, tangent in zip(outputs, tangents, strict=True) if tangent is not None]
    wanted = [one for one in inputs if one.requires_grad]
    if not pairs or not wanted:
        return [None] * len(inputs)
    found = torch.autograd.grad(
        [one for one, _ in pairs],
        wanted,
        [tangent for _, tangent in pairs],
        retain_graph=keep,
        create_graph=torch.is_grad_enabled(),
        allow_unused=True,
    )
    remaining = iter(found)
    return [next(remaining) if one.requires_grad else None for one in inputs]


def has_python(outputs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor]) -> str | None:
    """What in the graph of some outputs, as far as the inputs, runs Python code in its backward pass, if anything."""
    ends = {one.grad_fn for one in inputs if one.grad_fn is not None}
    pending: list[Any] = [one.grad_fn for one in outputs if one.grad_fn is not None]
    seen: set[Any] = set()
    while pending:
        node = pending.pop()
        if node in seen or node in ends:
            continue
        seen.add(node)
        if isinstance(node, torch.autograd.function.BackwardCFunction):
            return f"the backward pass of {type(node).__name__.removesuffix('Backward')} is Python code"
        pending += [following for following, _ in node.next_functions if following is not None]
    return None


def hooked(inputs: Sequence[torch.Tensor]) -> bool:
    """Whether one of some tensors has hooks, which a graph inside would run as well as the one outside."""
    return any(one._backward_hooks or one.retains_grad for one in inputs)
