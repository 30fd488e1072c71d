"""Calls in which everything changes: functions and modules are made and dropped, sizes, dtypes, numbers, closures,
globals, the grad mode, options and threads differ, some calls raise.

Runs as a process of its own. In: how many calls. Out: how many compiled functions, followed calls and active ones are
left when all functions are dropped, and how many times as many objects, those in caches of bounded size apart, and how
much memory there are then as there were when all functions were dropped after a fifth of the calls.
"""

from __future__ import annotations

import ctypes
import functools
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


def resident_bytes() -> int:
    """The memory of this process, without what the C library holds for later; 1 where the system does not tell."""
    path = Path("/proc/self/statm")
    if not path.exists():
        return 1
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
    return int(path.read_text().split()[1]) * 4096


def main(count: str) -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    world, total = World(0), int(count)
    memory, objects = _left_after(world, total // 5)
    memory_after, objects_after = _left_after(world, total - total // 5)
    left = [type(thing) for thing in gc.get_objects()]
    grown = objects_after / objects, memory_after / memory
    print(left.count(CompiledFunction), left.count(Following), len(ACTIVE), *grown)


def _left_after(world: World, calls: int) -> tuple[int, int]:
    """Bytes in memory and objects that are left when some calls have been made and all functions are dropped."""
    for _ in range(calls):
        world.call()
    world.drop()
    gc.collect()
    return resident_bytes(), len(gc.get_objects()) - _in_bounded_caches()


def _in_bounded_caches() -> int:
    """How many objects go when the caches of ingot that hold a fixed number of entries are emptied: they fill up for
    as long as there is something new, and never hold more."""
    before = len(gc.get_objects())
    for found in [one for one in gc.get_objects() if type(one) is functools._lru_cache_wrapper]:
        if found.__module__.startswith("ingot.") and found.cache_parameters()["maxsize"] is not None:
            found.cache_clear()
    gc.collect()
    return before - len(gc.get_objects())


if __name__ == "__main__":
    main(*sys.argv[1:])
