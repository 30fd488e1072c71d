"""Arguments of all kinds: numbers of changing type, unknown types, keys that are equal, keywords, containers."""

from __future__ import annotations

import collections
import dataclasses
import decimal
import enum
import fractions
import types
from typing import Any

import numpy
import torch

from tests.frontend.jit.state.worlds import Program, Stranger, World, numbers, program


def _with(*values: Any) -> Any:
    """A tensor and one of several values, in turn."""
    return lambda call: (numbers(call, 4, 5), values[call % len(values)])


@program
def object_of_unknown_type(world: World) -> Program:
    return Program(lambda x, other: x * other.scale, arguments=_with(Stranger(2.0), Stranger(3.0)))


@program
def object_of_unknown_type_changed(world: World) -> Program:
    stranger = Stranger(2.0)
    return Program(lambda x, other: x * other.scale, lambda: setattr(stranger, "scale", 3.0), _with(stranger))


@program
def object_of_unknown_type_written(world: World) -> Program:
    stranger = Stranger(2.0)

    def writing(x: Any, other: Any) -> Any:
        other.scale += 1
        return x * other.scale

    return Program(writing, arguments=_with(stranger), observe=lambda: stranger.scale)


@program
def dataclass_with_tensors(world: World) -> Program:
    @dataclasses.dataclass
    class State:
        x: torch.Tensor
        scale: float

    def stepping(state: Any) -> Any:
        state.x = state.x * state.scale
        return State(state.x + 1, state.scale * 2)

    return Program(stepping, arguments=lambda call: (State(numbers(call, 4, 5), float(call % 3)),))


@program
def mutable_cache_given(world: World) -> Program:
    class Cache:
        def __init__(self) -> None:
            self.keys: Any = None

        def update(self, new: torch.Tensor) -> torch.Tensor:
            self.keys = new if self.keys is None else torch.cat([self.keys, new])
            return self.keys

    cache = Cache()
    return Program(
        lambda x, cache: cache.update(x) * 2,
        lambda: setattr(cache, "keys", None),
        lambda call: (numbers(call, 1, 5), cache),
        observe=lambda: cache.keys,
    )


@program
def dict_subclass_given(world: World) -> Program:
    class Batch(dict[str, Any]):
        def scale(self) -> float:
            return self["scale"] + 1

    return Program(
        lambda batch: batch["x"] * batch.scale(),
        arguments=lambda call: (Batch(x=numbers(call, 4, 5), scale=float(call % 3)),),
    )


@program
def ordered_dict_given(world: World) -> Program:
    def folding(batch: Any) -> Any:
        result = 0
        for value in batch.values():
            result = result * 2 + value
        return result

    def arguments(call: int) -> tuple[Any, ...]:
        batch = collections.OrderedDict(a=numbers(call, 4), b=numbers(call + 1, 4))
        if call % 3 == 2:
            batch.move_to_end("a")
        return (batch,)

    return Program(folding, arguments=arguments)


@program
def dictionary_given_in_another_order(world: World) -> Program:
    def folding(batch: Any) -> Any:
        result = 0
        for value in batch.values():
            result = result * 2 + value
        return result

    orders = [("a", "b")]

    def arguments(call: int) -> tuple[Any, ...]:
        return ({name: numbers(call + (name == "a"), 4) for name in orders[0]},)

    return Program(folding, lambda: orders.__setitem__(0, ("b", "a")), arguments)


@program
def none_or_tensor(world: World) -> Program:
    def masked(x: Any, mask: Any = None) -> Any:
        return x * 2 if mask is None else x * mask

    return Program(masked, arguments=_with(None, numbers(1, 4, 5), None))


@program
def keys_one_true_and_one_point_zero(world: World) -> Program:
    keys: list[Any] = [1, True, 1.0]

    def scaled(batch: Any) -> Any:
        ((key, x),) = batch.items()
        return (x * {int: 2, bool: 3, float: 5}[type(key)], key)

    return Program(scaled, arguments=lambda call: ({keys[call % 3 if call > 10 else 0]: numbers(call, 4)},))


@program
def result_keyed_by_equal_numbers(world: World) -> Program:
    keys: list[Any] = [1, True, 1.0]
    return Program(lambda x, key: {key: x * 2}, arguments=lambda call: (numbers(call, 4), keys[call % 3]))


@program
def number_that_changes_type(world: World) -> Program:
    return Program(lambda x, n: x.long() * n, arguments=_with(1, 1, 1, 1.0, True, 1))


