"""The native routine that answers a call on a GPU: memory from torch, words, launches on torch's stream, tensors.

In: a record whose site is a device (see device_records), for which a call has been found to match. Out: its results, or
0 if Python has to compute them: because another context is current, because there is no memory, or because a launch
failed, which then fails in Python, too, where errors are worded. Nothing here waits for the device, so a call can be
captured in a CUDA graph.

Results are torch's own tensors: made through torch's C interface, they are in its caching allocator's books, on the
stream that is current. So is the memory of intermediate values, which goes back as soon as the last launch is on its
way, for work that comes after it on that stream.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import auto

from ingot.base.errors import CudaError
from ingot.base.once import once
from ingot.runtime.cuda.driver import address_of, driver
from ingot.runtime.native.abi.object_layout import TensorLayout, tensor_layout
from ingot.runtime.native.assembler.addresses import TensorExchange, python_function
from ingot.runtime.native.assembler.routines import Condition, Foreign, Library, Routine, Value, Word
from ingot.runtime.native.assembler.structs import Code
from ingot.runtime.native.cuda.device_structs import (
    DeviceStepWords,
    LaunchConfigWords,
    LaunchExtentWords,
    LaunchWords,
    NewTensorWords,
    SiteWords,
    StreamsWords,
    StreamWords,
)
from ingot.runtime.native.cuda.device_tensors import (
    DirectWay,
    TensorFunctions,
    emit_delete_tensors,
    emit_new_tensor,
    wrapped,
)
from ingot.runtime.native.cuda.graph_launching import MOST_BYTES, PLAIN, GraphFunctions, GraphLaunchingEmitter
from ingot.runtime.native.launch.record_structs import FormWords, RecordWords
from ingot.runtime.native.launch.run_parts import (
    collect_results,
    convert_numbers,
    count_run,
    fill_words,
    give_up_tensors,
    run_guarded,
)

_DLPACK_CUDA = 2
"""The number of CUDA among DLPack's kinds of devices."""
_FIRST_TO_CAPTURE_ATTRIBUTES = 13000
"""The version of a driver that is known to make graphs of launches that overlap. Those before 12.3 cannot."""
_LAUNCH_ARGUMENTS = (
    LaunchWords.function,
    LaunchWords.grid_x,
    LaunchWords.grid_y,
    LaunchWords.grid_z,
    LaunchWords.block_x,
    LaunchWords.block_y,
    LaunchWords.block_z,
    LaunchWords.shared_bytes,
)
"""What the driver's function takes, before the stream."""


class _Way(Code):
    """How a launch is made."""

    AS_GRAPH = auto()
    OVERLAPPING = auto()
    """Overlapping with the launch before it, where the device can."""
    BY_ITSELF = auto()


@dataclass(frozen=True, slots=True)
class DeviceFunctions:
    """The functions of torch and of a device that a call on it takes. Those of the device return 0 for success."""

    current_context: Foreign
    push_context: Foreign
    launch: Foreign
    launch_with: Foreign | None
    """The function that launches with attributes, if the driver has it."""
    captures_attributes: bool
    """Whether a launch that has attributes can be captured."""
    is_capturing: Foreign
    current_stream: Foreign
    tensors: TensorFunctions
    graphs: GraphFunctions | None
    """The functions that launch graphs of one kernel, if the driver has them."""

    @classmethod
    def of_cuda(cls) -> DeviceFunctions | None:
        """Those of NVIDIA's driver; None where there is no driver, or this version of torch lacks one."""
        exchange, tensors = TensorExchange.find(), TensorFunctions.find(DirectWay.of_cuda())
        if exchange is None or not exchange.current_stream.address or tensors is None:
            return None
        try:
            names = ("cuCtxGetCurrent", "cuCtxPushCurrent", "cuLaunchKernel", "cuStreamIsCapturing")
            get, push, launch, is_capturing = (Foreign(address_of(name), 32) for name in names)
            captures_attributes = driver().version() >= _FIRST_TO_CAPTURE_ATTRIBUTES
        except CudaError:
            return None
        try:
            launch_with = Foreign(address_of("cuLaunchKernelEx"), 32)
        except CudaError:
            launch_with = None
        stream, graphs = exchange.current_stream, GraphFunctions.of_cuda()
        return cls(get, push, launch, launch_with, captures_attributes, is_capturing, stream, tensors, graphs)


