"""Launches as graphs of one kernel: where they are, where they are plain, and what happens when one fails."""

import threading
from dataclasses import replace

import pytest
import torch

from ingot.base.errors import CudaError
from ingot.runtime.cuda import driver
from ingot.runtime.cuda.prepared import Launch
from ingot.runtime.native.abi.object_layout import tensor_layout
from ingot.runtime.native.abi.prototypes import prototype
from ingot.runtime.native.cuda import graph_launching
from ingot.runtime.native.cuda.device_launching import DeviceLauncher
from ingot.runtime.native.cuda.device_records import DeviceStep
from ingot.runtime.native.cuda.device_structs import MOST_EXECUTABLES, ExecutablesWords
from ingot.runtime.native.cuda.executables import Executables, executables_of
from ingot.runtime.native.cuda.graph_launching import MOST_BYTES, GraphFunctions
from ingot.runtime.native.launch.records import Patch, Record, TensorGuard
from tests.runtime.native.devices import STREAM, Machine
from tests.runtime.native.kernels import FIRST_ADDRESS, Fallback, FusedCall, integer_kernels

GRID, BLOCK = (7, 5, 3), (128, 4, 2)
HALVES = (1 << 31) - 1, 65535, 65535
"""The largest grid there is."""
OF_CUDA = 2 << 32
"""What handles of streams begin with."""


@pytest.fixture
def machine():
    return Machine()


class Copying:
    """A native function of eight words, launched as a graph where that can be: copies them, `times` times."""

    def __init__(self, machine, name="copy", grid=GRID, times=1, fallback=None, site=None, bytes_moved=0):
        self.executables = Executables()
        launch = Launch(integer_kernels().address(name), grid, BLOCK, self.executables.address)
        step = DeviceStep((launch,) * times, (0, 0, 8, 0, 0), (Patch(FIRST_ADDRESS, 0), Patch(FIRST_ADDRESS + 1, 1)))
        self.launch, self.call = launch, FusedCall(1, 1, fallback=fallback)
        guard, result = TensorGuard(torch.int64, (8,), (1,)), prototype((8,), torch.int64)
        site = machine.site() if site is None else site
        settings = {"is_long": True, "bytes_moved": bytes_moved, "keeps": (self, integer_kernels()), "site": site}
        self.call.table.add(Record([guard], [result], [step], self.call.statistics, **settings))

    def __call__(self, tensor):
        return self.call([tensor])

    def is_right(self, first=0):
        tensor = torch.arange(first, first + 8)
        return torch.equal(self(tensor)[0], tensor)

    def words(self, number=0):
        """Those of one of its executable graphs."""
        return ExecutablesWords.at(self.executables.address).each[number]


# --- where they are graphs --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("grid", [GRID, HALVES])
def test_a_graph_is_made_once_and_launched_with_new_words_each_time(machine, grid):
    copying = Copying(machine, grid=grid)
    assert all(copying.is_right(first) for first in range(3))
    assert machine.graph_count == 1 and machine.are_graphs == [True] * 3
    expected = replace(copying.launch, executables=0), OF_CUDA + STREAM
    assert machine.launches == [expected] * 3
    assert copying.executables.streams == [OF_CUDA + STREAM]
    assert machine.mode == 0 and copying.words().busy == 0


def test_several_launches_of_a_call_are_a_graph_each(machine):
    copying = Copying(machine, times=3)
    assert copying.is_right() and machine.are_graphs == [True] * 3 and machine.graph_count == 1


def test_streams_have_graphs_of_their_own_as_long_as_there_is_room(machine):
    copying = Copying(machine)
    for _ in range(2):
        for stream in range(100, 100 + MOST_EXECUTABLES + 2):
            machine.change_stream(stream)
            assert copying.is_right()
    assert machine.graph_count == MOST_EXECUTABLES
    assert machine.are_graphs == ([True] * MOST_EXECUTABLES + [False] * 2) * 2
    assert [stream - OF_CUDA for _, stream in machine.launches] == list(range(100, 100 + MOST_EXECUTABLES + 2)) * 2


