"""Objects whose attributes are found by other means than a plain dictionary, or that are told apart by identity."""

from __future__ import annotations

import abc
import copy
import dataclasses
import gc
import types
import typing
import weakref
from typing import Any

import numpy
import torch

from tests.frontend.jit.state.worlds import Program, World, numbers, program


@program
def class_attribute(world: World) -> Program:
    class Settings:
        scale = 2.0

    return Program(lambda x: x * Settings.scale + 1, lambda: setattr(Settings, "scale", 3.0))


@program
def class_attribute_shadowed_on_instance(world: World) -> Program:
    class Settings:
        scale = 2.0

    settings = Settings()
    return Program(lambda x: x * settings.scale + 1, lambda: setattr(settings, "scale", 3.0))


@program
def class_given_as_argument(world: World) -> Program:
    class Settings:
        scale = 2.0

    return Program(
        lambda x, settings: x * settings.scale + 1,
        lambda: setattr(Settings, "scale", 3.0),
        lambda call: (numbers(call, 4, 5), Settings),
    )


@program
def property_over_hidden_state(world: World) -> Program:
    hidden = {"scale": 2.0}

    class Settings:
        @property
        def scale(self) -> float:
            return hidden["scale"]

    settings = Settings()
    return Program(lambda x: x * settings.scale + 1, lambda: hidden.update(scale=3.0))


@program
def property_replaced(world: World) -> Program:
    class Settings:
        @property
        def scale(self) -> float:
            return 2.0

    settings = Settings()
    return Program(lambda x: x * settings.scale + 1, lambda: setattr(Settings, "scale", property(lambda self: 3.0)))


@program
def property_that_counts(world: World) -> Program:
    class Settings:
        def __init__(self) -> None:
            self.reads = 0

        @property
        def scale(self) -> float:
            self.reads += 1
            return float(self.reads)

    settings = Settings()
    return Program(lambda x: x * settings.scale + 1, observe=lambda: settings.reads)


@program
def getattr_fallback(world: World) -> Program:
    hidden = {"scale": 2.0}

    class Settings:
        def __getattr__(self, name: str) -> Any:
            if name not in hidden:
                raise AttributeError(name)
            return hidden[name]

    settings = Settings()
    return Program(lambda x: x * settings.scale + 1, lambda: hidden.update(scale=3.0))


@program
def getattr_fallback_with_another_error(world: World) -> Program:
    hidden = {"scale": 2.0}

    class Settings:
        def __getattr__(self, name: str) -> Any:
            return hidden[name]

    settings = Settings()
    return Program(lambda x: x * settings.scale + 1, lambda: hidden.update(scale=3.0))


@program
def getattr_fallback_that_counts(world: World) -> Program:
    class Settings:
        def __getattr__(self, name: str) -> Any:
            if name != "scale":
                raise AttributeError(name)
            world.log.append(name)
            return float(len(world.log))

    settings = Settings()
    return Program(lambda x: x * settings.scale + 1, world.log.clear)


@program
def getattr_fallback_overtaken(world: World) -> Program:
    class Settings:
        def __getattr__(self, name: str) -> Any:
            return 2.0

    settings = Settings()
    return Program(lambda x: x * settings.scale + 1, lambda: setattr(settings, "scale", 3.0))


@program
def getattribute_overridden(world: World) -> Program:
    hidden = [2.0]

    class Settings:
        scale = 7.0

        def __getattribute__(self, name: str) -> Any:
            return hidden[0] if name == "scale" else object.__getattribute__(self, name)

    settings = Settings()
    return Program(lambda x: x * settings.scale + 1, lambda: hidden.__setitem__(0, 3.0))


@program
def descriptor_with_state(world: World) -> Program:
    class Scale:
        value = 2.0

        def __get__(self, instance: Any, owner: Any = None) -> float:
            return self.value

    scale = Scale()

    class Settings:
        pass

    class_: Any = Settings
    class_.scale = scale
    settings: Any = Settings()
    return Program(lambda x: x * settings.scale + 1, lambda: setattr(scale, "value", 3.0))


