"""The native routines that answer a torch call: what Python's function mode calls.

`handle` is the `__torch_function__` of a followed call. It answers what it understands and hands everything else, as it
came, to the function given for that.
"""

from __future__ import annotations

import torch

from ingot.runtime.native.abi import object_layout
from ingot.runtime.native.abi.prototypes import PrototypeWords
from ingot.runtime.native.abi.settings import Settings, emit_settings
from ingot.runtime.native.assembler.addresses import python_function
from ingot.runtime.native.assembler.routines import Condition, Library, Routine, Value
from ingot.runtime.native.following.boundaries import MOST_VALUES, BoundaryEmitter
from ingot.runtime.native.following.deciding import DecidingEmitter, emit_is_plain
from ingot.runtime.native.following.flushing import FlushingEmitter
from ingot.runtime.native.following.following_structs import (
    CallStatus,
    Container,
    FollowedStepWords,
    FollowingWords,
    NativeRole,
    NodeWords,
    RoleEntry,
    StepKind,
)
from ingot.runtime.native.following.intercepting import InterceptingEmitter, ModeStack, call_of_builtins
from ingot.runtime.native.following.layouts import (
    COUNT_WORD,
    GETTER_ATTRIBUTE_WORD,
    GETTER_SLOT_WORD,
    LOWER_HALF,
    FollowingLayout,
)
from ingot.runtime.native.following.matching import Found, StepMatchingEmitter
from ingot.runtime.native.following.objects import Seen, emit_are_written, has_one_reference, is_held_once
from ingot.runtime.native.launch.launcher import Launcher
from ingot.runtime.native.memory.pool import Pool
from ingot.runtime.torch_state import FORWARD_GRADIENTS

MOST_BYTES = 1 << 29
"""Bytes of shells after which Python checks whether any can be let go."""


