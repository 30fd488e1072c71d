"""The native routine that launches a function as a graph of one kernel, which takes the host half as long.

In: a launch, its words and a stream. Out: 0 if it is on its way, the code of an error, or `PLAIN` where it has to be
launched as functions are otherwise. That is so wherever a graph would not behave as a launch does, or might fail:

- A graph waits for itself. So one belongs to a stream, by its handle, and on the stream that has a different one in
  every thread there are none.
- The kernel of a graph has a priority of its own, so streams that have one get none.
- Words are set and launched in two calls: a thread that finds another in between does not wait for it.
- What could not be made, or has failed, is not tried again. Their number is bounded (`MOST_IN_ALL`): each takes memory
  of the device.

The caller has checked that the stream is not being captured. Words that are set hold for later launches alone, so
launches on their way keep theirs; and a stream does graphs and kernels in the order they came.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from ingot.base.errors import CudaError
from ingot.runtime.cuda.driver import PER_THREAD_STREAM, address_of
from ingot.runtime.native.assembler.routines import Foreign, Library, Routine, Value, Word
from ingot.runtime.native.cuda.device_structs import (
    MOST_EXECUTABLES,
    ExecutablesWords,
    ExecutableWords,
    KernelNodeWords,
    LaunchExtentWords,
    LaunchWords,
)

PLAIN = -1
"""Launch plainly instead. No code of the driver's is negative."""
MOST_BYTES = 4 << 20
"""Kernels that move more bytes than this are launched plainly."""
MOST_IN_ALL = 256
"""How many executable graphs the process makes. Each takes 110 KB of the device."""

_RELAXED_CAPTURE = 2
"""The mode in which a thread may make a graph while another captures one."""


@dataclass(frozen=True, slots=True)
class GraphFunctions:
    """The functions that it takes. All return 0 for success."""

    stream_priority: Foreign
    """stream_priority(stream, where to put it)"""
    exchange_mode: Foreign
    """exchange_mode(where the mode of captures is, which the old one takes the place of)"""
    create: Foreign
    """create(where to put the handle, 0)"""
    add_kernel: Foreign
    """add_kernel(where to put the handle, graph, nodes to wait for, how many, kernel node)"""
    instantiate: Foreign
    """instantiate(where to put the handle, graph, flags)"""
    set_kernel: Foreign
    """set_kernel(executable graph, its node, kernel node)"""
    launch: Foreign
    """launch(executable graph, stream)"""

    @classmethod
    def of_cuda(cls) -> GraphFunctions | None:
        """Those of NVIDIA's driver; None where it lacks one, and where launches shall wait until they are done."""
        if os.environ.get("CUDA_LAUNCH_BLOCKING", "0") not in ("", "0"):
            return None
        names = (
            "cuStreamGetPriority",
            "cuThreadExchangeStreamCaptureMode",
            "cuGraphCreate",
            "cuGraphAddKernelNode",
            "cuGraphInstantiateWithFlags",
            "cuGraphExecKernelNodeSetParams",
            "cuGraphLaunch",
        )
        try:
            return cls(*(Foreign(address_of(name), 32) for name in names))
        except CudaError:
            return None


