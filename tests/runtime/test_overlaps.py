"""Memory is shared where addresses are, however many storages there are for it."""

from __future__ import annotations

import itertools
import mmap
import random
from collections.abc import Callable, Iterator

import numpy
import pytest
import torch

from ingot import GraphBuilder
from ingot.runtime.overlaps import NumberedMemory, addresses_of, are_joined, do_overlap
from ingot.runtime.plan import Plan

Pair = tuple[torch.Tensor, torch.Tensor]


def of_numpy(distance: int, size: int) -> Pair:
    array = numpy.arange(1000, dtype=numpy.float32)
    return torch.from_numpy(array[:size]), torch.from_numpy(array[distance : distance + size])


def of_a_storage(distance: int, size: int) -> Pair:
    memory = torch.arange(1000.0)
    return memory.as_strided((size,), (1,), 0), memory.as_strided((size,), (1,), distance)


def of_a_map(distance: int, size: int) -> Pair:
    memory = mmap.mmap(-1, 4000)
    memory.write(numpy.arange(1000, dtype=numpy.float32).tobytes())
    return (
        torch.frombuffer(memory, dtype=torch.float32, count=size),
        torch.frombuffer(memory, dtype=torch.float32, count=size, offset=4 * distance),
    )


KINDS: list[Callable[[int, int], Pair]] = [of_numpy, of_a_storage, of_a_map]


@pytest.mark.parametrize("make", KINDS)
def test_overlapping_tensors_share_memory(make: Callable[[int, int], Pair]):
    one, other = map(addresses_of, make(99, 100))
    assert do_overlap(one, other) and do_overlap(other, one)


@pytest.mark.parametrize("make", [of_numpy, of_a_map])
def test_neighbours_do_not(make: Callable[[int, int], Pair]):
    one, other = map(addresses_of, make(100, 100))
    assert not do_overlap(one, other) and not do_overlap(other, one)


def test_nothing_shares_memory_with_nothing():
    empty = addresses_of(torch.empty(0))
    assert not do_overlap(empty, empty)
    assert not are_joined([(empty, 1), (empty, 2), (range(5, 5), 3), (range(10), 4)])


@pytest.mark.parametrize("make", KINDS)
@pytest.mark.parametrize("distance", [0, 1, 37])
def test_what_is_overwritten_is_read_before_it(make: Callable[[int, int], Pair], distance: int):
    """x + 1 written over x, and the exponential of y, which is the same memory."""
    builder = GraphBuilder()
    x, y = (builder.input((500,)) for _ in range(2))
    builder.add_output(x + 1, alias_input=x)
    builder.add_output(builder.ops.exp(y / 1000))
    one, other = make(distance, 500)
    expected = torch.exp(other / 1000)
    result = Plan(builder.build()).run([one, other])[-1]
    torch.testing.assert_close(result, expected)
    assert torch.equal(one, torch.arange(500.0) + 1)


@pytest.mark.parametrize("make", KINDS)
@pytest.mark.parametrize("distance", [1, 37])
def test_elements_are_read_before_others_are_written(make: Callable[[int, int], Pair], distance: int):
    """x + y written over x, where y is x some elements further."""
    builder = GraphBuilder()
    x, y = (builder.input((500,)) for _ in range(2))
    builder.add_output(y + x, alias_input=y)
    one, other = make(distance, 500)
    expected = one + other
    Plan(builder.build()).run([one, other])
    assert torch.equal(other, expected)


# --- many of them -----------------------------------------------------------------------------------------------------


def ranges(seed: int) -> Iterator[tuple[range, int]]:
    chosen = random.Random(seed)
    for _ in range(chosen.randrange(2, 8)):
        start = chosen.randrange(30)
        yield range(start, start + chosen.randrange(6)), chosen.randrange(3)


@pytest.mark.parametrize("seed", range(300))
def test_ranges_are_joined_as_their_elements_are(seed: int):
    memories = list(ranges(seed))
    pairs = itertools.combinations(memories, 2)
    expected = any(set(one) & set(other) and number != second for (one, number), (other, second) in pairs)
    assert are_joined(memories) == expected


@pytest.mark.parametrize("seed", range(100))
def test_what_overlaps_gets_one_number(seed: int):
    known, numbers, memories = NumberedMemory(), dict[int, int](), [memory for memory, _ in ranges(seed)]
    for place, memory in enumerate(memories):
        numbers[place], replaced = known.number(memory, place)
        numbers = {key: numbers[place] if number in replaced else number for key, number in numbers.items()}
    for (first, one), (second, other) in itertools.combinations(enumerate(memories), 2):
        if set(one) & set(other):
            assert numbers[first] == numbers[second]
    assert are_joined((memory, numbers[place]) for place, memory in enumerate(memories)) is False
