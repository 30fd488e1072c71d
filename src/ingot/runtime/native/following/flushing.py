"""The native routines that run what is pending, where a flush like it has been seen.

    flush_known(state, cause)     runs everything pending because of a function, or None; a word of `FlushStatus`
    flush_anyhow(state, cause)    the same, in Python where it is not known

A flush is known by the node that the call has reached, its cause, and which tensors are still needed. What the first
one did in Python is then done here: the lists of what is pending are exchanged for empty ones, results that nothing
refers to are let go, and the segment runs. While there are other threads it is given other tensors over the same
memory, and the marks of those that they may hold stay until it has run.

What always holds: once the lists are exchanged, what was pending runs to its end. Where that needs Python, because
torch's settings are others, or other tensors are needed, `finish` does it with the lists that were pending. The call's
lock is held from the first change to the last. KeyboardInterrupt comes between two lines of Python only: where it comes
inside of the segment, `finish` runs it again, unless Python has run it to its end.
"""

from __future__ import annotations

import _thread
from dataclasses import dataclass
from enum import auto

from ingot.runtime.native.abi import object_layout
from ingot.runtime.native.abi.settings import Settings
from ingot.runtime.native.assembler.addresses import python_function
from ingot.runtime.native.assembler.routines import Library, Routine, Value
from ingot.runtime.native.assembler.structs import Code
from ingot.runtime.native.following.boundaries import BoundaryRoutines
from ingot.runtime.native.following.following_structs import CallStatus, FlushWords, FollowingWords, NodeWords
from ingot.runtime.native.following.layouts import FollowingLayout
from ingot.runtime.torch_state import GRAD_MODE

PYTHON_CALLS = "python_calls"
"""The attribute in which what runs counts the calls that Python has answered."""


class FlushStatus(Code):
    PYTHON = auto()
    """Nothing was done: Python has to flush."""
    DONE = auto()
    RAISED = auto()
    """Python's error is set; everything that was pending has run, or has failed."""


@dataclass(frozen=True, slots=True)
class FlushingRoutines:
    """The routines that others call."""

    flush_known: Routine
    flush: Routine
    """flush_anyhow(state, function)"""


