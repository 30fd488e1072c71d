"""Launches that begin while the one before them ends: each still sees everything that was written before it.

Every call reads what the call before it has written, at other places, so that it comes from other multiprocessors; and
memory is so large that launches are no graphs, and so scarce that results lie where inputs of the call before were.
Numbers are whole, so that results are exact.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

import ingot
from ingot.runtime.cuda.driver import device
from ingot.runtime.native.cuda.graph_launching import MOST_BYTES

pytestmark = [pytest.mark.cuda, pytest.mark.usefixtures("no_eager_comparison")]

GPU = torch.device("cuda", 0)
ROWS, COLUMNS = 1024, 2048
CALLS = 300
SMALL = 256, 256


def whole_numbers(*shape: int) -> torch.Tensor:
    return torch.randint(-8, 8, shape, device=GPU).float()


def called_often(function: Any, *inputs: torch.Tensor) -> Any:
    """The function compiled, and called often enough to be answered natively."""
    call = ingot.jit(function)
    for _ in range(4):
        call(*[x.clone() for x in inputs])
    return call


def compiled(function: Any, *inputs: torch.Tensor) -> Any:
    """The same for inputs so large that launches are no graphs."""
    assert sum(x.nbytes for x in inputs) > MOST_BYTES
    return called_often(function, *inputs)


def test_kernels_wait_by_themselves_where_devices_can_overlap_them():
    x = whole_numbers(ROWS, COLUMNS)
    call = compiled(lambda x: x * 2 + 1, x)
    waits = "griddepcontrol.wait;" in call.inspect("ptx")
    assert waits == (device(0).capability >= (9, 0))


def test_every_call_reads_what_the_one_before_it_wrote():
    x = whole_numbers(ROWS, COLUMNS)
    call = compiled(lambda x: x.flip(0) + 1, x)
    found = x
    for _ in range(CALLS):
        found = call(found)
    assert torch.equal(found, (x if CALLS % 2 == 0 else x.flip(0)) + CALLS)


def test_rows_and_columns_take_turns():
    """Sums along rows and along columns, both of which need what all blocks of the call before have written."""
    x = whole_numbers(ROWS, COLUMNS)
    along_rows = compiled(lambda x: (x + x.sum(1, keepdim=True)).remainder(64.0), x)
    along_columns = compiled(lambda x: (x + x.sum(0, keepdim=True)).remainder(64.0), x)
    found, expected = x, x.double()
    for _ in range(20):
        found = along_columns(along_rows(found))
        expected = (expected + expected.sum(1, keepdim=True)).remainder(64.0)
        expected = (expected + expected.sum(0, keepdim=True)).remainder(64.0)
    assert torch.equal(found.double(), expected)


def test_totals_that_blocks_count_themselves_for():
    x = whole_numbers(ROWS, COLUMNS).abs()
    total = compiled(lambda x: x.sum(), x)
    shifted = compiled(lambda x, by: (x.flip(1) + by).remainder(8.0), x, torch.ones((), device=GPU))
    found, expected = x, x.double()
    for _ in range(50):
        found = shifted(found, total(found))
        expected = (expected.flip(1) + expected.sum()).remainder(8.0)
    assert torch.equal(found.double(), expected)


def test_what_is_written_in_place_is_seen():
    x, y = whole_numbers(ROWS, COLUMNS), whole_numbers(ROWS, COLUMNS)

    def step(x: torch.Tensor, y: torch.Tensor) -> None:
        x.add_(y.flip(0)).remainder_(32.0)

    call, expected = compiled(step, x, y), [x.double(), y.double()]
    for _ in range(50):
        call(x, y)
        call(y, x)
        step(*expected)
        step(*reversed(expected))
    assert torch.equal(x.double(), expected[0]) and torch.equal(y.double(), expected[1])


@pytest.mark.parametrize("own_stream", [False, True])
def test_kernels_of_others_come_between(own_stream: bool):
    x = whole_numbers(ROWS, COLUMNS)
    call = compiled(lambda x: x.flip(0) + 1, x)
    stream = torch.cuda.Stream() if own_stream else torch.cuda.current_stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        found = x
        for _ in range(CALLS):
            found = call(found.flip(0).sub_(1))
    stream.synchronize()
    assert torch.equal(found, x)


def test_copies_to_the_host_wait_for_the_last_launch():
    x = whole_numbers(ROWS, COLUMNS)
    call = compiled(lambda x: x.flip(0) + 1, x)
    there = torch.empty(ROWS, COLUMNS, pin_memory=True)
    for number in range(20):
        there.copy_(call(x + number), non_blocking=True)
        torch.cuda.current_stream().synchronize()
        assert torch.equal(there, (x.flip(0) + number + 1).cpu())


# --- captured ---------------------------------------------------------------------------------------------------------


def captured(body: Any) -> Any:
    """What a body gives that is captured in a graph, on a stream of its own which it is told, after some replays."""
    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.graph(graph, stream=stream):
        result = body(stream)
    for _ in range(5):
        graph.replay()
    torch.cuda.synchronize()
    return result


@pytest.mark.parametrize("shape", [(ROWS, COLUMNS), SMALL])
def test_chains_are_replayed_in_their_order(shape: tuple[int, int]):
    x = whole_numbers(*shape)
    call = called_often(lambda x: x.flip(0) + 1, x)

    def chain(stream: torch.cuda.Stream) -> torch.Tensor:
        found = x
        for _ in range(99):
            found = call(found)
        return found

    assert torch.equal(captured(chain), x.flip(0) + 99)


def test_copies_come_between_captured_launches():
    x = whole_numbers(*SMALL)
    call = called_often(lambda x: x.flip(0) + 1, x)

    def copied(stream: torch.cuda.Stream) -> torch.Tensor:
        there = torch.empty_like(x)
        there.copy_(call(x))
        cleared = torch.empty_like(x).zero_()
        return call(there) + call(cleared) + call(torch.relu(there))

    assert torch.equal(captured(copied), x + 2 + 1 + torch.relu(x.flip(0) + 1).flip(0) + 1)


def test_captured_launches_on_two_streams_wait_for_each_other():
    x, other = whole_numbers(*SMALL), torch.cuda.Stream()
    call = called_often(lambda x: x.flip(0) + 1, x)

    def forked(stream: torch.cuda.Stream) -> torch.Tensor:
        first = call(x)
        other.wait_stream(stream)
        with torch.cuda.stream(other):
            there = call(call(first))
        here = call(first)
        stream.wait_stream(other)
        return call(there) + here

    assert torch.equal(captured(forked), x + 4 + x + 2)
