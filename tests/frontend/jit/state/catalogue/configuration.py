"""Settings that are read at every call: config modules, globals, cells, containers, caches, contexts, their order."""

from __future__ import annotations

import collections
import contextvars
import enum
import functools
import importlib
import os
import sys
import threading
import types
from typing import Any

import torch

from tests.frontend.jit.state.worlds import Program, World, numbers, program

NAME = "ingot_test_configuration"


def _config_module(world: World, **entries: Any) -> Any:
    module: Any = types.ModuleType(NAME)
    vars(module).update(entries)
    world.put(sys.modules, NAME, module)
    return module


def _with_globals(source: str, **entries: Any) -> tuple[Any, dict[str, Any]]:
    """The function `f` of a source text, and the globals that it reads."""
    table: dict[str, Any] = {"torch": torch, "__name__": NAME, **entries}
    exec(compile(source, f"<{NAME}>", "exec"), table)
    return table["f"], table


@program
def config_module_imported_inside(world: World) -> Program:
    module = _config_module(world, scale=2.0)

    def scaled(x: Any) -> Any:
        import ingot_test_configuration as config  # type: ignore[import-not-found]

        return x * config.scale + 1

    return Program(scaled, lambda: setattr(module, "scale", 3.0))


@program
def name_imported_from_config_inside(world: World) -> Program:
    module = _config_module(world, scale=2.0)

    def scaled(x: Any) -> Any:
        from ingot_test_configuration import scale  # type: ignore[import-not-found]

        return x * scale + 1

    return Program(scaled, lambda: setattr(module, "scale", 3.0))


@program
def config_module_imported_by_name(world: World) -> Program:
    module = _config_module(world, scale=2.0)
    return Program(lambda x: x * importlib.import_module(NAME).scale, lambda: setattr(module, "scale", 3.0))


@program
def config_module_closed_over(world: World) -> Program:
    module = _config_module(world, scale=2.0)
    return Program(lambda x: x * module.scale + 1, lambda: setattr(module, "scale", 3.0))


@program
def config_module_held_by_object(world: World) -> Program:
    holder = types.SimpleNamespace(config=_config_module(world, scale=2.0))
    return Program(lambda x: x * holder.config.scale + 1, lambda: setattr(holder.config, "scale", 3.0))


@program
def config_module_replaced(world: World) -> Program:
    _config_module(world, scale=2.0)
    return Program(lambda x: x * sys.modules[NAME].scale + 1, lambda: _config_module(world, scale=3.0))


@program
def attribute_added_to_config_module(world: World) -> Program:
    module = _config_module(world)
    return Program(lambda x: x * getattr(module, "scale", 2.0) + 1, lambda: setattr(module, "scale", 3.0))


@program
def attribute_removed_from_config_module(world: World) -> Program:
    module = _config_module(world, scale=2.0)
    return Program(lambda x: x * 3 if not hasattr(module, "scale") else x * 2, lambda: delattr(module, "scale"))


@program
def module_level_getattr(world: World) -> Program:
    values = {"scale": 2.0}

    def attribute(name: str) -> float:
        if name not in values:
            raise AttributeError(name)
        return values[name]

    module = _config_module(world, __getattr__=attribute)
    return Program(lambda x: x * module.scale + 1, lambda: values.update(scale=3.0))


@program
def learning_rate_of_optimizer(world: World) -> Program:
    parameter = torch.nn.Parameter(numbers(0, 4, 5))
    optimizer = torch.optim.SGD([parameter], lr=0.5)
    return Program(lambda x: x * optimizer.param_groups[0]["lr"] + 1, lambda: optimizer.param_groups[0].update(lr=0.25))


@program
def global_rebound(world: World) -> Program:
    function, table = _with_globals("scale = 2.0\ndef f(x): return x * scale + 1")
    return Program(function, lambda: table.update(scale=3.0))


@program
def global_deleted(world: World) -> Program:
    function, table = _with_globals("scale = 2.0\ndef f(x): return x * scale + 1")
    return Program(function, lambda: table.pop("scale"))


@program
def builtin_shadowed_by_global(world: World) -> Program:
    function, table = _with_globals("def f(x): return x * len((1, 2)) + 1")
    return Program(function, lambda: table.update(len=lambda parts: 3))


@program
def global_defined_after_a_missing_one(world: World) -> Program:
    function, table = _with_globals(
        "def f(x):\n    try:\n        return x * scale\n    except NameError:\n        return x * 2"
    )
    return Program(function, lambda: table.update(scale=3.0))