def test_the_number_of_all_graphs_is_bounded(machine, monkeypatch):
    monkeypatch.setattr(graph_launching, "MOST_IN_ALL", 2)
    site = machine.site()
    for _ in range(2):
        copying = [Copying(machine, site=site) for _ in range(3)]
        assert all(each.is_right() for each in copying * 2)
    assert machine.graph_count == 2
    assert machine.are_graphs == [True, True, False] * 2 + [False] * 6


def test_functions_have_graphs_of_their_own():
    assert executables_of(-77) is executables_of(-77) is not executables_of(-78)
    assert executables_of(-77).streams == []


# --- where they are plain ---------------------------------------------------------------------------------------------


def test_a_captured_launch_is_plain(machine):
    copying = Copying(machine)
    assert copying.is_right()
    machine.capture()
    assert copying.is_right()
    machine.capture(False)
    assert copying.is_right()
    assert machine.are_graphs == [True, False, True] and machine.graph_count == 1


def test_no_graph_is_made_while_the_first_call_is_captured(machine):
    copying = Copying(machine)
    machine.capture()
    assert copying.is_right() and machine.graph_count == 0 and machine.are_graphs == [False]


def test_a_stream_with_a_priority_gets_no_graph(machine):
    copying = Copying(machine)
    machine.change_stream(500, priority=-1)
    assert copying.is_right() and copying.is_right()
    machine.change_stream(501)
    assert copying.is_right()
    assert machine.are_graphs == [False, False, True] and machine.graph_count == 1
    assert copying.executables.streams == [OF_CUDA + 501]


def test_the_stream_that_differs_between_threads_gets_no_graph(machine):
    copying = Copying(machine)
    machine.change_stream(2 - OF_CUDA)
    assert copying.is_right() and machine.are_graphs == [False] and machine.launches[0][1] == 2


def test_launches_of_kernels_that_have_much_to_do_are_plain(machine):
    assert Copying(machine, bytes_moved=MOST_BYTES).is_right()
    assert Copying(machine, bytes_moved=MOST_BYTES + 1).is_right()
    assert machine.are_graphs == [True, False]


def test_launches_without_a_place_for_graphs_are_plain(machine):
    copying = Copying(machine)
    copying.launch, plain = replace(copying.launch, executables=0), FusedCall(1, 1)
    step = DeviceStep((copying.launch,), (0, 0, 8, 0, 0), (Patch(FIRST_ADDRESS, 0), Patch(FIRST_ADDRESS + 1, 1)))
    guard, result = TensorGuard(torch.int64, (8,), (1,)), prototype((8,), torch.int64)
    plain.table.add(Record([guard], [result], [step], plain.statistics, is_long=True, site=machine.site()))
    assert torch.equal(plain([torch.arange(8)])[0], torch.arange(8)) and machine.are_graphs == [False]


def test_launches_are_plain_without_the_functions(machine):
    layout = tensor_layout()
    assert layout is not None
    launcher = DeviceLauncher(replace(machine.functions, graphs=None), layout)
    copying = Copying(machine, site=replace(machine.site(), run=launcher.run))
    machine.capture()  # the routine itself does not ask whether there is a capture
    assert copying.is_right() and machine.are_graphs == [False]


def test_a_thread_that_finds_another_using_the_graph_launches_plainly(machine):
    """One thread's kernel runs until this thread, which has launched the same one meanwhile, says so."""
    waiting, seen = Copying(machine, "wait"), []
    assert waiting(torch.full((8,), 2))[0][0] == 1
    blocked = torch.zeros(8, dtype=torch.int64)
    thread = threading.Thread(target=lambda: seen.append(waiting(blocked)[0][0].item()))
    thread.start()
    while waiting.words().busy == 0 and thread.is_alive():
        pass
    assert waiting(torch.full((8,), 2))[0][0] == 1
    blocked[0] = 2
    thread.join()
    assert seen == [1] and waiting.call.fallback.calls == []
    assert machine.are_graphs == [True, True, False] and waiting.words().busy == 0


