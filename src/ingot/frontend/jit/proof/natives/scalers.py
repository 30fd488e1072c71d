"""Gradient scalers in a training step: `unscale_`, `step` and `update`; `scale` is code like any other.

In: a call of one of them. Out: nothing, as they return nothing. What always holds: a scaler is one whose methods are
PyTorch's, and has nothing noted about optimizers when a call begins. What it computes, and how it decides whether a
step is left out, is the recording's to say (trace/optimizer_calls.py).
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch.amp.grad_scaler import GradScaler
from torch.optim import Optimizer

from ingot.frontend import optimizers
from ingot.frontend.jit.proof.domain.abstract_values import NONE, AbstractValue, Known
from ingot.frontend.jit.proof.domain.place_guards import ABSENT
from ingot.frontend.jit.proof.natives import optimizer_guards
from ingot.frontend.jit.proof.semantics import attribute_lookup, operations

if TYPE_CHECKING:
    from ingot.frontend.jit.proof.walk.walker import Walker

Arguments = dict[str, AbstractValue]
_NUMBERS = ("_growth_factor", "_backoff_factor", "_growth_interval")
_STATE = ("_scale", "_growth_tracker")
_NAMES = ("_MultiDeviceReplicator", "OptState", "_refresh_per_optimizer_state")
"""What the methods use of their module."""


def handler_of(called: types.FunctionType) -> Callable[..., AbstractValue] | None:
    return _HANDLERS.get(called)


def _unscale(walker: Walker, args: list[AbstractValue], kwargs: Arguments) -> AbstractValue:
    if len(args) != 2 or kwargs or not _is_optimizer(args[1]):
        walker.refuse("unscales gradients of an optimizer that is not known")
    if _guard_scaler(walker, args[0]):
        optimizer = args[1]
        assert isinstance(optimizer, Known)
        optimizer_guards.guard_groups(walker, optimizer)
    return NONE


def _step(walker: Walker, args: list[AbstractValue], kwargs: Arguments) -> AbstractValue:
    if len(args) != 2 or kwargs or not _is_optimizer(args[1]):
        walker.refuse("takes a scaled step of an optimizer that is not known, or with arguments")
    optimizer = args[1]
    assert isinstance(optimizer, Known)
    if _guard_scaler(walker, args[0]):
        walker.entry(vars(optimizer.value), "_step_supports_amp_scaling", ABSENT, f"{optimizer.name}.fused")
        for name in ("grad_scale", "found_inf"):
            if walker.entry(vars(optimizer.value), name, ABSENT, f"{optimizer.name}.{name}") is not ABSENT:
                walker.refuse("takes a scaled step of an optimizer that has been told of a scale before")
            walker.type_attribute(type(optimizer.value), name)
        walker.type_attribute(type(optimizer.value), "_step_supports_amp_scaling")
    return walker.call(walker.attribute(optimizer, "step"), [])


def _update(walker: Walker, args: list[AbstractValue], kwargs: Arguments) -> AbstractValue:
    if len(args) != 1 or kwargs:
        walker.refuse("gives a gradient scaler a scale")
    _guard_scaler(walker, args[0])
    return NONE


def _is_optimizer(value: AbstractValue) -> bool:
    return isinstance(value, Known) and isinstance(value.value, Optimizer)


def _guard_scaler(walker: Walker, value: AbstractValue) -> bool:
    """Guards all that decides what a scaler does, apart from its tensors' values; whether it is switched on."""
    if not isinstance(value, Known) or not isinstance(value.value, GradScaler):
        walker.refuse("uses a gradient scaler that is not known")
    walker.may_raise()
    scaler = value.value
    attribute_lookup.guard_class(walker, value, type(scaler))
    for name, method in optimizers.SCALER_METHODS.items():
        if walker.type_attribute(type(scaler), name) is not method:
            walker.refuse(f"uses a gradient scaler with a method {name} of its own")
        if walker.entry(vars(scaler), name, ABSENT, f"{value.name}.{name}") is not ABSENT:
            walker.refuse(f"uses a gradient scaler with a method {name} of its own")
        walker.guard_function(method)
    is_enabled = attribute_lookup.instance_entry(walker, value, "_enabled")
    if not isinstance(is_enabled, Known) or type(is_enabled.value) is not bool:
        walker.refuse("uses a gradient scaler that is neither switched on nor off")
    if is_enabled.value:
        _guard_state(walker, value)
    return is_enabled.value


def _guard_state(walker: Walker, value: Known) -> None:
    for name in _NUMBERS:
        number = attribute_lookup.instance_entry(walker, value, name)
        if not isinstance(number, Known) or type(number.value) not in (int, float):
            walker.refuse(f"uses a gradient scaler whose {name} is not a plain number")
    for name in _STATE:
        tensor = attribute_lookup.instance_entry(walker, value, name)
        if not isinstance(tensor, Known) or not isinstance(tensor.value, torch.Tensor):
            walker.refuse("uses a gradient scaler that has no scale yet")
        operations.meta_of(walker, tensor)
    module = vars(sys.modules[GradScaler.__module__])
    for name in _NAMES:
        walker.entry(module, name, ABSENT, name)
    walker.type_attribute(module["_MultiDeviceReplicator"], "get")
    scaler = value.value
    walker.guard((NothingNoted, id(scaler)), lambda: NothingNoted(scaler, f"{value.name}._per_optimizer_states"))


_HANDLERS = {
    optimizers.SCALER_METHODS["unscale_"]: _unscale,
    optimizers.SCALER_METHODS["step"]: _step,
    optimizers.SCALER_METHODS["update"]: _update,
}


@dataclass(frozen=True, eq=False)
class NothingNoted:
    """That a scaler has not looked at gradients since it was updated."""

    scaler: Any
    text: str

    def holds(self) -> bool:
        return not self.scaler._per_optimizer_states