@program
def globals_read_as_a_dictionary(world: World) -> Program:
    function, table = _with_globals("scale = 2.0\ndef f(x): return x * globals()['scale'] + 1")
    return Program(function, lambda: table.update(scale=3.0))


@program
def helper_in_globals_replaced(world: World) -> Program:
    function, table = _with_globals("def helper(x): return x * 2\ndef f(x): return helper(x) + 1")
    return Program(function, lambda: table.update(helper=lambda x: x * 3))


@program
def cell_rebound(world: World) -> Program:
    scale = 2.0

    def change() -> None:
        nonlocal scale
        scale = 3.0

    return Program(lambda x: x * scale + 1, change)


@program
def cell_contents_assigned(world: World) -> Program:
    scale = 2.0
    function: Any = lambda x: x * scale + 1
    return Program(function, lambda: setattr(function.__closure__[0], "cell_contents", 3.0))


@program
def cell_emptied(world: World) -> Program:
    scale = 2.0
    function: Any = lambda x: x * scale + 1

    def change() -> None:
        del function.__closure__[0].cell_contents

    return Program(function, change)


@program
def cell_of_called_closure_rebound(world: World) -> Program:
    def make() -> tuple[Any, Any]:
        scale = 2.0

        def change() -> None:
            nonlocal scale
            scale = 3.0

        return lambda x: x * scale, change

    inner, change = make()
    return Program(lambda x: inner(x) + 1, change)


@program
def entry_of_dict_subclass(world: World) -> Program:
    class Settings(dict[str, float]):
        pass

    settings = Settings(scale=2.0)
    return Program(lambda x: x * settings["scale"] + 1, lambda: settings.update(scale=3.0))


@program
def attribute_of_dict_subclass(world: World) -> Program:
    class Settings(dict[str, float]):
        scale = 2.0

    settings = Settings()
    return Program(lambda x: x * settings.scale + 1, lambda: setattr(settings, "scale", 3.0))


@program
def missing_entry_of_dict_subclass(world: World) -> Program:
    class Settings(dict[str, float]):
        def __missing__(self, key: str) -> float:
            return 2.0

    settings = Settings()
    return Program(lambda x: x * settings["scale"] + 1, lambda: settings.update(scale=3.0))


@program
def default_dict_filled(world: World) -> Program:
    counts: Any = collections.defaultdict(lambda: 2.0)

    def scaled(x: Any) -> Any:
        counts[x.shape[0]] += 1
        return x * counts[x.shape[0]]

    return Program(scaled, lambda: counts.clear(), observe=lambda: dict(counts))


@program
def ordered_dict_moved_to_end(world: World) -> Program:
    table = collections.OrderedDict(a=2.0, b=3.0)
    return Program(lambda x: x * next(iter(table.values())) + 1, lambda: table.move_to_end("a"))


@program
def order_of_dictionary(world: World) -> Program:
    table = {"a": 2.0, "b": 3.0}

    def scaled(x: Any) -> Any:
        for factor in table.values():
            x = x * factor + 1
        return x

    return Program(scaled, lambda: table.update(a=table.pop("a")))


@program
def key_of_dictionary_replaced_by_an_equal_one(world: World) -> Program:
    table: dict[Any, float] = {1: 2.0}

    def scaled(x: Any) -> Any:
        return x * 2 if type(next(iter(table))) is int else x * 3

    def change() -> None:
        del table[1]
        table[True] = 2.0

    return Program(scaled, change)


@program
def chain_map_extended(world: World) -> Program:
    first: dict[str, float] = {}
    chain = collections.ChainMap(first, {"scale": 2.0})
    return Program(lambda x: x * chain["scale"] + 1, lambda: first.update(scale=3.0))


@program
def mapping_proxy(world: World) -> Program:
    table = {"scale": 2.0}
    proxy = types.MappingProxyType(table)
    return Program(lambda x: x * proxy["scale"] + 1, lambda: table.update(scale=3.0))


@program
def view_of_dictionary(world: World) -> Program:
    table = {"scale": 2.0}
    values = table.values()
    return Program(lambda x: x * sum(values) + 1, lambda: table.update(bias=1.0))


@program
def order_of_list(world: World) -> Program:
    factors = [2.0, 3.0]
    return Program(lambda x: (x * factors[0] + 1) * factors[1], factors.reverse)


