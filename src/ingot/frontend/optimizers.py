"""Optimizers and schedules of PyTorch whose steps are known: what is compiled of them, and how their calls are told.

In: an optimizer, a schedule, or code that is about to run. Out: whether its steps are understood in every detail, or
why not. What always holds: one of a subclass, with a replaced `step`, or with options that are not listed is not known.
"""

from __future__ import annotations

import inspect
import types
from typing import Any

import torch
from torch.optim import SGD, Adam, AdamW, Optimizer, lr_scheduler
from torch.optim.lr_scheduler import LRScheduler

from ingot.runtime.optimizers import TYPES

KNOWN_OPTIMIZERS: tuple[type[Optimizer], ...] = (Adam, AdamW, SGD)
_ORIGINAL = {cls: inspect.unwrap(cls.step).__code__ for cls in KNOWN_OPTIMIZERS}
STEP_CODE: types.CodeType | None = next(
    (one for one in Optimizer.profile_hook_step.__code__.co_consts if isinstance(one, types.CodeType)), None
)
"""The code of the function that PyTorch puts around every optimizer's `step`; None in versions that do not."""
ZEROING = tuple(inspect.unwrap(one) for one in (Optimizer.zero_grad, torch.nn.Module.zero_grad))
KNOWN_SCHEDULES: tuple[type[LRScheduler], ...] = (
    *(lr_scheduler.LambdaLR, lr_scheduler.MultiplicativeLR, lr_scheduler.StepLR, lr_scheduler.MultiStepLR),
    *(lr_scheduler.ConstantLR, lr_scheduler.LinearLR, lr_scheduler.ExponentialLR, lr_scheduler.PolynomialLR),
    *(lr_scheduler.CosineAnnealingLR, lr_scheduler.CosineAnnealingWarmRestarts, lr_scheduler.OneCycleLR),
)
"""Schedules whose steps change nothing but numbers of their own, and settings of their optimizers."""
_SCHEDULE_STEPS = {cls: cls.step.__code__ for cls in KNOWN_SCHEDULES}
SCHEDULE_CODES = frozenset(_SCHEDULE_STEPS.values())
KNOWN_CODES = frozenset({STEP_CODE, *(one.__code__ for one in ZEROING)}) | SCHEDULE_CODES
"""Code whose calls are known as a whole."""
SETTINGS = ("lr", "betas", "eps", "weight_decay", "momentum", "dampening")
"""Settings of a group of parameters that are numbers, and are read at every step."""
SWITCHES = ("amsgrad", "maximize", "capturable", "differentiable", "decoupled_weight_decay", "nesterov")
"""Settings that decide what a step computes."""
_NOTES = ("params", "foreach", "fused", "initial_lr", "max_lr", "min_lr", "base_momentum", "max_momentum", "swa_lr")
"""Other entries: what a step does without asking, and what schedules of learning rates note."""
_REFUSED = ("amsgrad", "capturable", "differentiable")
_KNOWN_KEYS = frozenset({*SETTINGS, *SWITCHES, *_NOTES})


def why_not(optimizer: Any) -> str | None:
    """Why the steps of an optimizer are not known; None if they are."""
    cls = type(optimizer)
    if cls not in KNOWN_OPTIMIZERS or inspect.unwrap(cls.step).__code__ is not _ORIGINAL[cls]:
        return f"steps of {cls.__name__} are not compiled"
    for group in optimizer.param_groups:
        unknown = next((key for key in group if key not in _KNOWN_KEYS), None)
        if unknown is not None:
            return f"{cls.__name__} has a setting that is not known, {unknown!r}"
        refused = next((key for key in _REFUSED if group.get(key)), None)
        if refused is not None:
            return f"steps of {cls.__name__} with {refused}=True are not compiled"
        if not has_plain_settings(group):
            return f"a setting of {cls.__name__} is not a plain number"
    return None


def is_known_schedule(schedule: Any) -> bool:
    """Whether a step of a schedule does nothing but what those of PyTorch's do."""
    cls = type(schedule)
    return cls in KNOWN_SCHEDULES and cls.step.__code__ is _SCHEDULE_STEPS[cls] and "step" not in vars(schedule)


def has_plain_settings(group: dict[str, Any]) -> bool:
    """Whether the settings of a group that are read at every step are numbers of Python's."""
    for key in SETTINGS:
        value = group.get(key, 0.0)
        if not all(type(one) in (int, float) for one in (value if type(value) is tuple else (value,))):
            return False
    return True


def kept_state(optimizer: Optimizer, group: dict[str, Any]) -> tuple[str, ...]:
    """The names of the tensors that an optimizer keeps for each parameter of a group, which are like the parameter."""
    if isinstance(optimizer, SGD):
        return ("momentum_buffer",) if group["momentum"] != 0 else ()
    return "exp_avg", "exp_avg_sq"


def is_plain(tensor: Any, parameter: torch.Tensor) -> bool:
    """Whether a tensor is like its parameter, and one piece of memory in the order of its elements."""
    return (
        type(tensor) in (torch.Tensor, torch.nn.Parameter)
        and tensor.dtype is parameter.dtype
        and tensor.dtype in TYPES
        and tensor.shape == parameter.shape
        and tensor.layout is torch.strided
        and tensor.device.type == "cpu"
        and tensor.is_contiguous()
    )


def is_step_count(tensor: Any) -> bool:
    """Whether a tensor counts the steps of a parameter, as Adam makes one by default."""
    return (
        type(tensor) is torch.Tensor
        and tensor.dtype is torch.float32
        and tensor.dim() == 0
        and tensor.device.type == "cpu"
    )


def parameters_of(owner: Any) -> list[torch.Tensor]:
    """The parameters that `zero_grad` of an optimizer or a module is about."""
    if isinstance(owner, Optimizer):
        return [parameter for group in owner.param_groups for parameter in group["params"]]
    return list(owner.parameters())
