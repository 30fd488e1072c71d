"""Models with optimizers, steps of all kinds over them, and a pair of models that is trained by a compiled and an eager
step."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import nn
from torch.nn import functional as F

import ingot
from tests.frontend.jit.gradients.comparing_gradients import same

Step = Callable[[torch.Tensor, torch.Tensor], Any]
Write = Callable[[Any, Any], Step]
"""Writes the step of a model and its optimizer."""


def small_model() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 12), nn.LayerNorm(12), nn.GELU(), nn.Linear(12, 3))


def learning_model() -> nn.Module:
    """Statistics and random numbers. A bias before the statistics would have gradients of nothing but rounding."""
    return nn.Sequential(
        nn.Linear(6, 12, bias=False), nn.BatchNorm1d(12), nn.ReLU(), nn.Dropout(0.25), nn.Linear(12, 3)
    )


def plain_step(model: Any, optimizer: Any) -> Step:
    def step(x, y):
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return step


def adamw(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=1e-2)


@dataclass
class Pair:
    """A model that is trained by a compiled step, and an equal one that is trained eagerly."""

    make: Callable[[], nn.Module] = small_model
    optimize: Callable[[nn.Module], Any] = adamw
    write: Write = plain_step
    models: list[Any] = field(default_factory=list)
    optimizers: list[Any] = field(default_factory=list)
    number: int = 0
    factor: float = 1.0
    """What targets are multiplied by."""
    compare_values: Callable[[Any, Any], None] = same
    device: str = "cpu"
    mode: Literal["default", "reduce-overhead"] = "default"

    def __post_init__(self) -> None:
        torch.manual_seed(0)
        model = self.make().to(self.device)
        self.models = [model, copy.deepcopy(model)]
        self.optimizers = [self.optimize(one) for one in self.models]
        steps = [self.write(*each) for each in zip(self.models, self.optimizers, strict=True)]
        self.compiled: Any = ingot.jit(steps[0], mode=self.mode)
        self._steps = self.compiled, steps[1]

    def run(self, calls: int = 4) -> None:
        """Train both, and compare all that can be seen afterwards."""
        for _ in range(calls):
            self.number += 1
            torch.manual_seed(self.number)
            given = torch.randn(5, 6).to(self.device), torch.randn(5, 3).to(self.device) * self.factor
            results = []
            for step in self._steps:
                torch.manual_seed(1000 + self.number)
                results.append(step(*given))
                results.append(torch.rand((), device=self.device))  # the generator is left as eager leaves it
            self.compare_values(results[:2], results[2:])
            self.compare()

    def compare(self) -> None:
        for one, other in zip(self.models[0].parameters(), self.models[1].parameters(), strict=True):
            self.compare_values(one, other)
            assert (one.grad is None) == (other.grad is None)
            self.compare_values(one.grad, other.grad)
        self.compare_values(list(self.models[0].buffers()), list(self.models[1].buffers()))
        states = [one.state_dict()["state"] for one in self.optimizers]
        self.compare_values(states[0], states[1])

    def versions(self, number: int) -> list[int]:
        """How often parameters, buffers and the state of the optimizer of one of both were written."""
        model, optimizer = self.models[number], self.optimizers[number]
        states = [one for state in optimizer.state.values() for one in state.values() if isinstance(one, torch.Tensor)]
        return [one._version for one in (*model.parameters(), *model.buffers(), *states)]

    def both(self, change: Callable[[Any, Any], Any]) -> None:
        """Change something of both models and optimizers."""
        for each in zip(self.models, self.optimizers, strict=True):
            torch.manual_seed(self.number)
            change(*each)

    @property
    def is_compiled(self) -> bool:
        return self.compiled.tier == "skipping"


OPTIMIZERS: dict[str, Callable[[nn.Module], Any]] = {
    "AdamW": adamw,
    "Adam with decay": lambda model: torch.optim.Adam(model.parameters(), 1e-2, (0.8, 0.99), 1e-6, 0.1),
    "fused": lambda model: torch.optim.AdamW(model.parameters(), 1e-2, fused=True),
    "foreach, maximized": lambda model: torch.optim.AdamW(model.parameters(), 1e-2, foreach=True, maximize=True),
    "SGD": lambda model: torch.optim.SGD(model.parameters(), 1e-2),
    "SGD with everything": lambda model: torch.optim.SGD(
        model.parameters(), 1e-2, momentum=0.9, weight_decay=0.1, nesterov=True
    ),
    "SGD, damped": lambda model: torch.optim.SGD(model.parameters(), 1e-2, momentum=0.9, dampening=0.3, maximize=True),
    "groups": lambda model: torch.optim.AdamW(
        [
            {"params": [one for one in model.parameters() if one.dim() > 1], "weight_decay": 0.1},
            {"params": [one for one in model.parameters() if one.dim() < 2], "lr": 1e-3},
        ],
        lr=1e-2,
    ),
}


# --- orders of the calls ----------------------------------------------------------------------------------------------


def zero_last(model: Any, optimizer: Any) -> Step:
    def step(x, y):
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


def zero_in_place(model: Any, optimizer: Any) -> Step:
    def step(x, y):
        optimizer.zero_grad(set_to_none=False)
        F.mse_loss(model(x), y).backward()
        optimizer.step()

    return step


def _of_the_module(model: Any, optimizer: Any) -> Step:
    def step(x, y):
        model.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return {"loss": loss, "size": x.shape[0]}

    return step


def _twice(model: Any, optimizer: Any) -> Step:
    """Two backward passes, whose gradients add up."""

    def step(x, y):
        optimizer.zero_grad()
        first = F.mse_loss(model(x), y)
        first.backward()
        second = F.l1_loss(model(y.repeat(1, 2)), y)
        second.backward()
        optimizer.step()
        return first, second

    return step


def _two_steps(model: Any, optimizer: Any) -> Step:
    once = plain_step(model, optimizer)

    def step(x, y):
        once(x, y)
        return once(x + 1, y)

    return step


def _step_first(model: Any, optimizer: Any) -> Step:
    """With the gradients of the call before."""

    def step(x, y):
        optimizer.step()
        optimizer.zero_grad()
        F.mse_loss(model(x), y).backward()

    return step


def _clipped(model: Any, optimizer: Any) -> Step:
    def step(x, y):
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()
        return loss, norm

    return step


ORDERS = [zero_last, zero_in_place, _of_the_module, _twice, _two_steps, _step_first, _clipped]
