"""Averages of weights in a training step: `AveragedModel.update_parameters`.

In: a call of it. Out: nothing, as it returns nothing. What always holds: the average is one of PyTorch's own functions.
The update asks twice how many weights have been averaged, so the first one is a path of its own; what it computes is
recorded operation by operation.
"""

from __future__ import annotations

import sys
import types
from typing import TYPE_CHECKING, Any

import torch
from torch.optim import swa_utils
from torch.optim.swa_utils import AveragedModel

from ingot.frontend.jit.proof.domain.abstract_values import NONE, AbstractValue, Known
from ingot.frontend.jit.proof.domain.place_guards import ABSENT, CellContents
from ingot.frontend.jit.proof.natives import optimizer_guards
from ingot.frontend.jit.proof.semantics import attribute_lookup

if TYPE_CHECKING:
    from ingot.frontend.jit.proof.walk.walker import Walker

UPDATE = AveragedModel.update_parameters
_MAKERS = (
    *(swa_utils.get_ema_avg_fn, swa_utils.get_swa_avg_fn),
    *(swa_utils.get_ema_multi_avg_fn, swa_utils.get_swa_multi_avg_fn),
)
_QUESTIONS = 2
"""How often an update asks for the number of averaged weights."""


def _codes() -> frozenset[types.CodeType]:
    """The code of PyTorch's functions that average, with what is put around it."""
    found = set()
    for maker in _MAKERS:
        function: Any = maker()
        while function is not None:
            found.add(function.__code__)
            function = function.__dict__.get("__wrapped__")
    return frozenset(found)


_CODES = _codes()


def update(walker: Walker, args: list[AbstractValue], kwargs: dict[str, AbstractValue]) -> AbstractValue:
    if len(args) != 2 or kwargs:
        walker.refuse("updates an average of weights in a way that is not understood")
    for value in args:
        if not isinstance(value, Known) or not isinstance(value.value, torch.nn.Module):
            walker.refuse("updates an average of the weights of a module that is not known")
        optimizer_guards.guard_parameters(walker, value, with_buffers=True)
    averaged = args[0]
    assert isinstance(averaged, Known)
    attribute_lookup.guard_class(walker, averaged, type(averaged.value))
    for function in (UPDATE, torch.nn.Module.parameters, torch.nn.Module.buffers, *_MAKERS):
        walker.guard_function(function)
    module = vars(sys.modules[AveragedModel.__module__])
    for name in ("_group_tensors_by_device_and_dtype", "_get_foreach_kernels_supported_devices"):
        walker.entry(module, name, ABSENT, name)
    for maker in _MAKERS:
        walker.entry(module, maker.__name__, ABSENT, maker.__name__)
    attribute_lookup.instance_entry(walker, averaged, "use_buffers")
    for name in ("avg_fn", "multi_avg_fn"):
        _guard_average(walker, attribute_lookup.instance_entry(walker, averaged, name))
    walker.writes += 1
    for _ in range(_QUESTIONS):
        walker.answers.decide(walker, walker.answers.ask(walker, "__bool__", 1))
    return NONE


def _guard_average(walker: Walker, value: AbstractValue | None) -> None:
    function = value.value if isinstance(value, Known) else None
    while function is not None:
        if not isinstance(function, types.FunctionType) or function.__code__ not in _CODES:
            walker.refuse("averages weights by a function that is not PyTorch's")
        walker.guard_function(function)
        for cell in function.__closure__ or ():
            held = cell.cell_contents
            walker.guard((CellContents, id(cell)), lambda cell=cell, held=held: CellContents(cell, held, "an average"))
        function = function.__dict__.get("__wrapped__")
