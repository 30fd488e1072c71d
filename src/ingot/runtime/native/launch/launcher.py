"""The launcher: one native routine through which every call of every compiled fusion goes.

It is driven by data (see records): it reads the arguments, looks for the record made for arguments like these, takes
memory for the results, runs the record's steps and wraps the results. A call that it does not know it hands, arguments
and all, to the Python function given for that; it raises nothing itself. It is compiled once per process.
"""

from __future__ import annotations

import ctypes
import os

from ingot.base.once import once
from ingot.runtime.native.abi import object_layout
from ingot.runtime.native.abi.object_layout import TensorLayout, tensor_layout
from ingot.runtime.native.abi.settings import Settings
from ingot.runtime.native.assembler.addresses import python_function
from ingot.runtime.native.assembler.routines import Foreign, Library, Routine, Value
from ingot.runtime.native.assembler.ticks import now
from ingot.runtime.native.launch.cpu_running import RunningEmitter
from ingot.runtime.native.launch.guard_matching import MatchingEmitter, make_room
from ingot.runtime.native.launch.record_structs import (
    MOST_RECORDS,
    CallTableWords,
    Convention,
    FormWords,
    TableWords,
)
from ingot.runtime.native.launch.records import OTHER_SLOTS
from ingot.runtime.native.memory.pool import Pool, pool
from ingot.runtime.torch_state import MODES


