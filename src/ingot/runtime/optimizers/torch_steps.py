"""Steps of optimizers that PyTorch's own functions compute, over all parameters of a group at once.

In: lists of parameters, gradients and state, all dense and of one type, and the settings of the step. Out: parameters
and state, written in place. What always holds: the function called is the one that the optimizer's own `step` calls, in
its fused form, or in the one that goes through the parameters operation by operation (foreach).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.optim.adadelta import adadelta
from torch.optim.adagrad import adagrad
from torch.optim.adam import adam
from torch.optim.adamax import adamax
from torch.optim.asgd import asgd
from torch.optim.nadam import nadam
from torch.optim.radam import radam
from torch.optim.rmsprop import rmsprop

from ingot.runtime.optimizers.steps import is_skipped, move_versions
from ingot.runtime.profiling.ranges import kernel_range

_library = torch.library.Library("ingot", "FRAGMENT")
_library.define(
    "torch_step(Tensor(a!)[] parameters, Tensor(b!)[] gradients, Tensor(c!)[] state, str function, str[] columns, "
    "float[] numbers, bool[] switches, int[] moves, Tensor? found_inf, bool counts_skipped) -> ()"
)
TORCH_STEP: torch._ops.OpOverload = torch.ops.ingot.torch_step.default
Setting = tuple[str, int | None]
"""An entry of a group of parameters, and its place where the entry is a tuple."""


@dataclass(frozen=True)
class TorchStep:
    """How to call a function of PyTorch's that computes a step."""

    function: Callable[..., None]
    columns: Mapping[str, str]
    """Lists of tensors that are like the parameters: the function's names, and those in the optimizer's state."""
    counts: Mapping[str, str]
    """Lists of single numbers, one for each parameter."""
    numbers: Mapping[str, Setting]
    switches: tuple[str, ...] = ("maximize",)
    """Settings that are true or false, by the name that both use."""
    fixed: Mapping[str, Any] = field(default_factory=lambda: _FOREACH)
    conditions: Mapping[str, str] = field(default_factory=dict)
    """Columns that are there only where a setting is above zero: their name in the state, and that setting."""

    def kept(self, group: Mapping[str, Any]) -> tuple[str, ...]:
        """The tensors like the parameters that an optimizer keeps for a group, by their name in its state."""
        return tuple(key for key in self.columns.values() if self._is_there(key, group))

    def names(self, group: Mapping[str, Any]) -> list[str]:
        """The function's names for all that is kept for a group: tensors like the parameters, then single numbers."""
        return [*(name for name, key in self.columns.items() if self._is_there(key, group)), *self.counts]

    def _is_there(self, key: str, group: Mapping[str, Any]) -> bool:
        return key not in self.conditions or group[self.conditions[key]] > 0


def _plain(*names: str) -> dict[str, Setting]:
    return {name: (name, None) for name in names}


_PLAIN_CALL: dict[str, Any] = {"differentiable": False, "has_complex": False}
_FOREACH: dict[str, Any] = {**_PLAIN_CALL, "foreach": True, "capturable": False}
_ADAGRAD: dict[str, Any] = {**_PLAIN_CALL, "foreach": True, "fused": False, "has_sparse_grad": False}
_FUSED: dict[str, Any] = {**_PLAIN_CALL, "foreach": False, "capturable": False, "fused": True}
_BETAS: dict[str, Setting] = {"beta1": ("betas", 0), "beta2": ("betas", 1)}
_STEPS = {"state_steps": "step"}
_AVERAGES = {"exp_avgs": "exp_avg", "exp_avg_sqs": "exp_avg_sq"}
_DECAYING = {**_plain("lr", "weight_decay", "eps"), **_BETAS}

TORCH_STEPS: dict[str, TorchStep] = {
    "adam": TorchStep(
        adam,
        {**_AVERAGES, "max_exp_avg_sqs": "max_exp_avg_sq"},
        _STEPS,
        _DECAYING,
        ("maximize", "amsgrad", "decoupled_weight_decay"),
        {**_FUSED, "grad_scale": None, "found_inf": None},
    ),
    "rmsprop": TorchStep(
        rmsprop,
        {"square_avgs": "square_avg", "grad_avgs": "grad_avg", "momentum_buffer_list": "momentum_buffer"},
        _STEPS,
        _plain("lr", "alpha", "eps", "weight_decay", "momentum"),
        ("maximize", "centered"),
        conditions={"grad_avg": "centered", "momentum_buffer": "momentum"},
    ),
    "adagrad": TorchStep(
        adagrad,
        {"state_sums": "sum"},
        _STEPS,
        _plain("lr", "weight_decay", "lr_decay", "eps"),
        fixed={**_ADAGRAD, "grad_scale": None, "found_inf": None},
    ),
    "nadam": TorchStep(
        nadam,
        _AVERAGES,
        {"mu_products": "mu_product", **_STEPS},
        {**_DECAYING, "momentum_decay": ("momentum_decay", None)},
        ("maximize", "decoupled_weight_decay"),
    ),
    "radam": TorchStep(radam, _AVERAGES, _STEPS, _DECAYING, ("maximize", "decoupled_weight_decay")),
    "adamax": TorchStep(adamax, {"exp_avgs": "exp_avg", "exp_infs": "exp_inf"}, _STEPS, _DECAYING),
    "adadelta": TorchStep(
        adadelta,
        {"square_avgs": "square_avg", "acc_deltas": "acc_delta"},
        _STEPS,
        _plain("lr", "rho", "eps", "weight_decay"),
    ),
    "asgd": TorchStep(
        asgd,
        {"axs": "ax"},
        {"mus": "mu", "etas": "eta", **_STEPS},
        _plain("lambd", "lr", "t0", "alpha", "weight_decay"),
    ),
}
"""Functions of torch.optim, by their names."""
_ABSENT = {"rmsprop": ("grad_avgs", "momentum_buffer_list")}
"""Lists that a function wants, empty, where nothing is kept."""


def torch_step(
    parameters: list[torch.Tensor],
    gradients: list[torch.Tensor],
    state: list[torch.Tensor],
    function: str,
    columns: list[str],
    numbers: list[float],
    switches: list[bool],
    moves: list[int],
    found_inf: torch.Tensor | None,
    counts_skipped: bool,
) -> None:
    """A step of an optimizer. `state` has one column after the other, each as long as the parameters."""
    step, length = TORCH_STEPS[function], len(parameters)
    kept = [state[length * place : length * (place + 1)] for place in range(len(columns))]
    if not is_skipped(found_inf):
        lists: dict[str, list[torch.Tensor]] = {name: [] for name in _ABSENT.get(function, ())}
        lists |= {name: _uncounted(column) for name, column in zip(columns, kept, strict=True)}
        settings = dict(zip(step.numbers, numbers, strict=True)) | dict(zip(step.switches, switches, strict=True))
        with kernel_range(f"{function}_step"):
            step.function(_uncounted(parameters), _uncounted(gradients), **lists, **settings, **step.fixed)
    elif not counts_skipped:
        return
    move_versions((parameters, gradients, *kept), moves)


def _uncounted(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The same memory: writes into it are not counted, as they are counted afterwards."""
    return [one.data for one in tensors]