@program
def metaclass_attribute(world: World) -> Program:
    class Meta(type):
        scale = 2.0

    class Settings(metaclass=Meta):
        pass

    return Program(lambda x: x * Settings.scale + 1, lambda: setattr(Meta, "scale", 3.0))


@program
def metaclass_property(world: World) -> Program:
    hidden = [2.0]

    class Meta(type):
        @property
        def scale(cls) -> float:
            return hidden[0]

    class Settings(metaclass=Meta):
        pass

    return Program(lambda x: x * Settings.scale + 1, lambda: hidden.__setitem__(0, 3.0))


@program
def slot(world: World) -> Program:
    class Settings:
        __slots__ = ("scale",)

        def __init__(self) -> None:
            self.scale = 2.0

    settings = Settings()
    return Program(lambda x: x * settings.scale + 1, lambda: setattr(settings, "scale", 3.0))


@program
def slot_emptied(world: World) -> Program:
    class Settings:
        __slots__ = ("scale",)

    settings = Settings()
    settings.scale = 2.0  # type: ignore[attr-defined]
    return Program(lambda x: x * getattr(settings, "scale", 5.0) + 1, lambda: delattr(settings, "scale"))


@program
def frozen_dataclass_forced(world: World) -> Program:
    @dataclasses.dataclass(frozen=True)
    class Settings:
        scale: float = 2.0

    settings = Settings()
    return Program(lambda x: x * settings.scale + 1, lambda: object.__setattr__(settings, "scale", 3.0))


@program
def named_tuple_replaced(world: World) -> Program:
    class Settings(typing.NamedTuple):
        scale: float

    holder = [Settings(2.0)]
    return Program(lambda x: x * holder[0].scale + 1, lambda: holder.__setitem__(0, Settings(3.0)))


@program
def attribute_behind_many_objects(world: World) -> Program:
    deep = types.SimpleNamespace(a=types.SimpleNamespace(b=[{"c": types.SimpleNamespace(scale=2.0)}]))
    return Program(lambda x: x * deep.a.b[0]["c"].scale + 1, lambda: setattr(deep.a.b[0]["c"], "scale", 3.0))


@program
def weak_reference_that_dies(world: World) -> Program:
    class Settings:
        pass

    held = [Settings()]
    reference = weakref.ref(held[0])

    def change() -> None:
        held.clear()
        gc.collect()

    return Program(lambda x: x * 2 if reference() is not None else x * 3, change)


@program
def weak_dictionary_that_empties(world: World) -> Program:
    class Settings:
        pass

    held = [Settings()]
    table: Any = weakref.WeakValueDictionary(scale=held[0])

    def change() -> None:
        held.clear()
        gc.collect()

    return Program(lambda x: x * (len(table) + 2), change)


@program
def weak_set_of_objects(world: World) -> Program:
    class Settings:
        pass

    held = [Settings(), Settings()]
    alive: Any = weakref.WeakSet(held)

    def change() -> None:
        held.pop()
        gc.collect()

    return Program(lambda x: x * len(alive) + 1, change)


@program
def weak_reference_to_an_argument(world: World) -> Program:
    last: list[Any] = [lambda: None]

    def watched(x: Any) -> Any:
        world.log.append(last[0]() is None)
        last[0] = weakref.ref(x)
        return x * 2 + 1

    return Program(watched)


@program
def sentinel_replaced(world: World) -> Program:
    missing = object()
    holder = [missing]
    return Program(lambda x: x * 2 if holder[0] is missing else x * 3, lambda: holder.__setitem__(0, object()))


@program
def sentinel_among_equal_lists(world: World) -> Program:
    marker: list[Any] = []
    holder = [marker]
    return Program(lambda x: x * 2 if holder[0] is marker else x * 3, lambda: holder.__setitem__(0, []))


@program
def identity_of_an_equal_copy(world: World) -> Program:
    class Key:
        def __eq__(self, other: object) -> bool:
            return True

        def __hash__(self) -> int:
            return 1

    key = Key()
    holder = [key]
    return Program(lambda x: x * 2 if holder[0] is key else x * 3, lambda: holder.__setitem__(0, Key()))


