"""Calls in which everything changes: functions and modules are made and dropped, sizes, dtypes, numbers, closures,
globals, the grad mode, options and threads differ, some calls raise.

Runs as a process of its own. In: how many calls. Out: how many compiled functions, followed calls and active ones are
left when all functions are dropped, and how objects (a ratio) and memory (MB) have grown since a fifth of the calls.
"""

from __future__ import annotations

import gc
import random
import sys
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import ingot
from ingot.frontend.jit.api.function import CompiledFunction
from ingot.frontend.jit.follow.following import ACTIVE, Following

MOST_FUNCTIONS = 12
SCALE = 1.0
_OPTIONS: list[dict[str, Any]] = [{}, {"python": "run"}, {"python": "skip"}, {"dynamic": True}]


def _closed(number: int) -> Callable[..., Any]:
    return lambda x: torch.tanh(x * number) + SCALE


def _branching(number: int) -> Callable[..., Any]:
    def function(x):
        y = x * SCALE + number
        return y.relu() if y.sum().item() > 0 else y

    return function


def _raising(number: int) -> Callable[..., Any]:
    def function(x):
        y = x.sum(-1)
        if number % 3 == 0:
            raise ValueError(number)
        return y + number

    return function


def _in_place(number: int) -> Callable[..., Any]:
    def function(x):
        z = x.clone()
        z += number
        z.mul_(2)
        return z, [z.shape[0], number]

    return function


class Net(torch.nn.Module):
    def __init__(self, number: int):
        super().__init__()
        self.linear, self.number = torch.nn.Linear(8, number + 1), number

    def forward(self, x):
        return torch.relu(self.linear(x)) * self.number


class World:
    """Functions that are compiled, and calls of them."""

    def __init__(self, seed: int):
        self._choose = random.Random(seed)
        self._functions: list[tuple[Any, Any]] = []
        self.calls = 0

    def call(self) -> None:
        global SCALE
        choose = self._choose
        self.calls += 1
        if len(self._functions) < MOST_FUNCTIONS // 2 or choose.random() < 0.02:
            make = choose.choice([_closed, _branching, _raising, _in_place, Net])
            plain = make(choose.randrange(20))
            self._functions.append((plain, ingot.jit(plain, **choose.choice(_OPTIONS))))
        if len(self._functions) > MOST_FUNCTIONS:
            self._functions.pop(choose.randrange(len(self._functions)))
        if choose.random() < 0.01:
            SCALE = choose.random()
        pair = choose.choice(self._functions)
        dtype = choose.choice([torch.float32, torch.float32, torch.float64])
        x, has_grad = torch.randn(choose.randrange(1, 9), 8).to(dtype), choose.random() < 0.5
        if choose.random() < 0.01:
            thread = threading.Thread(target=_compare, args=(*pair, x, has_grad))
            thread.start()
            thread.join()
        else:
            _compare(*pair, x, has_grad)

    def drop(self) -> None:
        self._functions.clear()


def _compare(plain: Any, compiled: Any, x: torch.Tensor, has_grad: bool) -> None:
    results = []
    for function in (plain, compiled):
        with torch.set_grad_enabled(has_grad):
            try:
                results.append(function(x))
            except (ValueError, RuntimeError) as error:
                results.append(type(error))
    if isinstance(results[0], type):
        assert results[0] is results[1]
    else:
        torch.testing.assert_close(results[1], results[0], rtol=1e-4, atol=1e-4)


def resident_megabytes() -> float:
    """The memory of this process; 0 where the system does not tell."""
    path = Path("/proc/self/statm")
    return int(path.read_text().split()[1]) * 4096 / 1e6 if path.exists() else 0.0


def main(count: str) -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    world, total = World(0), int(count)
    for _ in range(total // 5):
        world.call()
    gc.collect()
    before, objects = resident_megabytes(), len(gc.get_objects())
    for _ in range(total - total // 5):
        world.call()
    gc.collect()
    after, objects_after = resident_megabytes(), len(gc.get_objects())
    world.drop()
    gc.collect()
    left = [type(thing) for thing in gc.get_objects()]
    print(left.count(CompiledFunction), left.count(Following), len(ACTIVE), objects_after / objects, after - before)


if __name__ == "__main__":
    main(*sys.argv[1:])
