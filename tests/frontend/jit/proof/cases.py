"""Functions for the tests of the proof, registered with the arguments they are called with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from ingot.frontend.jit.proof import Proof, Refusal, prove


@dataclass(frozen=True)
class Case:
    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any] = field(default_factory=dict)
    reason: str = ""
    """Part of what a refusal says."""

    def __str__(self) -> str:
        return getattr(self.function, "__name__", type(self.function).__name__)


def tensor(*shape: int) -> torch.Tensor:
    return torch.linspace(-1, 1, int(torch.tensor(shape).prod())).reshape(shape)


class Cases(list[Case]):
    """A list of cases, and a decorator that adds to it."""

    def __call__(self, *args: Any, reason: str = "", **kwargs: Any) -> Callable[[Any], Any]:
        def add(function: Any) -> Any:
            self.append(Case(function, args or (tensor(3, 4),), kwargs, reason))
            return function

        return add


class Holder:
    """An object with state, and with code that runs when it goes."""

    def __init__(self) -> None:
        self.scale = 2.0
        self.calls = 0

    def __del__(self) -> None:
        pass


def isinstance_chains(x: Any) -> Any:
    """It stands here, as pytest rewrites the assertions of modules with tests."""
    if isinstance(x, (list, tuple)):
        return x[0]
    assert isinstance(x, torch.Tensor), f"not a tensor: {x}"
    return x * 2


def check_refused(case: Case) -> None:
    found = prove(case.function, case.args, case.kwargs)
    if not isinstance(found, Refusal):
        raise AssertionError(f"{case} is proven")
    if not any(part in found.reason for part in case.reason.split("|")) or "the walk fails" in found.reason:
        raise AssertionError(f"{case} is refused for another reason: {found}")
    line = int(found.place.rsplit(":", 1)[1])
    if line <= 0 and "uses a tensor" not in found.reason:
        raise AssertionError(f"{case} is refused without a place: {found}")


def check_proven(case: Case) -> None:
    case.function(*case.args, **case.kwargs)
    found = prove(case.function, case.args, case.kwargs)
    if not isinstance(found, Proof):
        raise AssertionError(f"{case} is refused: {found}")
    if not found.holds():
        raise AssertionError(f"the proof of {case} does not hold: {found.broken()}")