@program
def type_of_attribute_changes(world: World) -> Program:
    holder: Any = types.SimpleNamespace(scale=2)
    return Program(lambda x: (x.long() * holder.scale,), lambda: setattr(holder, "scale", 2.0))


@program
def truth_becomes_a_number(world: World) -> Program:
    holder: Any = types.SimpleNamespace(flag=True)
    return Program(
        lambda x: x * 2 if holder.flag is True else x * 3, lambda: setattr(holder, "flag", numpy.bool_(True))
    )


@program
def registry_of_subclasses_grows(world: World) -> Program:
    class Base:
        pass

    made: list[type] = [type("First", (Base,), {})]
    return Program(lambda x: x * len(Base.__subclasses__()) + 1, lambda: made.append(type("Second", (Base,), {})))


@program
def virtual_subclass_registered(world: World) -> Program:
    class Kind(abc.ABC):  # noqa: B024
        pass

    class Thing:
        pass

    thing = Thing()
    return Program(lambda x: x * 3 if isinstance(thing, Kind) else x * 2, lambda: Kind.register(Thing))


@program
def attribute_of_tensor(world: World) -> Program:
    state: Any = numbers(1, 4, 5)
    state.scale = 2.0
    return Program(lambda x: (x + state) * state.scale, lambda: setattr(state, "scale", 3.0))


@program
def attribute_of_tensor_argument(world: World) -> Program:
    scales = [2.0]

    def arguments(call: int) -> tuple[Any, ...]:
        x: Any = numbers(call, 4, 5)
        x.scale = scales[0]
        return (x,)

    return Program(lambda x: x * x.scale + 1, lambda: scales.__setitem__(0, 3.0), arguments)


@program
def attribute_set_on_result(world: World) -> Program:
    def marked(x: Any) -> Any:
        result: Any = x * 2
        result.mark = len(world.log)
        world.log.append("marked")
        return result

    return Program(marked, view=lambda result: (result, result.mark))


@program
def tensor_in_a_list_replaced(world: World) -> Program:
    tensors = [numbers(1, 4, 5)]
    return Program(lambda x: x + tensors[0] * 2, lambda: tensors.__setitem__(0, numbers(2, 4, 5)))


@program
def tensor_closed_over_written(world: World) -> Program:
    state = numbers(1, 4, 5)
    return Program(lambda x: x + state * 2, lambda: state.mul_(3))


@program
def tensor_closed_over_with_new_data(world: World) -> Program:
    state = numbers(1, 4, 5)
    return Program(lambda x: x + state * 2, lambda: setattr(state, "data", numbers(2, 4, 5)))


@program
def tensor_closed_over_set_to_other_memory(world: World) -> Program:
    state: Any = numbers(1, 4, 5)
    other = numbers(3, 4, 5)
    return Program(lambda x: x + state * 2, lambda: state.set_(other))


@program
def tensor_closed_over_resized(world: World) -> Program:
    state = numbers(1, 4, 5)

    def change() -> None:
        state.resize_(1, 5).fill_(2.0)

    return Program(lambda x: x + state * 2, change)


@program
def tensors_swapped(world: World) -> Program:
    state, other = numbers(1, 4, 5), numbers(3, 4, 5)
    return Program(lambda x: x + state * 2, lambda: torch.utils.swap_tensors(state, other))


@program
def identity_of_tensors(world: World) -> Program:
    first, second = numbers(1, 4, 5), numbers(1, 4, 5)
    holder = [first, first]
    return Program(lambda x: x + first if holder[0] is holder[1] else x * second, lambda: holder.__setitem__(1, second))


@program
def custom_hash_and_equality_counted(world: World) -> Program:
    class Key:
        def __hash__(self) -> int:
            world.log.append("hash")
            return 1

        def __eq__(self, other: object) -> bool:
            world.log.append("equal")
            return isinstance(other, Key)

    table = {Key(): 2.0}
    key = Key()
    return Program(lambda x: x * table[key] + 1, lambda: table.update({key: 3.0}))


@program
def deep_copy_of_state(world: World) -> Program:
    state = {"scale": [2.0]}
    return Program(lambda x: x * copy.deepcopy(state)["scale"][0] + 1, lambda: state["scale"].__setitem__(0, 3.0))
