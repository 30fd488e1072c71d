"""What blocks of threads are counted by: who shares it, who has its own, and what native code is told."""

import ctypes
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import pytest

from ingot.base.errors import CudaError
from ingot.loops.gpu.schedule import MOST_COUNTERS
from ingot.runtime.cuda.counters import COUNTER_BYTES, Counters
from ingot.runtime.native.cuda.device_structs import MOST_STREAMS, StreamsWords
from tests.runtime.cuda.fake_driver import FakeDriver

STREAM, OTHER, CAPTURED, OF_EACH_THREAD = 0x10, 0x20, 0x30, 2


@pytest.fixture
def fake(install) -> FakeDriver:
    fake = install(FakeDriver())
    fake.captured.add(CAPTURED)
    return fake


def known(counters: Counters) -> dict[int, int]:
    """Streams that native code knows."""
    table = StreamsWords.at(counters.table)
    return {stream.handle: stream.counters for stream in table.streams[: table.count]}


def test_launches_of_a_stream_share_theirs_and_streams_do_not(fake):
    counters = Counters(0)
    first, second = counters.for_launch(STREAM, 3), counters.for_launch(OTHER, 1)
    assert counters.for_launch(STREAM, MOST_COUNTERS) == first
    assert abs(second - first) >= MOST_COUNTERS * COUNTER_BYTES
    assert known(counters) == {STREAM: first, OTHER: second}


def test_every_captured_call_has_its_own(fake):
    counters = Counters(0)
    places = [counters.for_launch(CAPTURED, count) for count in (3, 1, 2, 1)]
    assert [later - earlier for earlier, later in pairwise(places)] == [12, 4, 8]
    assert known(counters) == {}, "native code leaves such calls to Python"


def test_memory_for_them_is_taken_unseen_by_captures_and_no_two_overlap(fake):
    counters, taken = Counters(0), []
    for number in range(40):
        taken.append((counters.for_launch(0x100 + number, 1), MOST_COUNTERS * COUNTER_BYTES))
        taken.append((counters.for_launch(CAPTURED, 5), 5 * COUNTER_BYTES))
    assert all(
        first + size <= second for (first, size), (second, _) in zip(sorted(taken), sorted(taken)[1:], strict=False)
    )
    for first, size in taken:
        assert any(begin <= first and first + size <= begin + room for begin, room in fake.allocated)
    assert 1 < len(fake.allocated) < 5
    modes = [call[1] for call in fake.named("cuThreadExchangeStreamCaptureMode")]
    assert modes == [2, 0] * len(fake.allocated)
    assert [call[1:] for call in fake.named("cuMemsetD8Async")] == [(begin, 0, room) for begin, room in fake.allocated]
    assert not fake.streams, "streams that have done their work are gone"


def test_a_device_without_memory_is_an_error_that_says_what_to_do(fake):
    fake.codes["cuMemAlloc"] = 2
    with pytest.raises(CudaError, match="free memory of the device"):
        Counters(0).for_launch(STREAM, 1)
    del fake.codes["cuMemAlloc"]
    assert Counters(0).for_launch(STREAM, 1)


@pytest.mark.cuda
def test_on_a_device_they_are_zero_even_if_made_while_a_graph_is_captured():
    import torch

    counters, graph, source = Counters(0), torch.cuda.CUDAGraph(), torch.ones(4, device="cuda")
    with torch.cuda.graph(graph):
        doubled = source * 2
        place = counters.for_launch(torch.cuda.current_stream().cuda_stream, MOST_COUNTERS)
    graph.replay()
    assert doubled.tolist() == [2.0] * 4
    found = (ctypes.c_ubyte * (MOST_COUNTERS * COUNTER_BYTES))(*[1] * (MOST_COUNTERS * COUNTER_BYTES))
    copy = ctypes.CDLL("libcuda.so.1").cuMemcpyDtoH_v2
    assert copy(found, ctypes.c_uint64(place), ctypes.c_size_t(len(found))) == 0
    assert not any(found)


def test_a_stream_of_each_thread_is_several_streams(fake):
    counters = Counters(0)
    with ThreadPoolExecutor(1) as pool:
        elsewhere = pool.submit(counters.for_launch, OF_EACH_THREAD, 1).result()
        here = counters.for_launch(OF_EACH_THREAD, 1)
        assert pool.submit(counters.for_launch, OF_EACH_THREAD, 1).result() == elsewhere != here
    assert known(counters) == {}, "native code cannot tell them apart"


def test_more_streams_than_native_code_knows(fake):
    counters = Counters(0)
    places = [counters.for_launch(0x100 + number, 1) for number in range(MOST_STREAMS + 3)]
    assert len(known(counters)) == MOST_STREAMS and len(set(places)) == MOST_STREAMS + 3
    assert counters.for_launch(0x100 + MOST_STREAMS + 1, 1) == places[MOST_STREAMS + 1]