class FlushingEmitter:
    """Writes these routines into a library."""

    def __init__(self, library: Library, places: FollowingLayout, settings: Settings, key: int):
        """`key` is the trap's."""
        self._library = library
        self._places = places
        self._settings = settings
        self._key = key

    def emit(self, settings: Routine, boundaries: BoundaryRoutines) -> FlushingRoutines:
        """Write all routines; gives those that others call."""
        may_run, is_known = self._may_run(settings), self._is_known()
        run = self._run_seen_or_not(self._run_segment(boundaries), boundaries)
        finish = self._finish()
        run_known = self._run_known(may_run, self._find(), boundaries, run, finish)
        known = self._flush_known(may_run, is_known, self._exchange(), run_known)
        return FlushingRoutines(known, self._flush(known))

    def _flush(self, flush_known: Routine) -> Routine:
        """flush_anyhow(state, function): natively where a flush like it is known, else in Python; RAISED or PLAIN."""
        routine = self._library.routine("flush_anyhow", 2)
        state, function = routine.parameters
        status = routine.call(flush_known, state, function)
        with routine.when(routine.compare(status, "==", FlushStatus.DONE)):
            routine.give_back(CallStatus.PLAIN)
        with routine.when(routine.compare(status, "==", FlushStatus.RAISED)):
            routine.give_back(CallStatus.RAISED)
        in_python = routine.load(state, FollowingWords.flush)
        result = routine.call(python_function("PyObject_CallOneArg"), in_python, function)
        with routine.when(routine.compare(result, "==", 0)):
            routine.give_back(CallStatus.RAISED)
        routine.call(python_function("Py_DecRef"), result)
        routine.give_back(CallStatus.PLAIN)
        return routine

    def _flush_known(self, may_run: Routine, is_known: Routine, exchange: Routine, run_known: Routine) -> Routine:
        routine = self._library.routine("flush_known", 2)
        state, cause = routine.parameters
        node, values = routine.load(state, FollowingWords.node), routine.load(state, FollowingWords.values)
        is_pythons = routine.united_bits(
            routine.load(state, FollowingWords.is_left), routine.load(state, FollowingWords.is_flushing)
        )
        with routine.when(routine.either(routine.compare(node, "==", 0), routine.compare(is_pythons, "!=", 0))):
            routine.give_back(FlushStatus.PYTHON)
        with routine.when(routine.compare(routine.load(values, object_layout.LENGTH_WORD), "==", 0)):
            routine.give_back(FlushStatus.DONE)
        for condition in (is_known, may_run):
            given = (node, cause) if condition is is_known else (state,)
            with routine.when(routine.compare(routine.call(condition, *given), "==", 0)):
                routine.give_back(FlushStatus.PYTHON)
        acquire = routine.load(state, FollowingWords.acquire)
        is_ours = routine.call(python_function("PyObject_CallOneArg"), acquire, id(False))
        with routine.when(routine.compare(is_ours, "!=", id(True))):
            self._drop(routine, is_ours)
            routine.call(python_function("PyErr_Clear"))
            routine.give_back(FlushStatus.PYTHON)
        self._drop(routine, is_ours)
        numbers = routine.load(state, FollowingWords.numbers)
        routine.store(1, state, FollowingWords.is_flushing)
        routine.call(exchange, state)
        status = routine.call(run_known, state, node, values, numbers, cause)
        error = routine.stack(3)
        self._fetch(routine, error)
        for list_ in (values, numbers):  # what is let go may have Python run
            count = routine.load(list_, object_layout.LENGTH_WORD)
            routine.call(python_function("PyList_SetSlice", 32), list_, 0, count, 0)
        routine.store(0, state, FollowingWords.is_flushing)
        release = routine.load(state, FollowingWords.release)
        self._drop(routine, routine.call(python_function("PyObject_CallNoArgs"), release))
        self._restore(routine, error)
        routine.give_back(status)
        return routine

    def _may_run(self, settings: Routine) -> Routine:
        """may_run(state): whether no gradient is noted, and torch's settings are those of the steps."""
        routine = self._library.routine("may_run", 1)
        (state,) = routine.parameters
        is_same = routine.compare(routine.call(settings), "==", routine.load(state, FollowingWords.settings))
        is_plain = routine.compare(self._settings.read(routine, GRAD_MODE), "==", 0)
        routine.give_back(routine.choose(routine.both(is_same, is_plain), 1, 0))
        return routine

    def _is_known(self) -> Routine:
        """is_known(node, cause): whether a flush because of this was seen here."""
        routine = self._library.routine("is_known", 2)
        node, cause = routine.parameters
        cell = routine.stack(1)
        routine.store(routine.load(node, NodeWords.flushes), cell)
        with routine.forever():
            flush = routine.load(cell)
            with routine.when(routine.compare(flush, "==", 0)):
                routine.give_back(0)
            with routine.when(routine.compare(routine.load(flush, FlushWords.cause), "==", cause)):
                routine.give_back(1)
            routine.store(routine.load(flush, FlushWords.next), cell)
        return routine

    def _exchange(self) -> Routine:
        """exchange(state): nothing is pending any more; what was is in the spare lists."""
        routine = self._library.routine("exchange", 1)
        (state,) = routine.parameters
        for one, other in (
            (FollowingWords.values, FollowingWords.spare_values),
            (FollowingWords.numbers, FollowingWords.spare_numbers),
        ):
            before = routine.load(state, one)
            routine.store(routine.load(state, other), state, one)
            routine.store(before, state, other)
        routine.store(0, state, FollowingWords.bytes)
        for place in range(FollowingWords.recent.length):
            routine.store(0, state, FollowingWords.recent + place)
        routine.increase(1, state, FollowingWords.flushes)
        routine.increase(1, state, FollowingWords.turns)
        routine.store(routine.load(state, FollowingWords.root), state, FollowingWords.node)
        routine.give_back()
        return routine

    def _find(self) -> Routine:
        """find_flush(node, cause, needed, count): the flush that is known; 0 if there is none."""
        are_same = self._are_same()
        routine = self._library.routine("find_flush", 4)
        node, cause, needed, count = routine.parameters
        cell = routine.stack(1)
        routine.store(routine.load(node, NodeWords.flushes), cell)
        with routine.forever():
            flush = routine.load(cell)
            with routine.when(routine.compare(flush, "==", 0)):
                routine.give_back(0)
            is_cause = routine.compare(routine.load(flush, FlushWords.cause), "==", cause)
            is_count = routine.compare(routine.load(flush, FlushWords.count), "==", count)
            with routine.when(routine.both(is_cause, is_count)):
                same = routine.call(are_same, routine.load(flush, FlushWords.needed), needed, count)
                with routine.when(routine.compare(same, "!=", 0)):
                    routine.give_back(flush)
            routine.store(routine.load(flush, FlushWords.next), cell)
        return routine

    def _are_same(self) -> Routine:
        routine = self._library.routine("are_same", 3)
        one, other, count = routine.parameters
        with routine.loop(count) as index:
            is_other = routine.compare(routine.load(one, index), "!=", routine.load(other, index))
            with routine.when(is_other):
                routine.give_back(0)
        routine.give_back(1)
        return routine

    def _run_known(
        self, may_run: Routine, find: Routine, boundaries: BoundaryRoutines, run: Routine, finish: Routine
    ) -> Routine:
        """run_known(state, node, values, numbers, cause): runs what was pending."""
        routine = self._library.routine("run_known", 5)
        state, node, values, numbers, cause = routine.parameters
        count = routine.load(values, object_layout.LENGTH_WORD)
        needed = routine.stack(count)
        routine.call(boundaries.settle, values, routine.load(node, NodeWords.bases), needed)
        flush = routine.call(find, node, cause, needed, count)
        is_known = routine.compare(flush, "!=", 0)
        with routine.when(routine.opposite(is_known)):
            routine.give_back(routine.call(finish, state, node, values, numbers, cause))
        # Letting go of results may have had Python run, which may have changed settings.
        with routine.when(routine.compare(routine.call(may_run, state), "==", 0)):
            routine.give_back(routine.call(finish, state, node, values, numbers, cause))
        times = routine.load(flush, FlushWords.times)
        with routine.when(routine.compare(times, "!=", 0)):
            routine.increase(1, times)
        with routine.when(routine.compare(routine.load(flush, FlushWords.function), "==", 0)):
            routine.call(boundaries.release, values)
            routine.give_back(FlushStatus.DONE)
        status = routine.call(run, state, flush, values, numbers)
        with routine.when(routine.compare(status, "!=", FlushStatus.RAISED)):
            routine.give_back(status)
        is_interrupt = routine.call(python_function("PyErr_ExceptionMatches", 32), id(KeyboardInterrupt))
        has_ended = routine.call(python_function("PySet_Size"), routine.load(flush, FlushWords.ended))
        is_cut_short = routine.compare(has_ended, "==", 0)
        with routine.when(routine.both(routine.compare(is_interrupt, "!=", 0), is_cut_short)):
            error = routine.stack(3)
            self._fetch(routine, error)
            routine.call(finish, state, node, values, numbers, cause)
            routine.call(python_function("PyErr_Clear"))
            self._restore(routine, error)
        routine.give_back(FlushStatus.RAISED)
        return routine

    def _run_seen_or_not(self, run_segment: Routine, boundaries: BoundaryRoutines) -> Routine:
        """run_seen_or_not(state, flush, values, numbers): runs a segment; afterwards all tensors may be read. While
        there are other threads their marks stay meanwhile, and the segment gets other tensors over the same memory."""
        arguments_of, is_alone = self._arguments_of(), self._is_alone()
        routine = self._library.routine("run_seen_or_not", 4)
        state, flush, values, numbers = routine.parameters
        given, status = routine.call(arguments_of, flush, values, numbers), routine.stack(1)
        with routine.when(routine.compare(given, "==", 0)):
            routine.give_back(FlushStatus.RAISED)
        is_unseen = routine.compare(routine.call(is_alone), "!=", 0)
        with routine.when(is_unseen):
            routine.call(boundaries.release, values)
            routine.store(routine.call(run_segment, state, flush, given), status)
        with routine.when(routine.opposite(is_unseen)):
            before = routine.call(self._places.is_excluded, self._key)
            routine.call(self._places.set_excluded, self._key, 1)
            routine.store(FlushStatus.RAISED, status)
            others = routine.call(boundaries.aliases, given)
            with routine.when(routine.compare(others, "!=", 0)):
                routine.store(routine.call(run_segment, state, flush, others), status)
                routine.call(python_function("Py_DecRef"), others)
            routine.call(self._places.set_excluded, self._key, before)
            routine.call(boundaries.release, values)
        routine.call(python_function("Py_DecRef"), given)
        routine.give_back(routine.load(status))
        return routine

    def _is_alone(self) -> Routine:
        """is_alone(): whether there is no other thread of Python's."""
        routine = self._library.routine("is_alone", 0)
        threads = routine.call(python_function("PyObject_CallNoArgs"), id(_thread._count))
        with routine.when(routine.compare(threads, "==", 0)):
            routine.call(python_function("PyErr_Clear"))
            routine.give_back(0)
        routine.call(python_function("Py_DecRef"), threads)
        routine.give_back(routine.choose(routine.compare(threads, "==", id(0)), 1, 0))
        return routine

    def _run_segment(self, boundaries: BoundaryRoutines) -> Routine:
        """run_segment(state, flush, given)"""
        routine = self._library.routine("run_segment", 3)
        state, flush, given = routine.parameters
        function = routine.load(flush, FlushWords.function)
        routine.call(python_function("PySet_Clear", 32), routine.load(flush, FlushWords.ended))
        calls, name = python_function("PyObject_GetAttr"), id(PYTHON_CALLS)
        before = routine.call(calls, function, name)
        result = routine.call(boundaries.run, function, given, routine.load(flush, FlushWords.writes))
        with routine.when(routine.compare(result, "==", 0)):
            self._drop(routine, before)
            routine.give_back(FlushStatus.RAISED)
        routine.call(python_function("Py_DecRef"), result)
        after = routine.call(calls, function, name)
        with routine.when(routine.compare(after, "!=", before)):
            routine.store(1, state, FollowingWords.was_busy)
        self._drop(routine, before)
        self._drop(routine, after)
        routine.give_back(FlushStatus.DONE)
        return routine

    def _arguments_of(self) -> Routine:
        """arguments_of(flush, values, numbers): what a segment is given, in a tuple; 0 with Python's error set."""
        routine = self._library.routine("arguments_of", 3)
        flush, values, numbers = routine.parameters
        count = routine.load(numbers, object_layout.LENGTH_WORD)
        first, last = routine.load(flush, FlushWords.input_count), routine.load(flush, FlushWords.destination_count)
        made = routine.call(python_function("PyTuple_New"), routine.add(routine.add(first, last), count))
        with routine.when(routine.compare(made, "==", 0)):
            routine.give_back(0)

        def put(item: Value, place: Value) -> None:
            routine.call(python_function("Py_IncRef"), item)
            routine.store(item, made, routine.add(place, object_layout.ITEMS_WORD))

        items = routine.load(values, object_layout.ITEMS_WORD)
        inputs, destinations = routine.load(flush, FlushWords.inputs), routine.load(flush, FlushWords.destinations)
        with routine.loop(first) as index:
            put(routine.load(items, routine.load(inputs, index)), index)
        open_ = routine.load(numbers, object_layout.ITEMS_WORD)
        with routine.loop(count) as index:
            put(routine.load(open_, index), routine.add(first, index))
        with routine.loop(last) as index:
            place = routine.add(routine.add(first, count), index)
            put(routine.load(items, routine.load(destinations, index)), place)
        routine.give_back(made)
        return routine

    def _finish(self) -> Routine:
        """finish(state, node, values, numbers, cause): Python runs what was pending. Interrupted before it has begun
        to, it is called again."""
        routine = self._library.routine("finish", 5)
        state, node, values, numbers, cause = routine.parameters
        begun, function = routine.load(state, FollowingWords.begun), routine.load(state, FollowingWords.finish)
        length = routine.load(begun, object_layout.LENGTH_WORD)
        routine.call(python_function("PyList_SetSlice", 32), begun, 0, length, 0)
        given = routine.call(python_function("PyTuple_New"), 4)
        with routine.when(routine.compare(given, "==", 0)):
            routine.give_back(FlushStatus.RAISED)
        place = routine.call(python_function("PyLong_FromLongLong"), node)
        routine.store(place, given, object_layout.ITEMS_WORD)
        for index, object_ in enumerate((values, numbers, cause), start=1):
            routine.call(python_function("Py_IncRef"), object_)
            routine.store(object_, given, object_layout.ITEMS_WORD + index)
        result, status = routine.call(python_function("PyObject_Call"), function, given, 0), routine.stack(1)
        self._drop(routine, result)
        routine.store(FlushStatus.DONE, status)
        with routine.when(routine.compare(result, "==", 0)):
            routine.store(FlushStatus.RAISED, status)
            is_interrupt = routine.call(python_function("PyErr_ExceptionMatches", 32), id(KeyboardInterrupt))
            with routine.when(routine.compare(is_interrupt, "!=", 0)):
                error = routine.stack(3)
                self._fetch(routine, error)
                self._drop(routine, routine.call(python_function("PyObject_Call"), function, given, 0))
                routine.call(python_function("PyErr_Clear"))
                self._restore(routine, error)
        routine.call(python_function("Py_DecRef"), given)
        routine.give_back(routine.load(status))
        return routine

    # --- Python's objects ---------------------------------------------------------------------------------------------

    def _drop(self, routine: Routine, object_: Value) -> None:
        """Let go of an object, if it is one."""
        with routine.when(routine.compare(object_, "!=", 0)):
            routine.call(python_function("Py_DecRef"), object_)

    def _fetch(self, routine: Routine, error: Value) -> None:
        """Take Python's error, if there is one: what is called next must not meet it."""
        routine.call(python_function("PyErr_Fetch"), error, routine.add(error, 8), routine.add(error, 16))

    def _restore(self, routine: Routine, error: Value) -> None:
        with routine.when(routine.compare(routine.load(error), "!=", 0)):
            restore = python_function("PyErr_Restore")
            routine.call(restore, routine.load(error), routine.load(error, 1), routine.load(error, 2))
