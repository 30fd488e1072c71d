"""A GPU made of native routines, so that records for a device run where there is none.

Its context and its stream are what the test says, its memory is torch's on the CPU, and launching a function calls it
at once: the handle of a function is the address of a kernel of the launcher's own interface. What was launched, with
what and where, and whether as a graph of one kernel or with an attribute, can be read afterwards.
"""

import ctypes
from dataclasses import replace

import torch

from ingot.runtime.cuda.prepared import Launch
from ingot.runtime.native.abi.object_layout import tensor_layout
from ingot.runtime.native.assembler.addresses import torch_function
from ingot.runtime.native.assembler.routines import Foreign, Library, make_immortal
from ingot.runtime.native.cuda.device_launching import DeviceFunctions, DeviceLauncher
from ingot.runtime.native.cuda.device_records import DeviceSite
from ingot.runtime.native.cuda.device_tensors import DirectWay, TensorFunctions
from ingot.runtime.native.cuda.graph_launching import GraphFunctions

CONTEXT, STREAM = 0xC0, 0x57
ARGUMENTS = 11
"""A launch has so many."""
_MOST_LAUNCHES = 64
# The words of the machine: what it answers, and what it was asked.
_CONTEXT, _CONTEXT_CODE, _STREAM_CODE, _FAILING, _CODE, _PUSHED, _LAUNCHES, _CAPTURED = range(8)
_STREAM, _PRIORITY, _MODE, _GRAPHS, _GRAPH_CODES = range(8, 13)
_CALLS = ("create", "add_kernel", "instantiate", "set_kernel")
"""Those for graphs that may fail, each with a code of its own."""
_ASKED = _GRAPH_CODES + len(_CALLS)
_KEPT = ARGUMENTS + 1
"""Words that are kept of a launch: its arguments, and how it was made."""
_PLAIN, _GRAPH, _OVERLAPPING = range(3)
_NODES = _ASKED + _KEPT * _MOST_LAUNCHES
_NODE_WORDS = 9
_MOST_GRAPHS = 32
_WORDS = _NODES + _NODE_WORDS * _MOST_GRAPHS


def _allocator_of_the_cpu():
    """Where the address of torch's allocator is, for ever: routines read it as long as they live."""
    find = torch_function("c10", "_ZN3c1012GetAllocatorERKNS_10DeviceTypeE")
    assert find is not None
    kind, get = ctypes.c_int8(0), ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(find.address)
    cell = ctypes.c_void_p(get(ctypes.addressof(kind)))
    make_immortal(cell)
    return ctypes.addressof(cell)


