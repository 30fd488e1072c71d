"""Graphs of calls that end at the inputs of the call, whatever these were made of.

In: the tensors that gradients of a call are asked for, and those among them that are its arguments. Out: tensors that
the function is given in their place, and gradients of them. An input may have been made of another one, as the state of
a recurrent network was made of its weights: in PyTorch's graph of the whole, what comes in for it goes on to that other
input. Inside a call it must not, for the graph outside hands it on as well. Nor must hooks run twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import get_ident
from typing import Any

import torch

from ingot.frontend.jit.gradients.autograd_functions import gradients_inside, keeps_graph

StandIns = Mapping[int, torch.Tensor]
"""What stands for an argument, by the argument's id."""
NOT_APART = (
    "ingot has to run the compiled function again for this backward pass, and cannot: a tensor around the function was "
    "made of another of its inputs, or has hooks. Call the function without ingot.jit"
)


def are_apart(inputs: Sequence[torch.Tensor]) -> bool:
    """Whether no input was made of another one, and none that was made of anything runs hooks."""
    made = [one for one in inputs if one.grad_fn is not None]
    return not any(one._backward_hooks or one.retains_grad for one in made) and not _leads_to_another(made, inputs)


def stand_ins(inputs: Sequence[torch.Tensor], arguments: Sequence[torch.Tensor]) -> StandIns | None:
    """Leaves in the same memory for the inputs that need them; None where an input that does is no argument."""
    given = {id(one) for one in arguments}
    found = {id(one): one.detach().requires_grad_() for one in inputs if one.grad_fn is not None and id(one) in given}
    return found if are_apart(replaced(inputs, found)) else None


def replaced(tensors: Sequence[Any], found: StandIns) -> list[Any]:
    """Some values with stand-ins in their places."""
    return [found.get(id(one), one) for one in tensors]


def _leads_to_another(made: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor]) -> bool:
    leaves = {id(one) for one in inputs if one.grad_fn is None}
    nodes = {one.grad_fn for one in made}
    pending = [following for node in nodes if node is not None for following, _ in node.next_functions]
    seen: set[Any] = set()
    while pending:
        node = pending.pop()
        if node is None or node in seen:
            continue
        if node in nodes or id(getattr(node, "variable", None)) in leaves:
            return True
        seen.add(node)
        pending += [following for following, _ in node.next_functions]
    return False


# --- hooks ------------------------------------------------------------------------------------------------------------


@contextmanager
def without_hooks(inputs: Sequence[torch.Tensor]) -> Iterator[None]:
    """A block in which hooks of the inputs do not run in this thread. They run outside, with what is added up there."""
    thread = get_ident()
    changed: list[tuple[Any, Any, Any, Any]] = []
    try:
        for one in inputs:
            hooks: dict[int, Any] = one._backward_hooks or {}
            for key, hook in list(hooks.items()):
                hooks[key] = silent = _silent(hook, thread)
                changed.append((hooks, key, hook, silent))
        yield
    finally:
        for hooks, key, hook, silent in reversed(changed):
            if hooks.get(key) is silent:
                hooks[key] = hook


def _silent(hook: Callable[[torch.Tensor], Any], thread: int) -> Callable[[torch.Tensor], Any]:
    return lambda gradient: None if get_ident() == thread else hook(gradient)


# --- gradients of gradients -------------------------------------------------------------------------------------------


Make = Callable[[Sequence[torch.Tensor]], Sequence[torch.Tensor | None]]
"""Computes results of operands, with PyTorch's graph of them."""


class Apart(torch.autograd.Function):
    """Results whose graph is kept inside, between leaves of its own; it can be differentiated any number of times."""

    @staticmethod
    def forward(ctx: Any, make: Make, *operands: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        ctx.make, ctx.operands = make, operands
        ctx.given = [_standing_in(one) for one in operands]
        with torch.enable_grad():
            ctx.results = make(ctx.given)
        ctx.set_materialize_grads(False)
        given_back = [None if one is None else one.detach() for one in ctx.results]
        pairs = zip(given_back, ctx.results, strict=True)
        ctx.mark_non_differentiable(*(one for one, made in pairs if made is not None and not made.requires_grad))
        return tuple(given_back)

    @staticmethod
    def backward(ctx: Any, *tangents: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
        if not torch.is_grad_enabled():
            return None, *_gradients_of(ctx.results, ctx.given, tangents, keeps_graph())
        there = [position for position, tangent in enumerate(tangents) if tangent is not None]
        make, count = ctx.make, len(ctx.operands)

        def make_gradients(operands: Sequence[torch.Tensor]) -> Sequence[torch.Tensor | None]:
            results = make(operands[:count])
            return _gradients_of([results[one] for one in there], operands[:count], operands[count:], keep=True)

        made = Apart.apply(make_gradients, *ctx.operands, *(tangents[one] for one in there))
        return None, *made


def _standing_in(operand: torch.Tensor) -> torch.Tensor:
    """A leaf in an operand's place. Leaves stand for themselves, since the function may find them without being given
    them."""
    return operand if operand.grad_fn is None else operand.detach().requires_grad_()


def _gradients_of(
    results: Sequence[torch.Tensor | None],
    operands: Sequence[torch.Tensor],
    tangents: Sequence[torch.Tensor | None],
    keep: bool,
) -> Sequence[torch.Tensor | None]:
    """Gradients of the operands that need any, None for the others."""
    pairs = [
        (result, tangent)
        for result, tangent in zip(results, tangents, strict=True)
        if result is not None and result.requires_grad and tangent is not None
    ]
    with without_hooks(operands):
        return gradients_inside([one for one, _ in pairs], operands, [one for _, one in pairs], keep)
