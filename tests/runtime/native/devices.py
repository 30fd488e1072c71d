"""A GPU made of native routines, so that records for a device run where there is none.

Its context and its stream are what the test says, its memory is torch's on the CPU, and launching a function calls it
at once: the handle of a function is the address of a kernel of the launcher's own interface. What was launched, with
what and where, can be read afterwards.
"""

import ctypes
from dataclasses import replace

import torch

from ingot.runtime.cuda.prepared import Launch
from ingot.runtime.native.addresses import torch_function
from ingot.runtime.native.device_launching import DeviceFunctions, DeviceLauncher
from ingot.runtime.native.device_records import DeviceSite
from ingot.runtime.native.device_tensors import DirectWay, TensorFunctions
from ingot.runtime.native.layout import tensor_layout
from ingot.runtime.native.routines import Foreign, Library, make_immortal

CONTEXT, STREAM = 0xC0, 0x57
ARGUMENTS = 11
"""A launch has so many."""
_MOST_LAUNCHES = 64
# The words of the machine: what it answers, and what it was asked.
_CONTEXT, _CONTEXT_CODE, _STREAM_CODE, _FAILING, _CODE, _PUSHED, _LAUNCHES, _CAPTURED = range(8)
_ASKED = 8
_WORDS = _ASKED + ARGUMENTS * _MOST_LAUNCHES


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
        library = Library()
        self._memory = library.memory("machine", _WORDS)
        self._emit(library)
        library.compile()
        where = ctypes.CFUNCTYPE(ctypes.c_int64)(library.address("where"))()
        self._words = (ctypes.c_int64 * _WORDS).from_address(where)
        self._words[_CONTEXT], self._words[_FAILING] = CONTEXT, -1
        names = ("current_context", "push_context", "launch", "is_capturing", "current_stream")
        direct = DirectWay.through(_allocator_of_the_cpu())
        tensors = TensorFunctions.find(direct if is_direct else None)
        assert direct is not None and tensors is not None, "torch must have them on the machines that run the tests"
        get, push, launch, is_capturing, stream = (Foreign(library.address(name), 32) for name in names)
        self.functions = DeviceFunctions(get, push, launch, is_capturing, stream, tensors)

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
        current_stream.store(current_stream.add(stream, STREAM), target)
        current_stream.give_back(current_stream.load(self._memory, _STREAM_CODE))
        is_capturing = library.routine("is_capturing", 2)
        is_capturing.store(is_capturing.load(self._memory, _CAPTURED), is_capturing.parameters[1])
        is_capturing.give_back()
        self._emit_launch(library)

    def _emit_launch(self, library):
        """launch(function, grid, block, shared bytes, stream, parameters, extra)"""
        launch = library.routine("launch", ARGUMENTS)
        number = launch.load(self._memory, _LAUNCHES)
        with launch.when(launch.compare(number, "==", launch.load(self._memory, _FAILING))):
            launch.give_back(launch.load(self._memory, _CODE))
        place = launch.add(_ASKED, launch.multiply(launch.common_bits(number, _MOST_LAUNCHES - 1), ARGUMENTS))
        for offset, argument in enumerate(launch.parameters):
            launch.store(argument, self._memory, launch.add(place, offset))
        launch.increase(1, self._memory, _LAUNCHES)
        launch.call_address(launch.parameters[0], launch.load(launch.parameters[9]))
        launch.give_back()

    # --- what it answers ----------------------------------------------------------------------------------------------

    def make_current(self, context, code=0):
        self._words[_CONTEXT], self._words[_CONTEXT_CODE] = context, code

    def lose_stream(self):
        self._words[_STREAM_CODE] = -1

    def capture(self, is_captured=True):
        self._words[_CAPTURED] = int(is_captured)

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
            first = _ASKED + number * ARGUMENTS
            function, *extents, shared, stream, _, extra = self._words[first : first + ARGUMENTS]
            assert extra == 0
            made.append((Launch(function, tuple(extents[:3]), tuple(extents[3:]), shared), stream))
        return made
