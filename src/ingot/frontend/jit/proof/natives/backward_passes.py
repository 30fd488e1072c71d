"""Backward passes within a call: `Tensor.backward` and `torch.autograd.grad`.

In: a call of one of them. Out: what it gives, nothing or one gradient for each input. What always holds: what is
differentiated was made during the call, and arguments that would make another graph, or leave gradients out, are
refused. Which operations run is the recording's to say.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from ingot.frontend.jit.proof.domain.abstract_values import (
    NONE,
    AbstractTensor,
    AbstractValue,
    Known,
    Tuple,
)
from ingot.frontend.jit.proof.semantics import operations

if TYPE_CHECKING:
    from ingot.frontend.jit.proof.walk.walker import Walker

Arguments = dict[str, AbstractValue]
BACKWARD: Any = torch.Tensor.backward
GRAD: Any = torch.autograd.grad
_ALLOWED: dict[str, tuple[Any, ...]] = {
    "retain_graph": (None, False, True),
    "create_graph": (False, True),
    "only_inputs": (True,),
    "allow_unused": (None, False),
    "is_grads_batched": (False,),
    "materialize_grads": (False,),
}
"""The values that arguments of `torch.autograd.grad` may have."""


def backward(walker: Walker, args: list[AbstractValue], kwargs: Arguments) -> AbstractValue:
    walker.guard_function(BACKWARD)
    walker.guard_function(torch.autograd.backward)  # type: ignore[arg-type]
    walker.may_raise()
    for given in (*args[1:], *kwargs.values()):
        if not isinstance(given, Known) or given.value not in (None, False):
            walker.refuse("calls backward with arguments that are not compiled")
    if not _is_new(args[0]):
        walker.refuse("calls backward of a tensor that the call did not make")
    return NONE


def grad(walker: Walker, args: list[AbstractValue], kwargs: Arguments) -> AbstractValue:
    walker.guard_function(GRAD)
    walker.may_raise()
    given = inspect.signature(GRAD).bind(*args, **kwargs).arguments
    for name, values in _ALLOWED.items():
        flag = given.pop(name, None)
        if flag is not None and not (isinstance(flag, Known) and any(flag.value is one for one in values)):
            walker.refuse(f"calls torch.autograd.grad with an argument {name} that is not compiled")
    outputs, inputs = (_tensors(walker, given.pop(name)) for name in ("outputs", "inputs"))
    tangents = given.pop("grad_outputs", NONE)
    if not (isinstance(tangents, Known) and tangents.value is None):
        _tensors(walker, tangents)
    if not all(map(_is_new, outputs)):
        walker.refuse("differentiates a tensor that the call did not make")
    return Tuple([_gradient(walker, one) for one in inputs])


def _tensors(walker: Walker, value: AbstractValue) -> Sequence[AbstractValue]:
    """One tensor, or those of a list or a tuple."""
    items = [value] if operations.is_tensor(value) else walker.sequence(value)
    if not items or not all(map(operations.is_tensor, items)):
        walker.refuse("calls torch.autograd.grad with something else than tensors")
    return items


def _is_new(value: AbstractValue) -> bool:
    return isinstance(value, AbstractTensor) and value.is_new


def _gradient(walker: Walker, value: AbstractValue) -> AbstractTensor:
    """A tensor of the sizes and the type of another; how it lies in memory is not known."""
    like = operations.meta_of(walker, value)
    if like.meta is None:
        return AbstractTensor(has_dtype=False, is_new=True)
    meta = torch.empty(like.meta.shape, dtype=like.meta.dtype, device="meta")
    return AbstractTensor(meta, like.device, like.has_dtype, is_new=True)
