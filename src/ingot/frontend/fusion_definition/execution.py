"""What a call of `execute` may say besides its inputs, and inputs in a row."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import torch

from ingot.base.errors import ArgumentError, ArgumentValueError, UnsupportedError
from ingot.frontend.fusion_definition.absent import PAGE

_ELSEWHERE = {
    "profile": 'FusionDefinition(config={"enable_profiling": True}) measures, fd.module.stats() shows it',
    "capture_debug_output": "INGOT_DUMP prints every stage",
    "auto_schedule": "ingot always schedules its kernels itself",
    "heuristic_params": "ingot schedules its kernels itself",
}


@dataclass(frozen=True, slots=True)
class ExecutionOptions:
    """The keywords of `execute`."""

    device: torch.device | None = None
    print_repro: bool = False
    save_repro_inputs: bool = False
    override_user_schedule: bool = False
    """There is no user schedule to override."""
    _enable_options: Sequence[str] = ()
    _disable_options: Sequence[str] = ()
    """Names of nvFuser's own features; without effect."""

    @staticmethod
    def of(given: Mapping[str, Any]) -> ExecutionOptions:
        """Options from keywords; an unknown one is an error that says what to use instead."""
        known = {field.name for field in fields(ExecutionOptions)}
        for name in given:
            if name in _ELSEWHERE:
                raise UnsupportedError(f"execute has no option {name!r}: {_ELSEWHERE[name]}; see {PAGE}")
            if name not in known:
                raise ArgumentError(f"execute has no option {name!r}; it takes {', '.join(sorted(known))}")
        for name in ("_enable_options", "_disable_options"):
            names = given.get(name, ())
            if isinstance(names, str) or not all(isinstance(one, str) for one in names):
                raise ArgumentError(f"{name} is a list of names, not {names!r}")
        return ExecutionOptions(**{**given, "device": named_device(given.get("device"))})

    @staticmethod
    def signature() -> str:
        """The signature of `execute`, as Python prints it."""
        keyword = inspect.Parameter.KEYWORD_ONLY
        options = [inspect.Parameter(field.name, keyword, default=field.default) for field in fields(ExecutionOptions)]
        inputs = inspect.Parameter("inputs", inspect.Parameter.POSITIONAL_OR_KEYWORD)
        return str(inspect.Signature([inputs, *options]))


def named_device(device: torch.device | str | int | None) -> torch.device | None:
    """The device that a name or, as in nvFuser, the index of a GPU stands for."""
    if device is None:
        return None
    if isinstance(device, int) and not isinstance(device, bool):
        if device < 0:
            raise ArgumentValueError(f"the index of a GPU is 0 or more, not {device}")
        return torch.device("cuda", device)
    return torch.device(device)


def flatten(inputs: Sequence[Any]) -> list[Any]:
    """The inputs with the numbers of each vector input in a row."""
    if not isinstance(inputs, list | tuple):
        raise ArgumentError(f"inputs must be a list or tuple of tensors and numbers, not {type(inputs).__name__}")
    flattened: list[Any] = []
    for value in inputs:
        flattened.extend(value if isinstance(value, list | tuple) else [value])
    return flattened