@program
def number_whose_type_is_asked(world: World) -> Program:
    return Program(lambda x, n: x * 2 if isinstance(n, int) else x * 3, arguments=_with(1, 1, 1, 1.0, True))


@program
def number_returned(world: World) -> Program:
    return Program(lambda x, n: (x * n, n), arguments=_with(1, 1.0, True, 0, -0.0, 0.0, False))


@program
def negative_zero(world: World) -> Program:
    return Program(lambda x, n: torch.ones(3) / (torch.zeros(3) * 0 + n), arguments=_with(0.0, 0.0, 0.0, -0.0, 0.0))


@program
def not_a_number(world: World) -> Program:
    nan = float("nan")
    return Program(
        lambda x, n: x * 2 if n == n else x * 3 + n, arguments=_with(1.0, nan, nan, float("inf"), float("nan"), 1.0)
    )


@program
def large_integers(world: World) -> Program:
    return Program(lambda x, n: x.long() + n, arguments=_with(1, 2**40, 2**62, 2**63 - 1, 2**63, 2**70, -(2**63), 3))


@program
def integers_at_the_edge_of_a_type(world: World) -> Program:
    def adding(x: Any, n: Any) -> Any:
        return x.to(torch.uint8) + n

    return Program(adding, arguments=lambda call: (numbers(call, 4).abs(), [1, 254, 255, 256, 300, -1, 3][call % 7]))


@program
def floats_from_a_schedule(world: World) -> Program:
    return Program(lambda x, n: x * n + n**2, arguments=lambda call: (numbers(call, 4, 5), 0.5**call))


@program
def powers_of_a_step(world: World) -> Program:
    return Program(lambda x, step: x / (1 - 0.5**step), arguments=lambda call: (numbers(call, 4, 5), call + 1))


@program
def texts(world: World) -> Program:
    return Program(
        lambda x, kind: torch.tanh(x) if kind == "tanh" else torch.relu(x), arguments=_with("tanh", "relu", "", "tanh")
    )


@program
def text_not_interned(world: World) -> Program:
    return Program(
        lambda x, kind: x * 2 if kind is kept else x * 3,
        arguments=lambda call: (numbers(call, 4), kept if call < 14 else "".join(["ta", "nh"])),
    )


kept = "tanh"


@program
def types_of_data(world: World) -> Program:
    return Program(
        lambda x, dtype: x.to(dtype) * 2, arguments=_with(torch.float32, torch.int32, torch.float64, torch.float32)
    )


@program
def tensors_of_changing_type(world: World) -> Program:
    kinds = [torch.float32, torch.float64, torch.int64, torch.bool, torch.complex64, torch.bfloat16]
    return Program(lambda x: x * 2 + 1, arguments=lambda call: (numbers(call, 4, 5).to(kinds[call % 6]),))


@program
def enum_given(world: World) -> Program:
    class Kind(enum.Enum):
        DOUBLE = 2
        TRIPLE = 3

    return Program(lambda x, kind: x * kind.value, arguments=_with(Kind.DOUBLE, Kind.TRIPLE, Kind.DOUBLE))


@program
def integer_enum_given(world: World) -> Program:
    class Kind(enum.IntEnum):
        DOUBLE = 2

    return Program(
        lambda x, kind: x * kind if isinstance(kind, enum.Enum) else x * 5, arguments=_with(Kind.DOUBLE, 2, Kind.DOUBLE)
    )


@program
def numpy_number_given(world: World) -> Program:
    return Program(lambda x, n: x * n, arguments=_with(numpy.float32(2), numpy.float64(3), numpy.int64(2), 2.0))


@program
def numpy_array_given(world: World) -> Program:
    return Program(
        lambda x, a: x + torch.from_numpy(a), arguments=lambda call: (numbers(call, 4), numbers(call, 4).numpy() * 2)
    )


@program
def numpy_array_changed(world: World) -> Program:
    array = numpy.array([2.0, 3.0])
    return Program(lambda x, a: x * float(a[0]), lambda: array.__setitem__(0, 5.0), _with(array))


@program
def fraction_and_decimal(world: World) -> Program:
    return Program(
        lambda x, n: x * float(n),
        arguments=_with(fractions.Fraction(1, 2), decimal.Decimal("2"), fractions.Fraction(3)),
    )


@program
def function_given(world: World) -> Program:
    return Program(lambda x, f: f(x) + 1, arguments=_with(torch.tanh, torch.relu, lambda x: x * 2, torch.tanh))


@program
def fresh_closures_given(world: World) -> Program:
    return Program(lambda x, f: f(x) + 1, arguments=lambda call: (numbers(call, 4), lambda x: x * call))