def test_a_thread_that_finds_another_making_a_graph_launches_plainly(machine):
    copying = Copying(machine)
    words = ExecutablesWords.at(copying.executables.address)
    words.making = 1
    assert copying.is_right() and machine.graph_count == 0
    words.making = 0
    assert copying.is_right() and machine.are_graphs == [False, True]


def test_threads_never_launch_each_others_words(machine):
    copying, wrong = Copying(machine), []

    def run(first):
        wrong.extend(first for number in range(2000) if not copying.is_right(first + number))

    threads = [threading.Thread(target=run, args=(first,)) for first in (0, 10_000, 20_000, 30_000)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and copying.call.fallback.calls == [] and machine.graph_count == 1
    assert copying.words().busy == 0


# --- failures ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("failing", ["create", "add_kernel", "instantiate"])
def test_a_graph_that_cannot_be_made_is_not_tried_again(machine, failing):
    copying = Copying(machine)
    machine.fail_graphs(failing, 2)
    assert copying.is_right()
    machine.fail_graphs(failing, 0)
    assert copying.is_right() and machine.are_graphs == [False] * 2 and machine.mode == 0
    assert copying.executables.streams == [] and copying.call.fallback.calls == []


def test_a_graph_that_takes_no_words_is_not_used_again(machine):
    copying = Copying(machine)
    assert copying.is_right()
    machine.fail_graphs("set_kernel", 1)
    assert copying.is_right()
    machine.fail_graphs("set_kernel", 0)
    assert copying.is_right() and machine.are_graphs == [True, False, False]
    assert copying.words().busy == 0 and copying.call.fallback.calls == []


def test_a_failing_launch_goes_to_python_and_later_ones_are_plain(machine):
    copying = Copying(machine, fallback=Fallback("slow"))
    assert copying.is_right()
    machine.fail_launch(1, 719)
    assert copying(torch.arange(8)) == "slow" and machine.launch_count == 1
    machine.fail_launch(-1, 0)
    assert copying.is_right() and machine.are_graphs == [True, False]
    assert copying.executables.streams == [] and copying.words().busy == 0
    assert copying.call.statistics.executions == 2


# --- what the driver has ----------------------------------------------------------------------------------------------


@pytest.fixture
def addresses(monkeypatch):
    """The driver's functions, which are nowhere."""
    known = {name: number for number, name in enumerate((*driver.NATIVE, *driver.PROTOTYPES), 1)}

    def address_of(name):
        if name not in known:
            raise CudaError(f"no {name}")
        return known[name]

    monkeypatch.setattr(graph_launching, "address_of", address_of)
    monkeypatch.delenv("CUDA_LAUNCH_BLOCKING", raising=False)
    return known


def test_functions_are_found_by_their_names(addresses):
    found = GraphFunctions.of_cuda()
    assert found is not None
    assert found.launch.address == addresses["cuGraphLaunch"]
    assert found.exchange_mode.address == addresses["cuThreadExchangeStreamCaptureMode"]


def test_there_are_none_where_the_driver_lacks_one(addresses):
    for name in driver.NATIVE:
        address = addresses.pop(name)
        assert (GraphFunctions.of_cuda() is None) == (name != "cuLaunchKernelEx"), "which is no function of graphs"
        addresses[name] = address
    assert GraphFunctions.of_cuda() is not None


@pytest.mark.parametrize(("value", "is_blocking"), [("", False), ("0", False), ("1", True)])
def test_launches_that_shall_wait_until_they_are_done_are_plain(addresses, monkeypatch, value, is_blocking):
    monkeypatch.setenv("CUDA_LAUNCH_BLOCKING", value)
    assert (GraphFunctions.of_cuda() is None) == is_blocking