@program
def element_of_list_subclass(world: World) -> Program:
    class Factors(list[float]):
        pass

    factors = Factors([2.0])
    return Program(lambda x: x * factors[0] + 1, lambda: factors.__setitem__(0, 3.0))


@program
def list_in_a_tuple(world: World) -> Program:
    nested = ("factors", ([2.0],))
    return Program(lambda x: x * nested[1][0][0] + 1, lambda: nested[1][0].__setitem__(0, 3.0))


@program
def contents_of_set(world: World) -> Program:
    names = {"scale"}
    return Program(lambda x: x * 2 if "bias" not in names else x * 3 + 1, lambda: names.add("bias"))


@program
def set_with_as_many_others(world: World) -> Program:
    names = {2.0}
    return Program(lambda x: x * next(iter(names)), lambda: (names.clear(), names.add(3.0)))


@program
def bytes_array_changed(world: World) -> Program:
    data = bytearray(b"\x02")
    window = memoryview(data)
    return Program(lambda x: x * window[0] + 1, lambda: data.__setitem__(0, 3))


@program
def settings_object_from_lru_cache(world: World) -> Program:
    @functools.lru_cache
    def settings() -> Any:
        return types.SimpleNamespace(scale=2.0)

    return Program(lambda x: x * settings().scale + 1, lambda: setattr(settings(), "scale", 3.0))


@program
def lru_cache_cleared(world: World) -> Program:
    values = [2.0]
    scale = functools.lru_cache(lambda: values[0])

    def change() -> None:
        values[0] = 3.0
        scale.cache_clear()

    return Program(lambda x: x * scale() + 1, change, observe=lambda: scale.cache_info()[:2])


@program
def environment_variable(world: World) -> Program:
    world.put(os.environ, "INGOT_TEST_STATE", "2")
    return Program(
        lambda x: x * float(os.environ["INGOT_TEST_STATE"]), lambda: os.environ.__setitem__("INGOT_TEST_STATE", "3")
    )


@program
def environment_variable_added(world: World) -> Program:
    return Program(
        lambda x: x * float(os.getenv("INGOT_TEST_STATE", "2")), lambda: world.put(os.environ, "INGOT_TEST_STATE", "3")
    )


@program
def command_line(world: World) -> Program:
    return Program(
        lambda x: x * 3 if "--triple" in sys.argv else x * 2,
        lambda: world.patch(sys, "argv", [*sys.argv, "--triple"]),
    )


@program
def recursion_limit(world: World) -> Program:
    before = sys.getrecursionlimit()
    world.at_end(sys.setrecursionlimit, before)
    return Program(lambda x: x * (sys.getrecursionlimit() - before + 2), lambda: sys.setrecursionlimit(before + 1))


@program
def thread_local(world: World) -> Program:
    local: Any = threading.local()
    local.scale = 2.0
    return Program(lambda x: x * local.scale + 1, lambda: setattr(local, "scale", 3.0))


@program
def thread_local_subclass(world: World) -> Program:
    class Local(threading.local):
        scale = 2.0

    local = Local()
    return Program(lambda x: x * local.scale + 1, lambda: setattr(local, "scale", 3.0))


@program
def context_variable(world: World) -> Program:
    scale: contextvars.ContextVar[float] = contextvars.ContextVar("scale", default=2.0)
    return Program(lambda x: x * scale.get() + 1, lambda: scale.set(3.0))


@program
def context_of_the_call(world: World) -> Program:
    scale: contextvars.ContextVar[float] = contextvars.ContextVar("scale", default=2.0)
    context = contextvars.copy_context()
    return Program(
        lambda x: x * scale.get() + 1, lambda: context.run(scale.set, 3.0), call=lambda run: context.run(run)
    )


@program
def attribute_of_enum_member(world: World) -> Program:
    class Kind(enum.Enum):
        FIRST = 1

    member: Any = Kind.FIRST
    member.scale = 2.0
    return Program(lambda x: x * member.scale + 1, lambda: setattr(member, "scale", 3.0))


@program
def enum_member_chosen(world: World) -> Program:
    class Kind(enum.Enum):
        DOUBLE = "a"
        TRIPLE = "b"

    holder = types.SimpleNamespace(kind=Kind.DOUBLE)
    return Program(
        lambda x: x * 2 if holder.kind is Kind.DOUBLE else x * 3, lambda: setattr(holder, "kind", Kind.TRIPLE)
    )