class Machine:
    """One such device, with number 0."""

    def __init__(self, is_direct=True):
        """Its tensors are made the quick way, or through torch's C interface."""
        library = Library("test")
        self._memory = library.memory("machine", _WORDS)
        self._emit(library)
        library.compile()
        where = ctypes.CFUNCTYPE(ctypes.c_int64)(library.address("where"))()
        self._words = (ctypes.c_int64 * _WORDS).from_address(where)
        self._words[_CONTEXT], self._words[_FAILING] = CONTEXT, -1
        self._words[_STREAM] = STREAM
        names = ("current_context", "push_context", "launch", "launch_with", "is_capturing", "current_stream")
        direct = DirectWay.through(_allocator_of_the_cpu())
        tensors = TensorFunctions.find(direct if is_direct else None)
        assert direct is not None and tensors is not None, "torch must have them on the machines that run the tests"
        get, push, launch, launch_with, is_capturing, stream = (Foreign(library.address(name), 32) for name in names)
        names = (
            "stream_priority",
            "exchange_mode",
            "create",
            "add_kernel",
            "instantiate",
            "set_kernel",
            "launch_graph",
        )
        graphs = GraphFunctions(*(Foreign(library.address(name), 32) for name in names))
        self.functions = DeviceFunctions(get, push, launch, launch_with, True, is_capturing, stream, tensors, graphs)

    def lose_launches_with_attributes(self):
        """As with drivers that cannot make them."""
        self.functions = replace(self.functions, launch_with=None)

    def lose_captures_with_attributes(self):
        """As with drivers that cannot capture them."""
        self.functions = replace(self.functions, captures_attributes=False)

    def site(self, counters=0, **replaced):
        """Where records of this device run; some of its functions for tensors may be others."""
        tensors = tensor_layout()
        assert tensors is not None
        functions = replace(self.functions, tensors=replace(self.functions.tensors, **replaced))
        launcher = DeviceLauncher(functions, tensors)
        return DeviceSite(launcher.run, torch.device("cpu", 0), CONTEXT, counters)

    def _emit(self, library):
        where = library.routine("where", 0)
        where.give_back(self._memory)
        current_context = library.routine("current_context", 1)
        current_context.store(current_context.load(self._memory, _CONTEXT), current_context.parameters[0])
        current_context.give_back(current_context.load(self._memory, _CONTEXT_CODE))
        push_context = library.routine("push_context", 1)
        push_context.store(push_context.parameters[0], self._memory, _CONTEXT)
        push_context.increase(1, self._memory, _PUSHED)
        push_context.give_back()
        current_stream = library.routine("current_stream", 3)
        kind, index, target = current_stream.parameters
        stream = current_stream.add(current_stream.shift_left(kind, 32), current_stream.shift_left(index, 16))
        current_stream.store(current_stream.add(stream, current_stream.load(self._memory, _STREAM)), target)
        current_stream.give_back(current_stream.load(self._memory, _STREAM_CODE))
        is_capturing = library.routine("is_capturing", 2)
        is_capturing.store(is_capturing.load(self._memory, _CAPTURED), is_capturing.parameters[1])
        is_capturing.give_back()
        self._emit_launch(library)
        self._emit_graphs(library)
        self._emit_launch_graph(library)

    def _emit_launch(self, library):
        """launch(function, grid, block, shared bytes, stream, parameters, extra, how it is made)"""
        launch = library.routine("launch_any", _KEPT)
        number = launch.load(self._memory, _LAUNCHES)
        with launch.when(launch.compare(number, "==", launch.load(self._memory, _FAILING))):
            launch.give_back(launch.load(self._memory, _CODE))
        place = launch.add(_ASKED, launch.multiply(launch.common_bits(number, _MOST_LAUNCHES - 1), _KEPT))
        for offset, argument in enumerate(launch.parameters):
            launch.store(argument, self._memory, launch.add(place, offset))
        launch.increase(1, self._memory, _LAUNCHES)
        launch.call_address(launch.parameters[0], launch.load(launch.parameters[9]))
        launch.give_back()
        plain = library.routine("launch", ARGUMENTS)
        plain.give_back(plain.call(launch, *plain.parameters, _PLAIN))
        self._launch_any = launch
        self._emit_launch_with(library)

    def _emit_launch_with(self, library):
        """launch_with(description, function, parameters, extra)"""
        routine = library.routine("launch_with", 4)
        description, function, parameters, extra = routine.parameters
        *pairs, stream, attribute, count = (routine.load(description, word) for word in range(7))
        extents = self._halves(routine, pairs)
        number, value = (routine.load(attribute, word) for word in range(2))
        for found, wanted in ((count, 1), (number, 6), (value, 1), (extents.pop(), 0)):
            with routine.when(routine.compare(found, "!=", wanted)):
                routine.give_back(1)
        routine.give_back(routine.call(self._launch_any, function, *extents, stream, parameters, extra, _OVERLAPPING))

    def _halves(self, routine, pairs):
        return [
            half for pair in pairs for half in (routine.common_bits(pair, (1 << 32) - 1), routine.shift_right(pair, 32))
        ]

    def _emit_graphs(self, library):
        """A graph is where its one node is, and so are the node and the executable graph."""
        stream_priority = library.routine("stream_priority", 2)
        stream_priority.store(stream_priority.load(self._memory, _PRIORITY), stream_priority.parameters[1])
        stream_priority.give_back()
        exchange_mode = library.routine("exchange_mode", 1)
        old, (where,) = exchange_mode.load(self._memory, _MODE), exchange_mode.parameters
        exchange_mode.store(exchange_mode.load(where), self._memory, _MODE)
        exchange_mode.store(old, where)
        exchange_mode.give_back()
        create, add_kernel = library.routine("create", 2), library.routine("add_kernel", 5)
        number = create.subtract(create.increase(1, self._memory, _GRAPHS), 1)
        first = create.add(self._memory, _NODES * 8)
        create.store(create.add(first, create.multiply(number, _NODE_WORDS * 8)), create.parameters[0])
        add_kernel.store(add_kernel.parameters[1], add_kernel.parameters[0])
        self._copy_node(add_kernel, add_kernel.parameters[1], add_kernel.parameters[4])
        instantiate, set_kernel = library.routine("instantiate", 3), library.routine("set_kernel", 3)
        instantiate.store(instantiate.parameters[1], instantiate.parameters[0])
        self._copy_node(set_kernel, set_kernel.parameters[1], set_kernel.parameters[2])
        for place, routine in enumerate((create, add_kernel, instantiate, set_kernel)):
            routine.give_back(routine.load(self._memory, _GRAPH_CODES + place))

    def _copy_node(self, routine, target, source):
        for word in range(_NODE_WORDS):
            routine.store(routine.load(source, word), target, word)

    def _emit_launch_graph(self, library):
        """launch_graph(executable graph, stream)"""
        routine = library.routine("launch_graph", 2)
        node, stream = routine.parameters
        function, *pairs, parameters, extra, kernel, context = (routine.load(node, word) for word in range(_NODE_WORDS))
        halves = self._halves(routine, pairs)
        other = routine.united_bits(routine.united_bits(extra, kernel), routine.united_bits(context, halves.pop()))
        routine.give_back(routine.call(self._launch_any, function, *halves, stream, parameters, other, _GRAPH))

    # --- what it answers ----------------------------------------------------------------------------------------------

    def make_current(self, context, code=0):
        self._words[_CONTEXT], self._words[_CONTEXT_CODE] = context, code

    def lose_stream(self):
        self._words[_STREAM_CODE] = -1

    def capture(self, is_captured=True):
        self._words[_CAPTURED] = int(is_captured)

    def change_stream(self, stream, priority=0):
        self._words[_STREAM], self._words[_PRIORITY] = stream, priority

    def fail_graphs(self, call, code):
        """One of the calls for graphs fails."""
        self._words[_GRAPH_CODES + _CALLS.index(call)] = code

    def fail_launch(self, number, code):
        """The launch of a number fails."""
        self._words[_FAILING], self._words[_CODE] = number, code

    # --- what it was asked --------------------------------------------------------------------------------------------

    @property
    def pushed(self):
        """How often a context was made current."""
        return self._words[_PUSHED]

    @property
    def launch_count(self):
        return self._words[_LAUNCHES]

    @property
    def launches(self):
        """All launches, with the stream of each."""
        made = []
        for number in range(self.launch_count):
            first = _ASKED + number * _KEPT
            function, *extents, shared, stream, _, extra = self._words[first : first + ARGUMENTS]
            assert shared == extra == 0
            made.append((Launch(function, tuple(extents[:3]), tuple(extents[3:])), stream))
        return made

    @property
    def are_graphs(self):
        """Whether each of the launches was a graph."""
        return [way == _GRAPH for way in self._ways]

    @property
    def overlap(self):
        """Whether each of the launches was allowed to overlap with the one before it."""
        return [way == _OVERLAPPING for way in self._ways]

    @property
    def _ways(self):
        return [self._words[_ASKED + number * _KEPT + ARGUMENTS] for number in range(self.launch_count)]

    @property
    def graph_count(self):
        """How many were made."""
        return self._words[_GRAPHS]

    @property
    def mode(self):
        """That of captures."""
        return self._words[_MODE]