class DeviceLaunchingEmitter:
    """Writes the routines into a library."""

    def __init__(self, library: Library, functions: DeviceFunctions, tensors: TensorLayout):
        self._library = library
        self._functions = functions
        self._layout = tensors

    def emit(self) -> None:
        """Write all routines; `run` is the one that records name."""
        delete = emit_delete_tensors(self._library, self._functions.tensors)
        take_tensors = self._take_tensors(emit_new_tensor(self._library, self._functions.tensors), delete)
        self._run(self._is_current(), take_tensors, self._launch_steps(), self._wrap_results(delete), delete)

    def _run(
        self, is_current: Routine, take_tensors: Routine, launch_steps: Routine, wrap_results: Routine, delete: Routine
    ) -> None:
        """run(form, record, items, slots, start): the results of a record, or 0 if Python has to compute them."""
        routine = self._library.routine("run", 5)
        form, record, items, slots, start = routine.parameters
        site = routine.load(record, RecordWords.site)
        inputs, outputs = routine.load(form, FormWords.inputs), routine.load(form, FormWords.outputs)
        self._require(routine, routine.compare(routine.call(is_current, site), "!=", 0))
        stream, find_counters = self._stream(routine, site), self._find_counters()
        streams = routine.load(site, SiteWords.counters)
        with routine.when(routine.compare(streams, "!=", 0)):
            found = routine.call(find_counters, streams, stream)
            self._require(routine, routine.compare(found, "!=", 0))
            routine.store(found, slots, routine.add(inputs, routine.add(outputs, 1)))
        tensors = routine.stack(routine.add(outputs, 1))
        fresh_slots = routine.part(slots, inputs)
        self._require(routine, routine.compare(routine.call(take_tensors, site, tensors, fresh_slots), "==", 0))
        convert_numbers(routine, record, slots)
        code = run_guarded(routine, record, items, inputs, launch_steps, record, slots, stream)
        routine.call(delete, tensors, outputs, routine.load(site, SiteWords.tensor_count))
        with routine.when(routine.compare(code, "!=", 0)):
            routine.call(delete, tensors, 0, outputs)
            routine.give_back(0)
        result = routine.call(wrap_results, form, tensors)
        with routine.when(routine.compare(result, "!=", 0)):
            count_run(routine, record, start)
        routine.give_back(result)

    def _require(self, routine: Routine, condition: Condition) -> None:
        with routine.when(routine.opposite(condition)):
            routine.give_back(0)

    # --- where --------------------------------------------------------------------------------------------------------

    def _is_current(self) -> Routine:
        """is_current(site): whether the context of the site's device is this thread's current one, or is now: a thread
        that has none yet is on device 0, as CUDA's runtime and therefore torch take it."""
        routine = self._library.routine("is_current", 1)
        (site,) = routine.parameters
        context, cell = routine.load(site, SiteWords.context), routine.stack(1)
        routine.store(0, cell)
        failure = routine.call(self._functions.current_context, cell)
        with routine.when(routine.compare(failure, "!=", 0)):  # as in a forked child
            routine.give_back(0)
        found = routine.load(cell)
        is_first = routine.compare(routine.load(site, SiteWords.index), "==", 0)
        with routine.when(routine.both(is_first, routine.compare(found, "==", 0))):
            failure = routine.call(self._functions.push_context, context)
            routine.give_back(routine.choose(routine.compare(failure, "==", 0), 1, 0))
        routine.give_back(routine.choose(routine.compare(found, "==", context), 1, 0))
        return routine

    def _stream(self, routine: Routine, site: Value) -> Word:
        """torch's current stream of the site's device."""
        cell, index = routine.stack(1), routine.load(site, SiteWords.index)
        routine.store(0, cell)
        failure = routine.call(self._functions.current_stream, _DLPACK_CUDA, index, cell)
        with routine.when(routine.compare(failure, "!=", 0)):
            routine.call(python_function("PyErr_Clear"))
            routine.give_back(0)
        return routine.load(cell)

    def _find_counters(self) -> Routine:
        """find_counters(streams, stream): what blocks of threads are counted by in launches on a stream; 0 if it is new
        or being captured, where every call has its own."""
        routine = self._library.routine("find_counters", 2)
        streams, stream = routine.parameters
        with routine.when(self._is_captured(routine, stream)):
            routine.give_back(0)
        with routine.loop(routine.load(streams, StreamsWords.count)) as number:
            known = routine.item(routine.part(streams, StreamsWords.streams), number, StreamWords)
            with routine.when(routine.compare(routine.load(known, StreamWords.handle), "==", stream)):
                routine.give_back(routine.load(known, StreamWords.counters))
        routine.give_back(0)
        return routine

    def _is_captured(self, routine: Routine, stream: Value) -> Condition:
        """Whether a stream is being captured in a graph, or may be."""
        cell = routine.stack(1)
        routine.store(0, cell)
        failure = routine.call(self._functions.is_capturing, stream, cell)
        return routine.compare(routine.united_bits(failure, routine.load(cell)), "!=", 0)

    # --- memory -------------------------------------------------------------------------------------------------------

    def _take_tensors(self, new_tensor: Routine, delete: Routine) -> Routine:
        """take_tensors(site, tensors, slots): new tensors for results and intermediate values, and where their memory
        is; 1 if memory is short, or tensors are not ordinary ones of this device."""
        routine = self._library.routine("take_tensors", 3)
        site, tensors, slots = routine.parameters
        wanted = routine.load(site, SiteWords.tensors)
        with routine.loop(routine.load(site, SiteWords.tensor_count)) as index:
            like = routine.item(wanted, index, NewTensorWords)
            target = routine.part(tensors, index)
            failure = routine.call(new_tensor, site, like, target)
            with routine.when(routine.compare(failure, "!=", 0)):
                routine.call(delete, tensors, 0, index)
                routine.give_back(1)
            implementation = routine.load(target)
            with routine.when(routine.opposite(self._is_ordinary(routine, site, implementation))):
                routine.call(delete, tensors, 0, routine.add(index, 1))
                routine.give_back(1)
            storage = routine.load(implementation, self._layout.storage_word)
            routine.store(routine.load(storage, self._layout.data_word), slots, index)
        routine.give_back(0)
        return routine

    def _is_ordinary(self, routine: Routine, site: Value, tensor: Value) -> Condition:
        """Whether a new tensor is a plain one of the site's device. torch's current device may be another than the one
        whose context is current, namely one that it has not touched yet."""
        keys, type_ = (routine.load(tensor, word) for word in (self._layout.keys_word, self._layout.dtype_quarter // 4))
        is_plain = routine.either(
            routine.compare(keys, "==", routine.load(site, SiteWords.keys)),
            routine.compare(keys, "==", routine.load(site, SiteWords.inference_keys)),
        )
        device = routine.common_bits(type_, routine.load(site, SiteWords.device_mask))
        return routine.both(is_plain, routine.compare(device, "==", routine.load(site, SiteWords.device_bits)))

    # --- launching ----------------------------------------------------------------------------------------------------

    def _launch_steps(self) -> Routine:
        """launch_steps(record, slots, stream): one launch after the other; 0, or the code of one that failed."""
        launch_one, routine = self._launch_one(), self._library.routine("launch_steps", 3)
        record, slots, stream = routine.parameters
        words, parameters = routine.stack(routine.load(record, RecordWords.most_words)), routine.stack(1)
        routine.store(words, parameters)
        way = self._way(routine, record, stream)
        steps = routine.load(record, RecordWords.steps)
        with routine.loop(routine.load(record, RecordWords.step_count)) as index:
            step = routine.item(steps, index, DeviceStepWords)
            fill_words(routine, routine.part(step, DeviceStepWords.step), words, slots)
            launches = routine.load(step, DeviceStepWords.launches)
            with routine.loop(routine.load(step, DeviceStepWords.launch_count)) as number:
                launch = routine.item(launches, number, LaunchWords)
                code = routine.call(launch_one, launch, stream, parameters, way)
                with routine.when(routine.compare(code, "!=", 0)):
                    routine.give_back(code)
        routine.give_back(0)
        return routine

    def _way(self, routine: Routine, record: Value, stream: Value) -> Word:
        """How launches are made. Those that are captured will be part of another graph, and are what the driver can
        capture; others are graphs, unless the device has so much to do that it does not wait for the host."""
        most = routine.multiply(routine.load(record, RecordWords.step_count), MOST_BYTES)
        is_large = routine.compare(routine.load(record, RecordWords.bytes_moved), ">", most)
        others = routine.choose(is_large, _Way.OVERLAPPING, _Way.AS_GRAPH)
        captured = _Way.OVERLAPPING if self._functions.captures_attributes else _Way.BY_ITSELF
        return routine.choose(self._is_captured(routine, stream), captured, others)

    def _launch_one(self) -> Routine:
        """launch_one(launch, stream, parameters, way): as a graph where that can be, or else so that it overlaps with
        the launch before it, where that can be; 0, or a code."""
        graphs, launch_with = self._functions.graphs, self._functions.launch_with
        launch_graph = None if graphs is None else GraphLaunchingEmitter(self._library, graphs).emit()
        routine = self._library.routine("launch_one", 4)
        launch, stream, parameters, way = routine.parameters
        if launch_graph is not None:
            with routine.when(routine.compare(way, "==", _Way.AS_GRAPH)):
                code = routine.call(launch_graph, launch, stream, parameters)
                with routine.when(routine.compare(code, "!=", PLAIN)):
                    routine.give_back(code)
        if launch_with is not None:
            attribute = routine.load(launch, LaunchWords.attribute)
            is_possible = routine.compare(attribute, "!=", 0)
            with routine.when(routine.both(is_possible, routine.compare(way, "!=", _Way.BY_ITSELF))):
                described = self._with_attribute(routine, launch, stream, attribute)
                routine.give_back(
                    routine.call(launch_with, described, routine.load(launch, LaunchWords.function), parameters, 0)
                )
        arguments = [routine.load(launch, word) for word in _LAUNCH_ARGUMENTS]
        routine.give_back(routine.call(self._functions.launch, *arguments, stream, parameters, 0))
        return routine

    def _with_attribute(self, routine: Routine, launch: Value, stream: Value, attribute: Value) -> Word:
        """A launch as the driver takes it together with one attribute."""
        described = routine.stack(LaunchConfigWords.words())
        extents = routine.part(described, LaunchConfigWords.extents)
        routine.copy(routine.part(launch, LaunchWords.extents), extents, LaunchExtentWords)
        routine.store(stream, described, LaunchConfigWords.stream)
        routine.store(attribute, described, LaunchConfigWords.attributes)
        routine.store(1, described, LaunchConfigWords.attribute_count)
        return described

    # --- results ------------------------------------------------------------------------------------------------------

    def _wrap_results(self, delete: Routine) -> Routine:
        """wrap_results(form, tensors): the results as Python objects in the form the convention asks for.

        If there is no memory for one of them, all are given up and the result is 0.
        """
        collect = collect_results(self._library)
        routine = self._library.routine("wrap_results", 2)
        form, tensors = routine.parameters
        outputs = routine.load(form, FormWords.outputs)
        with routine.loop(outputs) as index:
            where = routine.part(tensors, index)
            object_ = wrapped(routine, self._functions.tensors, where, delete)
            with routine.when(routine.compare(object_, "==", 0)):
                give_up_tensors(routine, tensors, index)
                routine.call(delete, tensors, index, outputs)
                routine.give_back(0)
            routine.store(object_, tensors, index)
        routine.give_back(routine.call(collect, form, tensors))
        return routine


class DeviceLauncher:
    """The routines, compiled. There is one for the process: `device_launcher()`."""

    def __init__(self, functions: DeviceFunctions, tensors: TensorLayout):
        library = Library("launches on GPUs")
        DeviceLaunchingEmitter(library, functions, tensors).emit()
        library.compile()
        self.run = library.address("run")


@once
def device_launcher() -> DeviceLauncher | None:
    """The routines, compiled at first use; None where torch or the driver are not as they need them."""
    functions, tensors = DeviceFunctions.of_cuda(), tensor_layout()
    return None if functions is None or tensors is None else DeviceLauncher(functions, tensors)