class LauncherEmitter:
    """Writes the launcher's routines into a library."""

    def __init__(self, library: Library, tensors: TensorLayout, settings: Settings, memory: Pool):
        self._library = library
        self._matching = MatchingEmitter(library, tensors)
        self._running = RunningEmitter(library, memory, tensors)
        self._settings = settings

    def emit(self) -> None:
        """Write all routines: `entry` is what Python calls, `insert`, `remove` and `one_thread` serve Python."""
        self._entry(self._attempt(self._matching.emit(), self._running.emit()))
        self._insert()
        self._remove()

    def _insert(self) -> None:
        """insert(table, record): make a record the first; the one that fell off the end, or 0."""
        routine = self._library.routine("insert", 2)
        table, record = routine.parameters
        count = routine.load(table, TableWords.count)
        last = routine.load(table, TableWords.records + MOST_RECORDS - 1)
        is_full = routine.compare(count, "==", MOST_RECORDS)
        routine.store(routine.choose(is_full, count, routine.add(count, 1)), table, TableWords.count)
        make_room(routine, table, routine.subtract(routine.load(table, TableWords.count), 1))
        routine.store(record, table, TableWords.records)
        routine.give_back(routine.choose(is_full, last, 0))

    def _remove(self) -> None:
        """remove(table, record): take a record out; those after it move up."""
        routine = self._library.routine("remove", 2)
        table, record = routine.parameters
        cells = routine.stack(1)
        routine.store(TableWords.records, cells)
        count = routine.load(table, TableWords.count)
        with routine.loop(count) as index:
            found = routine.load(table, routine.add(index, TableWords.records))
            with routine.when(routine.compare(found, "!=", record)):
                routine.store(found, table, routine.load(cells))
                routine.increase(1, cells)
        routine.store(routine.subtract(routine.load(cells), TableWords.records), table, TableWords.count)
        routine.give_back()

    # --- the call -----------------------------------------------------------------------------------------------------

    def _entry(self, attempt: Routine) -> None:
        """entry(self, arguments, count, keywords): what Python calls; `self` is (table, its owner, the fallback)."""
        routine = self._library.routine("entry", 4)
        self_, arguments, count, keywords = routine.parameters
        capsule = routine.load(self_, object_layout.ITEMS_WORD)
        table = routine.call(python_function("PyCapsule_GetPointer"), capsule, 0)
        result = routine.call(attempt, table, arguments, count, keywords)
        with routine.when(routine.compare(result, "!=", 0)):
            routine.give_back(result)
        fallback = routine.load(self_, object_layout.ITEMS_WORD + 2)
        call = python_function("PyObject_Vectorcall")
        routine.give_back(routine.call(call, fallback, arguments, count, keywords))

    def _attempt(self, matches: Routine, run: Routine) -> Routine:
        """attempt(table, arguments, count, keywords): the result, or 0 where Python has to look at the call."""
        routine = self._library.routine("attempt", 4)
        table, arguments, count, keywords = routine.parameters
        start = now(routine)
        with routine.when(routine.compare(keywords, "!=", 0)):
            routine.give_back(0)
        form = routine.part(table, CallTableWords.form)
        items, length = self._items(routine, form, arguments, count)
        inputs = routine.load(form, FormWords.inputs)
        is_watched = routine.united_bits(*(self._settings.is_active(routine, mode) for mode in MODES))
        is_wrong = routine.compare(length, "!=", inputs)
        with routine.when(routine.either(is_wrong, routine.compare(is_watched, "!=", 0))):
            routine.give_back(0)
        slots = routine.stack(
            routine.add(routine.multiply(inputs, 2), routine.add(routine.load(form, FormWords.outputs), OTHER_SLOTS))
        )
        with routine.loop(routine.load(table, TableWords.count)) as index:
            place = routine.add(index, TableWords.records)
            record = routine.load(table, place)
            is_match = routine.call(matches, record, inputs, items, slots)
            with routine.when(routine.compare(is_match, "!=", 0)):
                make_room(routine, table, index)
                routine.store(record, table, TableWords.records)
                routine.give_back(routine.call(run, form, record, items, slots, start))
        routine.give_back(0)
        return routine

    def _items(self, routine: Routine, form: Value, arguments: Value, count: Value) -> tuple[Value, Value]:
        """Where the inputs are and how many: the arguments themselves, or the items of the one list or tuple."""
        cells = routine.stack(2)
        routine.store(arguments, cells, 0)
        routine.store(count, cells, 1)
        with routine.when(routine.compare(routine.load(form, FormWords.convention), "==", Convention.LIST)):
            with routine.when(routine.compare(count, "!=", 1)):
                routine.give_back(0)
            container = routine.load(arguments)
            kind = routine.load(container, object_layout.TYPE_WORD)
            is_list, is_tuple = (routine.compare(kind, "==", id(type_)) for type_ in (list, tuple))
            with routine.when(routine.opposite(routine.either(is_list, is_tuple))):
                routine.give_back(0)
            inline = routine.part(container, object_layout.ITEMS_WORD)
            routine.store(routine.choose(is_list, routine.load(inline), inline), cells, 0)
            routine.store(routine.load(container, object_layout.LENGTH_WORD), cells, 1)
        return routine.load(cells, 0), routine.load(cells, 1)


class Launcher:
    """The launcher of this process, compiled. There is one: `launcher()`."""

    def __init__(self, tensors: TensorLayout, settings: Settings, memory: Pool):
        library = Library("launcher")
        LauncherEmitter(library, tensors, settings, memory).emit()
        library.compile()
        self.entry = library.address("entry")
        self.insert = ctypes.PYFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)(library.address("insert"))
        """insert(table, record) puts a record first and returns the address of the one it drives out, or 0."""
        self.remove = ctypes.PYFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)(library.address("remove"))
        """remove(table, record) takes a record out."""
        self.tensor_matches, self.number_matches, self.run = (
            Foreign(library.address(name)) for name in ("tensor_matches", "number_matches", "run")
        )
        """For other native routines."""
        os.register_at_fork(after_in_child=ctypes.PYFUNCTYPE(ctypes.c_int64)(library.address("one_thread")))


@once
def launcher() -> Launcher | None:
    """The launcher, compiled at first use; None where Python, torch or the system are not as it needs them."""
    memory, tensors, settings = pool(), tensor_layout(), Settings.find(*MODES)
    if memory is None or tensors is None or settings is None:
        return None
    return Launcher(tensors, settings, memory)
