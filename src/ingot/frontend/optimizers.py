"""Optimizers and schedules of PyTorch whose steps are known: what is compiled of them, and how their calls are told.

In: an optimizer, a schedule, or code that is about to run. Out: whether its steps are understood in every detail, or
why not. What always holds: one of a subclass, with a replaced `step`, or with options that are not listed is not known.
"""

from __future__ import annotations

import inspect
import sys
import types
from collections.abc import Sequence
from typing import Any

import torch
from torch.amp.grad_scaler import GradScaler
from torch.optim import (
    ASGD,
    SGD,
    Adadelta,
    Adagrad,
    Adam,
    Adamax,
    AdamW,
    NAdam,
    Optimizer,
    RAdam,
    RMSprop,
    lr_scheduler,
)
from torch.optim.lr_scheduler import LRScheduler

from ingot.runtime.optimizers.steps import TYPES
from ingot.runtime.optimizers.torch_steps import TORCH_STEPS, TorchStep

_TORCH_STEPS: dict[type[Optimizer], str] = {
    **{cls: cls.__name__.lower() for cls in (Adadelta, Adagrad, Adamax, ASGD, NAdam, RAdam, RMSprop)},
    **dict.fromkeys((Adam, AdamW), "adam"),
}
"""Functions of PyTorch's that compute steps, of Adam those that no kernel of ingot's computes."""
KNOWN_OPTIMIZERS: tuple[type[Optimizer], ...] = (*_TORCH_STEPS, SGD)


def as_defined(function: Any) -> Any:
    """A function of torch.optim without what torch.compile puts around it when it is first used, so as to leave it
    alone; any other wrapper stays."""
    while getattr(function, "_torchdynamo_disable", None) is True and hasattr(function, "_torchdynamo_orig_callable"):
        function = function._torchdynamo_orig_callable
    return function


_ORIGINAL = {cls: inspect.unwrap(cls.step).__code__ for cls in KNOWN_OPTIMIZERS}
_GATHERS: dict[type[Optimizer], Any] = {cls: as_defined(getattr(cls, "_init_group")) for cls in KNOWN_OPTIMIZERS}  # noqa: B009
"""The methods that gather the tensors of a group."""


def _module_of(cls: type[Optimizer]) -> dict[str, Any]:
    """The names of the module that an optimizer's step is written in."""
    return vars(sys.modules[inspect.unwrap(cls.step).__module__])


_FUNCTIONS = {
    cls: {
        name: as_defined(one)
        for name, one in _module_of(cls).items()
        if isinstance(one, types.FunctionType) and one.__module__ == _module_of(cls)["__name__"]
    }
    for cls in KNOWN_OPTIMIZERS
}
"""The functions of that module, by their names."""
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
SCALER_METHODS: dict[str, types.FunctionType] = {
    name: vars(GradScaler)[name]
    for name in (
        *("scale", "unscale_", "step", "update", "_unscale_grads_", "_maybe_opt_step", "_check_inf_per_device"),
        *("_check_scale_growth_tracker", "_lazy_init_scale_growth_tracker", "_get_scale_async"),
    )
}
"""Methods of gradient scalers that a training step runs."""
SCALED_STEP = SCALER_METHODS["_maybe_opt_step"].__code__
"""What takes a step of an optimizer, unless infinities were found."""
SCALER_MAKES_STATE = SCALER_METHODS["_lazy_init_scale_growth_tracker"].__code__
SCALER_CODES = frozenset(one.__code__ for one in SCALER_METHODS.values()) - {SCALED_STEP}
"""Code of gradient scalers whose operations are recorded."""
KNOWN_CODES = frozenset({STEP_CODE, SCALED_STEP, *(one.__code__ for one in ZEROING)}) | SCHEDULE_CODES
"""Code whose calls are known as a whole."""
_CPU = torch.device("cpu")
SETTINGS = (
    *("lr", "betas", "eps", "weight_decay", "momentum", "dampening"),
    *("alpha", "lambd", "lr_decay", "momentum_decay", "rho", "t0"),
)
"""Settings of a group of parameters that are numbers, and are read at every step."""
SWITCHES = ("amsgrad", "maximize", "capturable", "centered", "differentiable", "decoupled_weight_decay", "nesterov")
"""Settings that decide what a step computes."""
_NOTES = (
    *("params", "foreach", "fused", "initial_accumulator_value"),
    *("initial_lr", "max_lr", "min_lr", "base_momentum", "max_momentum", "swa_lr"),
)
"""Other entries: what a step does without asking, and what schedules of learning rates note."""
_REFUSED = ("capturable", "differentiable")
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