@program
def module_given(world: World) -> Program:
    return Program(lambda x, m: m(x) + 1, arguments=_with(torch.nn.Tanh(), torch.nn.ReLU()))


@program
def slices_given(world: World) -> Program:
    return Program(
        lambda x, s: x[s] * 2, arguments=_with(slice(0, 2), slice(1, None), slice(0, 2), slice(None, None, 2))
    )


@program
def ranges_and_sets_given(world: World) -> Program:
    return Program(
        lambda x, n: x * sum(n) + len(n), arguments=_with(range(3), {1, 2}, frozenset({2}), range(4), {2, 3}, b"\x02")
    )


@program
def named_tuple_given(world: World) -> Program:
    Pair = collections.namedtuple("Pair", ["x", "scale"])
    return Program(
        lambda pair: Pair(pair.x * pair.scale, pair.scale),
        arguments=lambda call: (Pair(numbers(call, 4), call % 3),),
    )


@program
def nested_containers_that_change_form(world: World) -> Program:
    def total(parts: Any) -> Any:
        if isinstance(parts, torch.Tensor):
            return parts.sum()
        return sum(total(part) for part in (parts.values() if isinstance(parts, dict) else parts))

    def arguments(call: int) -> tuple[Any, ...]:
        x = numbers(call, 4)
        return ([x, [x], (x, {"a": x}), {"a": [x, x]}, []][call % 5],)

    return Program(total, arguments=arguments)


@program
def lists_of_changing_length(world: World) -> Program:
    return Program(
        lambda tensors: torch.stack(tensors).sum(0),
        arguments=lambda call: ([numbers(call + i, 4) for i in range(1 + call % 4)],),
    )


@program
def keywords_in_changing_order(world: World) -> Program:
    def folding(**tensors: Any) -> Any:
        result = 0
        for value in tensors.values():
            result = result * 2 + value
        return result

    def keywords(call: int) -> dict[str, Any]:
        names = ("a", "b") if call % 3 else ("b", "a")
        return {name: numbers(call + (name == "a"), 4) for name in names}

    return Program(folding, arguments=lambda call: (), keywords=keywords)


@program
def keyword_or_position(world: World) -> Program:
    return Program(
        lambda x, scale=2.0: x * scale,
        arguments=lambda call: (numbers(call, 4), 3.0) if call % 2 else (numbers(call, 4),),
        keywords=lambda call: {"scale": 5.0} if call % 4 == 0 else {},
    )


@program
def wrong_number_of_arguments(world: World) -> Program:
    return Program(lambda x: x * 2, arguments=lambda call: (numbers(call, 4),) * (2 if call in (5, 15) else 1))


@program
def variable_arguments(world: World) -> Program:
    return Program(
        lambda *tensors: (sum(tensors), len(tensors)),
        arguments=lambda call: tuple(numbers(call + i, 4) for i in range(call % 4)),
    )


@program
def tensor_of_another_layout(world: World) -> Program:
    def arguments(call: int) -> tuple[Any, ...]:
        x = numbers(call, 4, 5)
        return ([x, x.t().contiguous().t(), x.to_sparse(), x[::2], x.expand(2, 4, 5)][call % 5],)

    return Program(lambda x: (x * 2).sum(), arguments=arguments)


@program
def contiguity_asked(world: World) -> Program:
    def arguments(call: int) -> tuple[Any, ...]:
        x = numbers(call, 5, 5)
        return (x.t() if call % 3 == 2 else x,)

    return Program(lambda x: x * 2 if x.is_contiguous() else x * 3, arguments=arguments)


@program
def simple_namespace_given(world: World) -> Program:
    return Program(
        lambda given: given.x * given.scale,
        arguments=lambda call: (types.SimpleNamespace(x=numbers(call, 4), scale=float(call)),),
        view=lambda result: result.clone(),
    )


@program
def tensor_subclass_given(world: World) -> Program:
    class Marked(torch.Tensor):
        pass

    return Program(
        lambda x: x * 2 + 1,
        arguments=lambda call: (numbers(call, 4).as_subclass(Marked) if call % 3 == 2 else numbers(call, 4),),
    )


@program
def parameter_or_tensor(world: World) -> Program:
    def arguments(call: int) -> tuple[Any, ...]:
        x = numbers(call, 4)
        return (torch.nn.Parameter(x, requires_grad=False) if call % 3 == 2 else x,)

    return Program(lambda x: x * 2 if isinstance(x, torch.nn.Parameter) else x * 3, arguments=arguments)