class GraphLaunchingEmitter:
    """Writes the routines into a library."""

    def __init__(self, library: Library, functions: GraphFunctions):
        self._library = library
        self._functions = functions
        self._made = library.memory("executables_made", 1)

    def emit(self) -> Routine:
        """launch_graph(launch, stream, parameters): 0, a code, or PLAIN."""
        find = self._find()
        make, launch_executable = self._make(find), self._launch()
        routine = self._library.routine("launch_graph", 3)
        launch, stream, parameters = routine.parameters
        table, node = routine.load(launch, LaunchWords.executables), routine.stack(KernelNodeWords.words())
        with routine.when(routine.compare(table, "==", 0)):
            routine.give_back(PLAIN)
        self._describe(routine, launch, parameters, node)
        found, cell = routine.call(find, table, stream), routine.stack(1)
        routine.store(found, cell)
        with routine.when(routine.compare(found, "==", 0)):
            routine.store(routine.call(make, table, stream, node), cell)
        executable = routine.load(cell)
        with routine.when(routine.compare(executable, "==", 0)):
            routine.give_back(PLAIN)
        busy = routine.part(executable, ExecutableWords.busy)
        with routine.when(routine.opposite(routine.exchange(busy, 0, 1))):
            routine.give_back(PLAIN)
        code = routine.call(launch_executable, executable, stream, node)
        routine.publish(0, busy)
        routine.give_back(code)
        return routine

    def _describe(self, routine: Routine, launch: Value, parameters: Value, node: Value) -> None:
        """The words of a kernel node."""
        for word in (KernelNodeWords.extra, KernelNodeWords.kernel, KernelNodeWords.context):
            routine.store(0, node, word)
        routine.store(routine.load(launch, LaunchWords.function), node, KernelNodeWords.function)
        extents = routine.part(node, KernelNodeWords.extents)
        routine.copy(routine.part(launch, LaunchWords.extents), extents, LaunchExtentWords)
        routine.store(parameters, node, KernelNodeWords.parameters)

    def _find(self) -> Routine:
        """find_executable(table, stream): the one of a stream; 0 if it is new."""
        routine = self._library.routine("find_executable", 2)
        table, stream = routine.parameters
        with routine.loop(routine.load(table, ExecutablesWords.count)) as number:
            known = self._at(routine, table, number)
            with routine.when(routine.compare(routine.load(known, ExecutableWords.stream), "==", stream)):
                routine.give_back(known)
        routine.give_back(0)
        return routine

    def _launch(self) -> Routine:
        """launch_executable(executable, stream, node): as `launch_graph`, by an executable that no other thread
        uses."""
        routine = self._library.routine("launch_executable", 3)
        executable, stream, node = routine.parameters
        handle = routine.load(executable, ExecutableWords.handle)
        # The exchange orders what another thread wrote before these reads.
        is_this = routine.compare(routine.load(executable, ExecutableWords.stream), "==", stream)
        with routine.when(routine.opposite(routine.both(is_this, routine.compare(handle, "!=", 0)))):
            routine.give_back(PLAIN)
        code = routine.call(self._functions.set_kernel, handle, routine.load(executable, ExecutableWords.node), node)
        with routine.when(routine.compare(code, "!=", 0)):
            routine.store(0, executable, ExecutableWords.handle)
            routine.give_back(PLAIN)
        code = routine.call(self._functions.launch, handle, stream)
        with routine.when(routine.compare(code, "!=", 0)):
            routine.store(0, executable, ExecutableWords.handle)
        routine.give_back(code)
        return routine

    # --- making one ---------------------------------------------------------------------------------------------------

    def _make(self, find: Routine) -> Routine:
        """make_executable(table, stream, node): a new one for a stream; 0 if there is no room, or another thread is
        making one."""
        instantiate, routine = self._instantiate(), self._library.routine("make_executable", 3)
        table, stream, node = routine.parameters
        with routine.when(routine.compare(stream, "==", PER_THREAD_STREAM)):
            routine.give_back(0)
        with routine.when(routine.opposite(routine.exchange(routine.part(table, ExecutablesWords.making), 0, 1))):
            routine.give_back(0)
        cell, count = routine.stack(1), routine.load(table, ExecutablesWords.count)
        routine.store(routine.call(find, table, stream), cell)  # another thread may have made it
        is_new = routine.compare(routine.load(cell), "==", 0)
        with routine.when(routine.both(is_new, routine.compare(count, "<", MOST_EXECUTABLES))):
            made = self._at(routine, table, count)
            routine.store(stream, made, ExecutableWords.stream)
            routine.call(instantiate, made, node)
            routine.store(routine.add(count, 1), table, ExecutablesWords.count)
            routine.publish(0, routine.part(made, ExecutableWords.busy))
            routine.store(made, cell)
        routine.publish(0, routine.part(table, ExecutablesWords.making))
        routine.give_back(routine.load(cell))
        return routine

    def _instantiate(self) -> Routine:
        """instantiate(executable, node): give it handles, or none if its stream has a priority, there are too many, or
        something fails."""
        fill, routine = self._fill(), self._library.routine("instantiate", 2)
        executable, node = routine.parameters
        cell, mode = routine.stack(1), routine.stack(1)
        with routine.when(routine.compare(routine.load(self._made), ">=", MOST_IN_ALL)):
            routine.give_back(0)
        routine.store(0, cell)
        failure = routine.call(self._functions.stream_priority, routine.load(executable, ExecutableWords.stream), cell)
        with routine.when(routine.compare(routine.united_bits(failure, routine.load(cell)), "!=", 0)):
            routine.give_back(0)
        routine.store(_RELAXED_CAPTURE, mode)
        failure = routine.call(self._functions.exchange_mode, mode)
        with routine.when(routine.compare(failure, "==", 0)):
            routine.increase(1, self._made)
            routine.call(fill, executable, node)
            routine.call(self._functions.exchange_mode, mode)
        routine.give_back(0)
        return routine

    def _fill(self) -> Routine:
        """fill_executable(executable, node): make the graph. It stays: its node is known by it."""
        routine = self._library.routine("fill_executable", 2)
        executable, node = routine.parameters
        graph, where = routine.stack(1), routine.stack(1)

        def require(code: Word) -> None:
            with routine.when(routine.compare(code, "!=", 0)):
                routine.give_back(0)

        require(routine.call(self._functions.create, graph, 0))
        made = routine.part(executable, ExecutableWords.node)
        require(routine.call(self._functions.add_kernel, made, routine.load(graph), 0, 0, node))
        require(routine.call(self._functions.instantiate, where, routine.load(graph), 0))
        routine.store(routine.load(where), executable, ExecutableWords.handle)
        routine.give_back(0)
        return routine

    def _at(self, routine: Routine, table: Value, number: Value) -> Word:
        return routine.item(routine.part(table, ExecutablesWords.each), number, ExecutableWords)
