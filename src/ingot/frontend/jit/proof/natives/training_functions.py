"""Calls that train: backward passes, `zero_grad`, and steps of optimizers.

In: a call of one of them. Out: nothing, as they return nothing; the walk goes on. What always holds: a step is allowed
only for optimizers that are known (frontend/optimizers.py), and everything that decides what it does is guarded, apart
from settings that are read at every step, and gradients, which the recording itself guards.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.utils import clip_grad_norm_
from torch.optim import Optimizer

from ingot.frontend import optimizers
from ingot.frontend.jit.proof.domain.abstract_values import (
    NONE,
    AbstractTensor,
    AbstractValue,
    Known,
    known,
)
from ingot.frontend.jit.proof.domain.place_guards import ABSENT
from ingot.frontend.jit.proof.natives import averages, backward_passes, optimizer_guards, scalers, schedules
from ingot.frontend.jit.proof.semantics import attribute_lookup

if TYPE_CHECKING:
    from ingot.frontend.jit.proof.walk.walker import Walker

Arguments = dict[str, AbstractValue]
Handler = Callable[[Any, list[AbstractValue], Arguments], AbstractValue]
_SCHEDULED = "_wrapped_by_lr_sched"
"""The mark of the function that a schedule of learning rates puts around an optimizer's `step`."""


def handler_of(called: types.FunctionType) -> Handler | None:
    """How to walk a call of a function that trains; None for all others."""
    if called is backward_passes.BACKWARD:
        return backward_passes.backward
    if called is backward_passes.GRAD:
        return backward_passes.grad
    if called in (Optimizer.zero_grad, torch.nn.Module.zero_grad):
        return _zero_grad
    if called is clip_grad_norm_:
        return _clip
    if called is averages.UPDATE:
        return averages.update
    if called.__code__ in optimizers.SCHEDULE_CODES:
        return lambda walker, args, kwargs: schedules.step(walker, called, args, kwargs)
    if called.__code__ is optimizers.STEP_CODE:
        return lambda walker, args, kwargs: _step(walker, called, args, kwargs)
    scaling = scalers.handler_of(called)
    if scaling is not None:
        return scaling
    inner = called.__dict__.get("__wrapped__")
    if called.__dict__.get(_SCHEDULED) is True and isinstance(inner, types.FunctionType):
        return lambda walker, args, kwargs: _scheduled_step(walker, called, inner, args, kwargs)
    return None


def _zero_grad(walker: Walker, args: list[AbstractValue], kwargs: Arguments) -> AbstractValue:
    given = [*args[1:], *kwargs.values()]
    if len(given) > 1 or not all(isinstance(one, Known) and type(one.value) is bool for one in given):
        walker.refuse("calls zero_grad with arguments that are not understood")
    owner = args[0]
    if isinstance(owner, Known) and isinstance(owner.value, Optimizer):
        optimizer_guards.guard_groups(walker, owner)
    elif isinstance(owner, Known) and isinstance(owner.value, torch.nn.Module):
        optimizer_guards.guard_parameters(walker, owner)
    else:
        walker.refuse("calls zero_grad of an object that is not known")
    for function in (Optimizer.zero_grad, torch.nn.Module.zero_grad, *optimizers.ZEROING):
        walker.guard_function(function)
    walker.may_raise()
    return NONE


def _clip(walker: Walker, args: list[AbstractValue], kwargs: Arguments) -> AbstractValue:
    """`clip_grad_norm_`, whose operations are recorded; it asks no tensor for a value unless it is to raise."""
    function: Any = clip_grad_norm_
    while function is not None:
        walker.guard_function(function)
        function = function.__dict__.get("__wrapped__")
    module = vars(sys.modules[clip_grad_norm_.__module__])
    for name in ("_get_total_norm", "_clip_grads_with_norm_", "clip_grads_with_norm_", "get_total_norm"):
        walker.entry(module, name, ABSENT, name)
    walker.may_raise()
    for given in (*args[1:], *kwargs.values()):
        if not isinstance(given, Known) or type(given.value) not in (int, float, bool, type(None)):
            walker.refuse("clips gradients by something that is not a plain number")
    if kwargs.get("error_if_nonfinite", NONE).value not in (None, False) or len(args) > 3:  # type: ignore[attr-defined]
        walker.refuse("clips gradients, and raises an error by their values")
    parameters = walker.iterate(args[0])
    if not parameters or not all(isinstance(one, Known) and isinstance(one.value, torch.Tensor) for one in parameters):
        walker.refuse("clips gradients of tensors that are not known")
    first: torch.Tensor = parameters[0].value  # type: ignore[attr-defined]
    return AbstractTensor(torch.empty((), dtype=first.dtype, device="meta"), first.device, is_new=True)


def _scheduled_step(
    walker: Walker, called: types.FunctionType, inner: types.FunctionType, args: list[AbstractValue], kwargs: Arguments
) -> AbstractValue:
    """The step of an optimizer that a schedule has put a function of its own around, which notes that it was called.

    An optimizer holds that function without itself: `optimizer.step` is a function of no arguments.
    """
    walker.guard_function(called)
    cells = dict(zip(called.__code__.co_freevars, called.__closure__ or (), strict=True))
    reference = cells.get("opt_ref")
    optimizer = None if reference is None else reference.cell_contents()
    if optimizer is None or args or not isinstance(optimizer, Optimizer):
        walker.refuse("calls a step that is wrapped in a way that is not understood")
    while inner.__code__ is not optimizers.STEP_CODE:
        wrapped = inner.__dict__.get("__wrapped__")
        if inner.__dict__.get(_SCHEDULED) is not True or not isinstance(wrapped, types.FunctionType):
            walker.refuse("calls a step that is wrapped in a way that is not understood")
        walker.guard_function(inner)
        inner = wrapped
    value = known(optimizer, "optimizer")
    noted = attribute_lookup.instance_entry(walker, value, "_opt_called")
    if not isinstance(noted, Known) or noted.value is not True:
        walker.refuse("calls the first step after a schedule was made")
    return _step(walker, inner, [value], kwargs)


def _step(walker: Walker, called: types.FunctionType, args: list[AbstractValue], kwargs: Arguments) -> AbstractValue:
    if len(args) != 1 or not isinstance(args[0], Known) or kwargs:
        walker.refuse("calls a step with arguments, or of an optimizer that is not known")
    optimizer = args[0].value
    refused = optimizers.why_not(optimizer)
    if refused is not None:
        walker.refuse(refused)
    wrapped: Any = called
    while wrapped is not None:
        walker.guard_function(wrapped)
        wrapped = wrapped.__dict__.get("__wrapped__")
    optimizer_guards.guard_groups(walker, args[0])
    optimizer_guards.guard_computing(walker, args[0])
    optimizer_guards.guard_state(walker, args[0])
    walker.may_raise()
    return NONE
