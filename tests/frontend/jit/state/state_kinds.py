"""State of all kinds that random programs read, and how each kind changes between calls.

In: a world. Out: fresh globals of a random program, and for each kind an expression that reads it and a change to a
given number. Expressions give a small number or a tensor that `x` of the program can be added to and multiplied with.
"""

from __future__ import annotations

import collections
import contextvars
import enum
import functools
import gc
import itertools
import logging
import os
import sys
import threading
import types
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy
import torch
import torch.nn.functional as F

from tests.frontend.jit.state.worlds import World, numbers, restored

CONFIG = "ingot_test_random_configuration"
VARIABLE = "INGOT_TEST_RANDOM_STATE"
Globals = dict[str, Any]


@dataclass(frozen=True)
class Kind:
    expression: str
    change: Callable[[Globals, int], Any]


def fresh_globals(world: World) -> Globals:
    """Everything that the expressions read, with 1 for every number."""
    module: Any = types.ModuleType(CONFIG)
    module.scale = 1
    world.put(sys.modules, CONFIG, module)
    world.put(os.environ, VARIABLE, "1")
    world.enter(restored(torch.get_default_dtype, torch.set_default_dtype))
    world.enter(restored(torch.is_grad_enabled, torch.set_grad_enabled))
    world.at_end(torch.use_deterministic_algorithms, False)
    world.patch(F, "relu", F.relu)
    logger = logging.getLogger("ingot test random state")
    logger.setLevel(logging.ERROR)
    return {
        **_plain(),
        **_objects(),
        **_library(),
        "torch": torch,
        "F": F,
        "os": os,
        "sys": sys,
        "logger": logger,
        "config_module": module,
        "log": world.log,
    }


def _plain() -> Globals:
    table = {"k": 1}
    return {
        "scale": 1,
        "config": types.SimpleNamespace(scale=1, nested=[{"k": 1}]),
        "table": table,
        "proxy": types.MappingProxyType(table),
        "ordered": {"a": 1, "b": 2},
        "moved": collections.OrderedDict(a=1, b=2),
        "values": [1],
        "names": {1},
        "array": numpy.ones(3, dtype=numpy.float32),
        "counts": {"calls": 0},
        "ticks": itertools.cycle([1, 2, 3]),
        "sentinel": (marker := object()),
        "held": [marker],
    }


def _objects() -> Globals:
    class Meta(type):
        meta_scale = 1

    class Settings(metaclass=Meta):
        class_scale = 1
        hidden = 1

        def method(self) -> int:
            return 1

        @property
        def prop(self) -> int:
            return self.hidden

        def __getattr__(self, name: str) -> int:
            if name != "fallback":
                raise AttributeError(name)
            return self.hidden

    class Slotted:
        __slots__ = ("__weakref__", "scale")

    class Table(dict[str, int]):
        scale = 1

    class Choice(enum.Enum):
        FIRST = 1

    slotted: Any = Slotted()
    slotted.scale = 1
    choice: Any = Choice.FIRST
    choice.scale = 1
    return {
        "Settings": Settings,
        "Meta": Meta,
        "settings": Settings(),
        "slotted": slotted,
        "subclass": Table(k=1),
        "choice": choice,
        "referred": [living := Slotted()],
        "reference": weakref.ref(living),
    }