def functions_of(optimizer: Optimizer) -> tuple[dict[str, Any], dict[str, types.FunctionType]]:
    """The module that the step of a known optimizer is written in, and the functions that it must have."""
    return _module_of(type(optimizer)), _FUNCTIONS[type(optimizer)]


def gathering_method(optimizer: Optimizer) -> Any:
    """The method by which a known optimizer must gather the tensors of a group."""
    return _GATHERS[type(optimizer)]


def is_known_schedule(schedule: Any) -> bool:
    """Whether a step of a schedule does nothing but what those of PyTorch's do."""
    cls = type(schedule)
    return cls in KNOWN_SCHEDULES and cls.step.__code__ is _SCHEDULE_STEPS[cls] and "step" not in vars(schedule)


def has_plain_settings(group: dict[str, Any]) -> bool:
    """Whether the settings of a group that are read at every step are numbers of Python's, or tensors of one number."""
    for key in SETTINGS:
        value = group.get(key, 0.0)
        for one in value if type(value) is tuple else (value,):
            if type(one) not in (int, float) and not (key == "lr" and is_number(one)):
                return False
    return True


def is_number(tensor: Any) -> bool:
    """Whether a tensor is a single number in memory of its own."""
    return (
        type(tensor) is torch.Tensor
        and tensor.dtype in TYPES
        and tensor.dim() == 0
        and tensor.device.type == "cpu"
        and not tensor.requires_grad
        and tensor.untyped_storage().nbytes() == tensor.element_size()
    )


def torch_step_of(optimizer: Optimizer, group: dict[str, Any]) -> tuple[str, TorchStep] | None:
    """The function of PyTorch's that computes the steps of a group, with its name; None if it is another one."""
    name = _TORCH_STEPS.get(type(optimizer))
    if name is None or (name == "adam" and not group["amsgrad"]):
        return None
    return name, TORCH_STEPS[name]


def can_step_on(
    optimizer: Optimizer, group: dict[str, Any], device: torch.device, counting: torch.device | None = None
) -> bool:
    """Whether steps of a group are computed for parameters on one device whose steps are counted on another: PyTorch's
    fused functions want both on a GPU, and its others have the counts on the CPU."""
    step = torch_step_of(optimizer, group)
    if step is None or device.type == "cpu" or counting is None:
        return True
    return (counting == device) == bool(step[1].fixed.get("fused"))


def kept_state(optimizer: Optimizer, group: dict[str, Any]) -> tuple[str, ...]:
    """The names of the tensors that an optimizer keeps for each parameter of a group, which are like the parameter."""
    step = torch_step_of(optimizer, group)
    if step is not None:
        return step[1].kept(group)
    if isinstance(optimizer, SGD):
        return ("momentum_buffer",) if group["momentum"] != 0 else ()
    return "exp_avg", "exp_avg_sq"


def kept_counts(optimizer: Optimizer, group: dict[str, Any]) -> tuple[str, ...]:
    """The names of the single numbers that an optimizer keeps for each parameter of a group, such as its steps."""
    step = torch_step_of(optimizer, group)
    if step is not None:
        return tuple(step[1].counts.values())
    return () if isinstance(optimizer, SGD) else ("step",)


def is_plain(tensor: Any, parameter: torch.Tensor) -> bool:
    """Whether a tensor is like its parameter, where that is, and one piece of memory in the order of its elements."""
    return (
        type(tensor) in (torch.Tensor, torch.nn.Parameter)
        and tensor.dtype is parameter.dtype
        and tensor.dtype in TYPES
        and tensor.shape == parameter.shape
        and tensor.layout is torch.strided
        and tensor.device == parameter.device
        and tensor.device.type in ("cpu", "cuda")
        and tensor.is_contiguous()
    )


def are_counts(tensors: Sequence[Any], parameter: torch.Tensor) -> bool:
    """Whether tensors are single numbers of a parameter, such as Adam's count of steps, as they are made by default: on
    the CPU, or where the parameter is."""
    are_single = all(type(one) is torch.Tensor and one.dtype is torch.float32 and one.dim() == 0 for one in tensors)
    return are_single and {one.device for one in tensors} in ({_CPU}, {parameter.device}, set())


def parameters_of(owner: Any) -> list[torch.Tensor]:
    """The parameters that `zero_grad` of an optimizer or a module is about."""
    if isinstance(owner, Optimizer):
        return [parameter for group in owner.param_groups for parameter in group["params"]]
    return list(owner.parameters())