class AnsweringEmitter:
    """Writes these routines into a library."""

    def __init__(
        self,
        library: Library,
        places: FollowingLayout,
        launcher: Launcher,
        settings: Settings,
        memory: Pool,
        stack: ModeStack,
        key: int,
        bit: int,
    ):
        self._library = library
        self._places = places
        self._launcher = launcher
        self._settings = settings
        self._memory = memory
        self._stack = stack
        self._key = key
        self._bit = bit

    def emit(self) -> None:
        """Write `handle`, and what Python calls where pending steps begin and end."""
        fits = StepMatchingEmitter(self._library, self._places, self._launcher, self._settings).emit()
        settings = emit_settings(self._library, self._settings, FORWARD_GRADIENTS)
        are_written = emit_are_written(self._library, self._places, self._bit)
        note_found = self._note_found()
        take = self._take_step(self._make_shells(note_found), self._view(), note_found, are_written)
        operate = self._operate(settings, fits, take)
        deciding, is_plain = DecidingEmitter(self._library), emit_is_plain(self._library)
        role_of, decide = deciding.role_of(), deciding.decide(are_written, operate, is_plain)
        boundaries = BoundaryEmitter(self._library, self._places, self._bit).emit(settings)
        flushing = FlushingEmitter(self._library, self._places, self._settings, self._key).emit(settings, boundaries)
        self._handle(self._answer(role_of, decide, self._call_stand_in(), flushing.flush))
        intercepting = InterceptingEmitter(self._library, self._places, self._stack)
        intercepting.emit(decide, role_of, is_plain, flushing, call_of_builtins())

    # --- the call -----------------------------------------------------------------------------------------------------

    def _handle(self, answer: Routine) -> None:
        """handle(self, arguments, count, keywords): what Python calls; `self` is the mode, in which a tuple lies: the
        state, its owner and the fallback."""
        are_plain_classes = self._are_plain_classes()
        routine = self._library.routine("handle", 4)
        mode, arguments, count, names = routine.parameters
        self_ = routine.load(mode, self._places.owner_word)
        state = routine.call(python_function("PyCapsule_GetPointer"), routine.load(self_, object_layout.ITEMS_WORD), 0)
        given = routine.stack(1)
        routine.store(0, given)
        with routine.when(routine.compare(count, ">", 3)):
            last = routine.load(arguments, 3)
            with routine.when(routine.compare(last, "!=", id(None))):
                routine.store(last, given)
        is_plain = routine.both(routine.compare(count, ">=", 3), routine.compare(names, "==", 0))
        with routine.when(is_plain):
            passed = routine.load(arguments, 2)
            is_tuple = routine.compare(routine.load(passed, object_layout.TYPE_WORD), "==", id(tuple))
            are_plain = routine.compare(routine.call(are_plain_classes, routine.load(arguments, 1)), "!=", 0)
            with routine.when(routine.both(is_tuple, are_plain)):
                result = routine.call(answer, state, routine.load(arguments, 0), passed, routine.load(given))
                with routine.when(routine.compare(result, "==", CallStatus.RAISED)):
                    routine.give_back(0)
                with routine.when(routine.compare(result, "!=", 0)):
                    routine.give_back(result)
        fallback = routine.load(self_, object_layout.ITEMS_WORD + 2)
        routine.give_back(routine.call(python_function("PyObject_Vectorcall"), fallback, arguments, count, names))

    def _are_plain_classes(self) -> Routine:
        """are_plain_classes(classes): whether none of the tensors' classes has a `__torch_function__` of its own."""
        routine = self._library.routine("are_plain_classes", 1)
        (classes,) = routine.parameters
        with routine.when(routine.compare(routine.load(classes, object_layout.TYPE_WORD), "!=", id(tuple))):
            routine.give_back(0)
        with routine.loop(routine.load(classes, object_layout.LENGTH_WORD)) as index:
            class_ = routine.load(classes, routine.add(index, object_layout.ITEMS_WORD))
            is_other = routine.compare(class_, "!=", id(torch.Tensor))
            with routine.when(routine.both(is_other, routine.compare(class_, "!=", id(torch.nn.Parameter)))):
                routine.give_back(0)
        routine.give_back(1)
        return routine

    def _answer(self, role_of: Routine, decide: Routine, call_stand_in: Routine, flush: Routine) -> Routine:
        """answer(state, function, arguments, keywords): the result; 0 where Python has to look at the call."""
        routine = self._library.routine("answer", 4)
        state, function, arguments, keywords = routine.parameters
        key = self._key_of(routine, function)
        entry = routine.call(role_of, routine.load(state, FollowingWords.roles), key)
        with routine.when(routine.compare(entry, "==", 0)):
            routine.give_back(0)
        role = routine.load(entry, RoleEntry.role)
        with routine.when(routine.compare(role, "==", NativeRole.METADATA)):
            routine.give_back(self._called(routine, function, arguments, keywords))
        with routine.when(routine.compare(role, "==", NativeRole.PYTHON)):
            stand_in = routine.load(entry, RoleEntry.stand_in)
            code = routine.load(function, self._places.code_word)
            with routine.when(routine.compare(code, "!=", routine.load(entry, RoleEntry.code))):
                routine.give_back(0)
            routine.give_back(routine.call(call_stand_in, state, stand_in, arguments, keywords))
        decided = routine.call(decide, state, role, function, key, arguments, keywords)
        with routine.when(routine.compare(decided, "==", CallStatus.PLAIN)):
            routine.give_back(self._called(routine, function, arguments, keywords))
        with routine.when(routine.compare(decided, "==", CallStatus.PLAIN_AFTER_FLUSH)):
            status = routine.call(flush, state, function)
            with routine.when(routine.compare(status, "==", CallStatus.RAISED)):
                routine.give_back(CallStatus.RAISED)
            routine.give_back(self._called(routine, function, arguments, keywords))
        routine.give_back(decided)
        return routine

    def _key_of(self, routine: Routine, function: Value) -> Value:
        """What a function is known by: itself, or the attribute that it reads."""
        cell = routine.stack(1)
        routine.store(function, cell)
        is_getter = routine.compare(routine.load(function, object_layout.TYPE_WORD), "==", self._places.getter_class)
        with routine.when(is_getter):
            slot = routine.load(function, GETTER_SLOT_WORD)
            with routine.when(routine.compare(slot, "==", self._places.getter_slot)):
                routine.store(routine.load(function, GETTER_ATTRIBUTE_WORD), cell)
        return routine.load(cell)

    def _called(self, routine: Routine, function: Value, arguments: Value, keywords: Value) -> Value:
        """The result of a Python call, or the word for an exception."""
        result = routine.call(python_function("PyObject_Call"), function, arguments, keywords)
        return routine.choose(routine.compare(result, "==", 0), CallStatus.RAISED, result)

    def _call_stand_in(self) -> Routine:
        """call_stand_in(state, function, arguments, keywords): calls it with the mode on."""
        routine = self._library.routine("call_stand_in", 4)
        state, function, arguments, keywords = routine.parameters
        call = python_function("PyObject_CallOneArg")
        nothing = routine.call(
            call, id(torch._C._push_on_torch_function_stack), routine.load(state, FollowingWords.mode)
        )
        with routine.when(routine.compare(nothing, "==", 0)):
            routine.give_back(CallStatus.RAISED)
        routine.call(python_function("Py_DecRef"), nothing)
        result = routine.call(python_function("PyObject_Call"), function, arguments, keywords)
        kept = routine.stack(3)
        is_raised = routine.compare(result, "==", 0)
        with routine.when(is_raised):  # popping must not meet an exception
            routine.call(python_function("PyErr_Fetch"), kept, routine.add(kept, 8), routine.add(kept, 16))
        mode = routine.call(python_function("PyObject_CallNoArgs"), id(torch._C._pop_torch_function_stack))
        with routine.when(routine.compare(mode, "!=", 0)):
            routine.call(python_function("Py_DecRef"), mode)
        with routine.when(is_raised):
            routine.call(
                python_function("PyErr_Restore"), routine.load(kept), routine.load(kept, 1), routine.load(kept, 2)
            )
            routine.give_back(CallStatus.RAISED)
        routine.give_back(result)
        return routine

    # --- steps --------------------------------------------------------------------------------------------------------

    def _operate(self, settings: Routine, fits: Routine, take: Routine) -> Routine:
        """operate(state, function, key, arguments, keywords): the result of the step that a call is, or a word of
        `CallStatus`."""
        routine = self._library.routine("operate", 5)
        state, function, key, arguments, keywords = routine.parameters
        node = routine.load(state, FollowingWords.node)
        with routine.when(routine.compare(node, "==", 0)):
            routine.give_back(0)
        is_other = routine.compare(routine.call(settings), "!=", routine.load(state, FollowingWords.settings))
        is_large = routine.compare(routine.load(state, FollowingWords.bytes), ">", MOST_BYTES)
        count = routine.load(routine.load(state, FollowingWords.values), object_layout.LENGTH_WORD)
        is_long = routine.compare(count, ">", MOST_VALUES)
        with routine.when(routine.either(is_other, routine.either(is_large, is_long))):
            routine.give_back(0)
        found, cell = routine.stack(Found.words()), routine.stack(1)
        routine.store(routine.load(node, NodeWords.first), cell)
        with routine.forever():
            step = routine.load(cell)
            with routine.when(routine.compare(step, "==", 0)):
                routine.give_back(0)
            with routine.when(routine.compare(routine.load(step, FollowedStepWords.key), "==", key)):
                is_fit = routine.call(fits, step, state, arguments, keywords, found)
                with routine.when(routine.compare(is_fit, "!=", 0)):
                    routine.give_back(routine.call(take, state, step, function, arguments, keywords, found))
            routine.store(routine.load(step, FollowedStepWords.next), cell)
        return routine

    def _take_step(self, make_shells: Routine, view: Routine, note_found: Routine, are_written: Routine) -> Routine:
        """take_step(state, step, function, arguments, keywords, found)."""
        routine = self._library.routine("take_step", 6)
        state, step, function, arguments, keywords, found = routine.parameters
        kind = routine.load(step, FollowedStepWords.kind)
        with routine.when(routine.compare(kind, "<=", StepKind.LATER_ELSEWHERE)):
            routine.give_back(routine.call(make_shells, state, step, found))
        with routine.when(routine.compare(kind, "==", StepKind.VIEW)):
            routine.give_back(routine.call(view, state, step, function, arguments, keywords))
        with routine.when(routine.compare(kind, "==", StepKind.ALONE)):
            routine.give_back(CallStatus.PLAIN_AFTER_FLUSH)
        with routine.when(routine.compare(kind, "==", StepKind.NOW)):
            is_free = routine.compare(routine.call(are_written, arguments, keywords), "==", Seen.WRITTEN)
            routine.give_back(routine.choose(is_free, CallStatus.PLAIN, CallStatus.PLAIN_AFTER_FLUSH))
        first = routine.load(arguments, object_layout.ITEMS_WORD)
        tensor = routine.load(first, self._places.tensors.implementation_word)
        with routine.when(routine.compare(kind, "==", StepKind.SAME)):
            routine.call(python_function("Py_IncRef"), first)
            routine.give_back(first)
        with routine.when(routine.compare(kind, "==", StepKind.FIRST_WRITE)):
            storage = routine.load(tensor, self._places.tensors.storage_word)
            word, byte = divmod(self._places.storages.flag_byte, 8)
            flag = routine.common_bits(routine.load(storage, word), 1 << 8 * byte)
            with routine.when(routine.compare(flag, "==", 0)):
                routine.give_back(CallStatus.PLAIN_AFTER_FLUSH)
            is_alone = self._is_private(routine, storage)
            is_own = has_one_reference(routine, tensor)
            with routine.when(routine.opposite(routine.both(is_alone, is_own))):
                routine.give_back(CallStatus.PLAIN_AFTER_FLUSH)
            self._set_bit(routine, tensor)
        routine.call(note_found, state, found)
        routine.store(routine.load(step, FollowedStepWords.target), state, FollowingWords.node)
        routine.call(python_function("Py_IncRef"), first)
        routine.give_back(first)
        return routine

    def _is_private(self, routine: Routine, storage: Value) -> Condition:
        """Whether a storage belongs to one tensor alone. Its Python object, if it has one, may be referred to by the
        storage only."""
        cell = routine.stack(1)
        routine.store(routine.choose(has_one_reference(routine, storage), 1, 0), cell)
        word = self._places.storage_object_word
        if word:
            references = routine.common_bits(routine.load(storage, COUNT_WORD), LOWER_HALF)
            object_ = routine.load(storage, word)
            may_be = routine.both(routine.compare(references, "==", 2), routine.compare(object_, "!=", 0))
            with routine.when(may_be):
                held = routine.common_bits(routine.load(object_, 0), LOWER_HALF)
                routine.store(routine.choose(routine.compare(held, "==", 1), 1, 0), cell)
        return routine.compare(routine.load(cell), "!=", 0)

    def _note_found(self) -> Routine:
        """note_found(state, found): new tensors and open numbers go to the lists of the call."""
        routine = self._library.routine("note_found", 2)
        state, found = routine.parameters
        append = python_function("PyList_Append", 32)
        for list_, count, first in (
            (FollowingWords.values, Found.outside_count, Found.outside),
            (FollowingWords.numbers, Found.open_count, Found.open),
        ):
            target = routine.load(state, list_)
            with routine.loop(routine.load(found, count)) as index:
                routine.call(append, target, routine.load(found, routine.add(index, first)))
        routine.give_back(0)
        return routine

    def _make_shells(self, note_found: Routine) -> Routine:
        """make_shells(state, step, found): takes a step whose results are new tensors that are not written, and gives
        them in the container that the step says.

        Objects that come and go may have Python run: finalisers, and other threads meanwhile, which may flush. So all
        are made first; if there was a flush by then the call is Python's to look at. Noting them has nothing run."""
        make_shell, drop_recent = self._make_shell(), self._drop_recent()
        routine = self._library.routine("make_shells", 3)
        state, step, found = routine.parameters
        before = routine.load(state, FollowingWords.flushes)
        routine.call(drop_recent, state)
        prototypes, count = (
            routine.load(step, FollowedStepWords.prototypes),
            routine.load(step, FollowedStepWords.results),
        )
        made = routine.stack(count)
        with routine.loop(count) as index:
            shell = routine.call(make_shell, state, step, routine.load(prototypes, index))
            with routine.when(routine.compare(shell, "==", 0)):
                routine.give_back(CallStatus.RAISED)
            routine.store(shell, made, index)
        with routine.when(routine.compare(routine.load(state, FollowingWords.flushes), "!=", before)):
            with routine.loop(count) as index:
                routine.call(python_function("Py_DecRef"), routine.load(made, index))
            routine.give_back(0)
        routine.call(note_found, state, found)
        values = routine.load(state, FollowingWords.values)
        with routine.loop(count) as index:
            shell = routine.load(made, index)
            self._set_bit(routine, routine.load(shell, self._places.tensors.implementation_word))
            routine.call(python_function("PyList_Append", 32), values, shell)
        routine.store(routine.load(step, FollowedStepWords.target), state, FollowingWords.node)
        container = routine.load(step, FollowedStepWords.container)
        with routine.when(routine.compare(container, "==", Container.NONE)):
            for newer, older in ((2, 3), (1, 2), (0, 1)):
                routine.store(routine.load(state, FollowingWords.recent + newer), state, FollowingWords.recent + older)
            routine.store(routine.load(values, object_layout.LENGTH_WORD), state, FollowingWords.recent)
            routine.give_back(routine.load(made))
        for kind, create, put in (
            (Container.TUPLE, "PyTuple_New", "PyTuple_SetItem"),
            (Container.LIST, "PyList_New", "PyList_SetItem"),
        ):
            with routine.when(routine.compare(container, "==", kind)):
                result = routine.call(python_function(create), count)
                with routine.when(routine.compare(result, "==", 0)):
                    routine.give_back(CallStatus.RAISED)
                with routine.loop(count) as index:
                    routine.call(python_function(put, 32), result, index, routine.load(made, index))
                routine.give_back(result)
        routine.give_back(0)
        return routine

    def _drop_recent(self) -> Routine:
        """drop_recent(state): lets go of the shells made last that nothing refers to any more, so that the next ones
        get their memory, which is likely to be near."""
        routine = self._library.routine("drop_recent", 1)
        (state,) = routine.parameters
        values = routine.load(state, FollowingWords.values)
        for place in range(FollowingWords.recent, FollowingWords.recent + FollowingWords.recent.length):
            number = routine.subtract(routine.load(state, place), 1)
            with routine.when(routine.compare(number, ">=", 0)):
                object_ = routine.load(routine.load(values, object_layout.ITEMS_WORD), number)
                tensor = routine.load(object_, self._places.tensors.implementation_word)
                with routine.when(is_held_once(routine, object_, tensor)):
                    routine.store(0, state, place)
                    routine.call(python_function("Py_IncRef"), id(None))
                    routine.call(python_function("PyList_SetItem", 32), values, number, id(None))
        routine.give_back(0)
        return routine

    def _make_shell(self) -> Routine:
        """make_shell(state, step, prototype): a new tensor; 0 with Python's error set if there is no memory."""
        routine = self._library.routine("make_shell", 3)
        state, step, prototype = routine.parameters
        with routine.when(routine.compare(routine.load(step, FollowedStepWords.kind), "==", StepKind.LATER_ELSEWHERE)):
            routine.give_back(routine.call(python_function("PyObject_CallNoArgs"), prototype))
        size = routine.load(prototype, PrototypeWords.bytes)
        block = routine.call(self._memory.take, size)
        with routine.when(routine.compare(block, "==", 0)):
            routine.give_back(routine.call(python_function("PyErr_NoMemory")))
        routine.increase(size, state, FollowingWords.bytes)
        routine.give_back(routine.call(self._memory.wrap, prototype, block))
        return routine

    def _view(self) -> Routine:
        """view(state, step, function, arguments, keywords): other names for memory that is not written."""
        routine = self._library.routine("view", 5)
        state, step, function, arguments, keywords = routine.parameters
        before = routine.load(state, FollowingWords.flushes)
        routine.call(self._places.set_excluded, self._key, 1)
        result = routine.call(python_function("PyObject_Call"), function, arguments, keywords)
        routine.call(self._places.set_excluded, self._key, 0)
        with routine.when(routine.compare(result, "==", 0)):
            routine.give_back(CallStatus.RAISED)
        is_other = routine.compare(routine.load(state, FollowingWords.flushes), "!=", before)
        items, count = routine.stack(1), routine.load(step, FollowedStepWords.results)
        container = routine.load(step, FollowedStepWords.container)
        cell = routine.stack(1)
        routine.store(result, cell)
        routine.store(cell, items)
        with routine.when(routine.compare(container, "==", Container.TUPLE)):
            routine.store(routine.part(result, object_layout.ITEMS_WORD), items)
        with routine.when(routine.compare(container, "==", Container.LIST)):
            routine.store(routine.load(result, object_layout.ITEMS_WORD), items)
        with routine.when(is_other):  # another thread has begun to write the memory; the mark has readers wait for it
            routine.give_back(result)
        values = routine.load(state, FollowingWords.values)
        with routine.loop(count) as index:
            routine.call(python_function("PyList_Append", 32), values, routine.load(routine.load(items), index))
        routine.store(routine.load(step, FollowedStepWords.target), state, FollowingWords.node)
        routine.give_back(result)
        return routine

    def _set_bit(self, routine: Routine, tensor: Value) -> None:
        word = self._places.tensors.keys_word
        routine.store(routine.united_bits(routine.load(tensor, word), self._bit), tensor, word)

    def _clear_bit(self, routine: Routine, tensor: Value) -> None:
        word = self._places.tensors.keys_word
        routine.store(routine.common_bits(routine.load(tensor, word), ~self._bit), tensor, word)