class _Module(torch.nn.Module):
    seen: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.factor = 1
        self.register_buffer("seen", numbers(1, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.factor + self.seen


def _library() -> Globals:
    def helper(x: Any) -> Any:
        return x * 1

    def attributed() -> int:
        return own.scale

    def defaulted(number: int = 1) -> int:
        return number

    def coded() -> int:
        return 1

    own: Any = attributed
    own.scale = 1
    local: Any = threading.local()
    local.scale = 1
    return {
        "helper": helper,
        "attributed": attributed,
        "defaulted": defaulted,
        "coded": coded,
        "partial": functools.partial(lambda number: number, number=1),
        "source": (source := [1]),
        "cached": functools.lru_cache(lambda: types.SimpleNamespace(scale=source[0])),
        "limited": functools.lru_cache(maxsize=2)(lambda key: source[0] + key),
        "local": local,
        "context": contextvars.ContextVar("context", default=1),
        "module": _Module(),
        "optimizer": torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1),
    }


def _assign(holder: str, name: str) -> Callable[[Globals, int], Any]:
    return lambda state, number: setattr(state[holder], name, number)


def _enter(holder: str, key: Any) -> Callable[[Globals, int], Any]:
    return lambda state, number: state[holder].__setitem__(key, number)


def _code_of(number: int) -> Any:
    return (lambda: 1, lambda: 2, lambda: 3, lambda: 4)[number % 4].__code__


def _clear_cache(state: Globals, number: int) -> None:
    state["source"][0] = number
    state["cached"].cache_clear()


def _use_cache(state: Globals, number: int) -> None:
    """Fills the two places of a cache with other keys: its result for 1 is gone, or made anew."""
    state["source"][0] = number
    for key in (2, 3):
        state["limited"](key)
    if number % 2:
        state["limited"](1)


def _drop(state: Globals, number: int) -> None:
    state["referred"].clear()
    gc.collect(0)


def _reorder(state: Globals, number: int) -> None:
    state["ordered"]["a"] = state["ordered"].pop("a")


def _to_other_class(state: Globals, number: int) -> None:
    other = type("Other", (state["Settings"],), {"method": lambda self: number})
    state["settings"].__class__ = other


def _hook(state: Globals, number: int) -> None:
    state["module"].register_forward_hook(lambda module, given, result: result + number)


KINDS: dict[str, Kind] = {
    "global": Kind("scale", lambda state, number: state.update(scale=number)),
    "attribute": Kind("config.scale", _assign("config", "scale")),
    "deep attribute": Kind('config.nested[0]["k"]', lambda state, number: state["config"].nested[0].update(k=number)),
    "dictionary": Kind('table["k"]', _enter("table", "k")),
    "missing entry": Kind('table.get("new", 1)', _enter("table", "new")),
    "mapping proxy": Kind('proxy["k"]', _enter("table", "k")),
    "order of dictionary": Kind("next(iter(ordered.values()))", _reorder),
    "order of OrderedDict": Kind("next(iter(moved.values()))", lambda state, _: state["moved"].move_to_end("a")),
    "list": Kind("values[0]", _enter("values", 0)),
    "length of list": Kind("len(values)", lambda state, number: state["values"].append(number)),
    "set": Kind("len(names)", lambda state, number: state["names"].add(number)),
    "array": Kind("float(array[0])", _enter("array", 0)),
    "shared array": Kind("torch.from_numpy(array[:1])", _enter("array", 0)),
    "cell": Kind("cell", lambda state, number: state["set_cell"](number)),
    "class attribute": Kind("Settings.class_scale", _assign("Settings", "class_scale")),
    "shadowed class attribute": Kind("settings.class_scale", _assign("settings", "class_scale")),
    "metaclass": Kind("Settings.meta_scale", _assign("Meta", "meta_scale")),
    "method": Kind(
        "settings.method()", lambda state, number: setattr(state["Settings"], "method", lambda self: number)
    ),
    "method of instance": Kind(
        "settings.method()", lambda state, number: setattr(state["settings"], "method", lambda: number)
    ),
    "class of object": Kind("settings.method()", _to_other_class),
    "property": Kind("settings.prop", _assign("settings", "hidden")),
    "getattr": Kind("settings.fallback", _assign("Settings", "hidden")),
    "slot": Kind("slotted.scale", _assign("slotted", "scale")),
    "dict subclass": Kind('subclass["k"]', _enter("subclass", "k")),
    "attribute of dict subclass": Kind("subclass.scale", _assign("subclass", "scale")),
    "enum": Kind("choice.scale", _assign("choice", "scale")),
    "weak reference": Kind("(1 if reference() is None else 2)", _drop),
    "sentinel": Kind("(1 if held[0] is sentinel else 2)", lambda state, _: state["held"].__setitem__(0, object())),
    "function": Kind("helper(x)", lambda state, number: state.update(helper=lambda x: x * number)),
    "function attribute": Kind("attributed()", _assign("attributed", "scale")),
    "default": Kind("defaulted()", lambda state, number: setattr(state["defaulted"], "__defaults__", (number,))),
    "code": Kind("coded()", lambda state, number: setattr(state["coded"], "__code__", _code_of(number))),
    "partial": Kind("partial()", lambda state, number: state["partial"].keywords.update(number=number)),
    "lru_cache": Kind("cached().scale", lambda state, number: setattr(state["cached"](), "scale", number)),
    "lru_cache cleared": Kind("cached().scale", _clear_cache),
    "limited lru_cache": Kind("limited(1)", _use_cache),
    "thread local": Kind('getattr(local, "scale", 2)', _assign("local", "scale")),
    "context": Kind("context.get()", lambda state, number: state["context"].set(number)),
    "environment": Kind(f'int(os.environ["{VARIABLE}"])', lambda _, number: os.environ.update({VARIABLE: str(number)})),
    "config module": Kind("config_module.scale", _assign("config_module", "scale")),
    "imported module": Kind(f'__import__("{CONFIG}").scale', _assign("config_module", "scale")),
    "optimizer": Kind(
        'optimizer.param_groups[0]["lr"]', lambda state, number: state["optimizer"].param_groups[0].update(lr=number)
    ),
    "buffer": Kind("module.seen", lambda state, number: state["module"].seen.fill_(number)),
    "buffer replaced": Kind("module.seen", lambda state, number: setattr(state["module"], "seen", numbers(number, 4))),
    "attribute of module": Kind("module(x)", _assign("module", "factor")),
    "hook": Kind("module(x)", _hook),
    "training": Kind("(1 if module.training else 2)", lambda state, number: state["module"].train(number % 2 == 0)),
    "patched function": Kind("F.relu(x)", lambda _, number: setattr(F, "relu", lambda x: x * number)),
    "default dtype": Kind(
        "torch.ones(1)", lambda _, number: torch.set_default_dtype([torch.float32, torch.float64][number % 2])
    ),
    "gradient mode": Kind(
        "(1 if torch.is_grad_enabled() else 2)", lambda _, number: torch.set_grad_enabled(number % 2 == 0)
    ),
    "deterministic": Kind(
        "(1 if torch.are_deterministic_algorithms_enabled() else 2)",
        lambda _, number: torch.use_deterministic_algorithms(number % 2 == 1),
    ),
    "log level": Kind(
        "(1 if logger.isEnabledFor(20) else 2)",
        lambda state, number: state["logger"].setLevel(10 + (number + 1) % 2 * 20),
    ),
    "iterator": Kind("next(ticks)", lambda state, _: next(state["ticks"])),
    "length of log": Kind("len(log) % 3", lambda state, number: state["log"].append(number)),
    "keyword": Kind("keyword", lambda state, number: state.update(next_keyword=number)),
}
