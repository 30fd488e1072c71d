"""The native routines that stand before functions of torch while a call is followed.

torch tells a function mode of every call, at a price: it parses the arguments, looks the function and the mode up by
their names and takes the mode off its stack, which takes longer than answering. These routines come first:

    method_N, bare_N, getter_N  the method or attribute that slot N says, by their C signatures
    subscript                   tensor[index]
    call_builtin                functions such as torch.sigmoid
    ask_one, ask_all, ask_many  torch's question whether a mode watches, which Python functions of torch ask first
    flush_from_python           what Python calls to have a known flush done

Where no call is followed, or the answer is not known natively, the original runs as it always does. A call is followed
if its mode is the only one of this thread and is not switched off.
"""

from __future__ import annotations

import ctypes
import types
from dataclasses import dataclass
from enum import auto

import torch
from torch.overrides import TorchFunctionMode

from ingot.runtime.native.abi import object_layout
from ingot.runtime.native.assembler.addresses import python_function, torch_function
from ingot.runtime.native.assembler.routines import Foreign, Library, Routine
from ingot.runtime.native.assembler.structs import Code, Field, Struct
from ingot.runtime.native.following.flushing import FlushingRoutines, FlushStatus
from ingot.runtime.native.following.following_structs import CallStatus, FollowingWords, NativeRole, RoleEntry
from ingot.runtime.native.following.layouts import FollowingLayout
from ingot.runtime.native.following.objects import is_tensor

CALL_WORD, QUICK_CALL_WORD = 16, 7
"""Where a class has the address that its objects are called through, and the distance in bytes at which each object has
the address of a quicker way."""
_SPARE_PLACE = 1 << 63
"""What callers add to the number of arguments where the place before them may be used."""
_ON, _ALL_OFF = 0, 2
"""States of torch's function modes."""
METHODS, BARES, GETTERS = 128, 24, 24
"""How many of each signature can be intercepted."""
SLOTS = METHODS + BARES + GETTERS + 1
"""The last one is that of tensor[index]."""


class SlotWords(Struct):
    key: Field
    """The function that torch would tell the mode of."""
    role: Field
    original: Field
    """Where its code is."""
    form: Field
    """How arguments come."""


class ArgumentForm(Code):
    METHOD = auto()
    """The first one by itself, the others in a tuple, if there are any."""
    PAIR = auto()
    """Two arguments, without a tuple."""


@dataclass(frozen=True, slots=True)
class ModeStack:
    """torch's functions about the function modes of this thread."""

    length: Foreign
    at: Foreign
    """The address of a shared pointer to what holds a mode."""
    state: Foreign
    set_state: Foreign
    skips_next: Foreign | None
    """Whether the next call is kept from modes, where this version of torch can be told so."""

    @classmethod
    def find(cls) -> ModeStack | None:
        """All of them; None where this version of torch lacks one."""
        names = (
            ("9stack_lenEv", 64),
            ("12get_stack_atEl", 64),
            ("18get_disabled_stateEv", 8),
            ("18set_disabled_stateENS0_26TorchFunctionDisabledStateE", 64),
        )
        prefix = "_ZN2at4impl22PythonTorchFunctionTLS"
        found = [torch_function("torch_cpu", f"{prefix}{name}", bits) for name, bits in names]
        if any(one is None for one in found):
            return None
        made = cls(*found, torch_function("torch_cpu", f"{prefix}14peek_skip_nextEv", 8))  # type: ignore[arg-type]
        return made if made._holds_modes() else None

    def _holds_modes(self) -> bool:
        """Whether a mode is found where it is expected."""
        length = ctypes.CFUNCTYPE(ctypes.c_int64)(self.length.address)
        at = ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_int64)(self.at.address)
        with TorchFunctionMode() as mode:
            holder = ctypes.c_uint64.from_address(at(length() - 1)).value
            return ctypes.c_uint64.from_address(holder).value == id(mode)


def call_of_builtins() -> Foreign:
    """What Python calls builtin functions through that say nothing else: with a tuple and a dictionary."""
    return Foreign(ctypes.c_uint64.from_address(id(types.BuiltinFunctionType) + 8 * CALL_WORD).value)


class InterceptingEmitter:
    """Writes these routines into a library."""

    def __init__(self, library: Library, places: FollowingLayout, stack: ModeStack):
        self._library = library
        self._places = places
        self._stack = stack
        self._mode_class = library.memory("mode_class", 1)
        self._originals = library.memory("questions", 3)
        self._slots = library.memory("slots", SLOTS * SlotWords.words())

    def emit(
        self, decide: Routine, role_of: Routine, is_plain: Routine, flushing: FlushingRoutines, call_original: Foreign
    ) -> None:
        """Write all routines, and `mode_class`, `questions` and `slots`, which tell where Python writes."""
        for name, address in (
            ("mode_class_address", self._mode_class),
            ("questions_address", self._originals),
            ("slots_address", self._slots),
        ):
            self._library.routine(name, 0).give_back(address)
        followed = self._followed()
        flush = self._flush(self._outside("outside", flushing.flush, CallStatus.RAISED))
        self._flush_from_python(followed, flushing.flush_known)
        self._functions(self._intercept(followed, decide, flush), self._read(followed))
        self._call_builtin(followed, decide, flush, role_of, call_original)
        self._questions(followed, self._is_quiet(role_of), is_plain)

    def _followed(self) -> Routine:
        """followed(): the state of the call that this thread follows; 0 if there is none, or another mode is active."""
        routine = self._library.routine("followed", 0)
        is_alone = routine.compare(routine.call(self._stack.length), "==", 1)
        is_on = routine.compare(routine.call(self._stack.state), "==", _ON)
        with routine.when(routine.opposite(routine.both(is_alone, is_on))):
            routine.give_back(0)
        if self._stack.skips_next is not None:
            with routine.when(routine.compare(routine.call(self._stack.skips_next), "!=", 0)):
                routine.give_back(0)
        mode = routine.load(routine.load(routine.call(self._stack.at, 0)))
        is_ours = routine.compare(routine.load(mode, object_layout.TYPE_WORD), "==", routine.load(self._mode_class))
        with routine.when(routine.opposite(is_ours)):
            routine.give_back(0)
        owner = routine.load(mode, self._places.owner_word)
        capsule = routine.load(owner, object_layout.ITEMS_WORD)
        routine.give_back(routine.call(python_function("PyCapsule_GetPointer"), capsule, 0))
        return routine

    def _flush(self, outside: Routine) -> Routine:
        """flush(state, function): runs everything pending, as outside of the mode; RAISED or PLAIN. Modes are switched
        off when it is called, and afterwards; in between all modes but ours are on."""
        routine = self._library.routine("flush", 2)
        state, function = routine.parameters
        routine.call(self._stack.set_state, _ON)
        status = routine.call(outside, state, function)
        routine.call(self._stack.set_state, _ALL_OFF)
        routine.give_back(status)
        return routine

    def _outside(self, name: str, target: Routine, raised: int) -> Routine:
        """A routine that calls another one, with the same state and function, while our mode is off its stack."""
        routine = self._library.routine(name, 2)
        state, function = routine.parameters
        mode = routine.call(python_function("PyObject_CallNoArgs"), id(torch._C._pop_torch_function_stack))
        with routine.when(routine.compare(mode, "==", 0)):
            routine.give_back(raised)
        status = routine.call(target, state, function)
        kept, is_raised = routine.stack(3), routine.compare(status, "==", raised)
        with routine.when(is_raised):  # pushing must not meet an exception
            routine.call(python_function("PyErr_Fetch"), kept, routine.add(kept, 8), routine.add(kept, 16))
        push = id(torch._C._push_on_torch_function_stack)
        routine.call(python_function("PyObject_CallOneArg"), push, mode)  # gives None, which may be counted once more
        routine.call(python_function("Py_DecRef"), mode)
        with routine.when(is_raised):
            routine.call(
                python_function("PyErr_Restore"), routine.load(kept), routine.load(kept, 1), routine.load(kept, 2)
            )
        routine.give_back(status)
        return routine

    def _flush_from_python(self, followed: Routine, flush_known: Routine) -> None:
        """flush_from_python(self, arguments): whether a flush like it was known, and was done. `self` is a capsule with
        the state of a call, whose mode is on the stack or not."""
        outside = self._outside("flush_known_outside", flush_known, FlushStatus.RAISED)
        routine = self._library.routine("flush_from_python", 4)
        self_, arguments, _, _ = routine.parameters
        state, cause = routine.call(python_function("PyCapsule_GetPointer"), self_, 0), routine.load(arguments)
        status = routine.stack(1)
        is_on = routine.compare(routine.call(followed), "==", state)
        with routine.when(is_on):
            routine.store(routine.call(outside, state, cause), status)
        with routine.when(routine.opposite(is_on)):
            routine.store(routine.call(flush_known, state, cause), status)
        with routine.when(routine.compare(routine.load(status), "==", FlushStatus.RAISED)):
            routine.give_back(0)
        is_done = routine.compare(routine.load(status), "==", FlushStatus.DONE)
        result = routine.choose(is_done, id(True), id(False))
        routine.call(python_function("Py_IncRef"), result)
        routine.give_back(result)

    # --- functions ----------------------------------------------------------------------------------------------------

    def _functions(self, intercept: Routine, read: Routine) -> None:
        """The functions that stand in for torch's, one for each slot."""
        number = 0
        for name, count in (("method", METHODS), ("bare", BARES), ("getter", GETTERS)):
            for index in range(count):
                routine = self._library.routine(f"{name}_{index}", 3 if name == "method" else 2)
                slot = routine.item(self._slots, number, SlotWords)
                if name == "method":
                    routine.give_back(routine.call(intercept, *routine.parameters, slot))
                elif name == "bare":
                    routine.give_back(routine.call(intercept, routine.parameters[0], 0, 0, slot))
                else:
                    routine.give_back(routine.call(read, *routine.parameters, slot))
                number += 1
        routine = self._library.routine("subscript", 2)
        slot = routine.item(self._slots, number, SlotWords)
        routine.give_back(routine.call(intercept, *routine.parameters, 0, slot))

    def _read(self, followed: Routine) -> Routine:
        """read(self, closure, slot): an attribute whose value does not depend on memory."""
        routine = self._library.routine("read", 3)
        self_, closure, slot = routine.parameters
        original = routine.load(slot, SlotWords.original)
        with routine.when(routine.compare(routine.call(followed), "==", 0)):
            routine.give_back(routine.call(original, self_, closure))
        with routine.when(routine.opposite(is_tensor(routine, self_))):
            routine.give_back(routine.call(original, self_, closure))
        routine.call(self._stack.set_state, _ALL_OFF)
        result = routine.call(original, self_, closure)
        routine.call(self._stack.set_state, _ON)
        routine.give_back(result)
        return routine

    def _intercept(self, followed: Routine, decide: Routine, flush: Routine) -> Routine:
        """intercept(self, arguments, keywords, slot): the result of a call."""
        whole = self._whole_arguments()
        routine = self._library.routine("intercept", 4)
        self_, arguments, keywords, slot = routine.parameters
        original, state = routine.load(slot, SlotWords.original), routine.call(followed)
        with routine.when(routine.compare(state, "==", 0)):
            routine.give_back(routine.call(original, self_, arguments, keywords))
        passed = routine.call(whole, self_, arguments, routine.load(slot, SlotWords.form))
        with routine.when(routine.compare(passed, "==", 0)):
            routine.give_back(0)
        routine.call(self._stack.set_state, _ALL_OFF)
        cell = routine.stack(1)
        role, key = routine.load(slot, SlotWords.role), routine.load(slot, SlotWords.key)
        routine.store(routine.call(decide, state, role, key, key, passed, keywords), cell)
        with routine.when(routine.compare(routine.load(cell), "==", CallStatus.PLAIN_AFTER_FLUSH)):
            routine.store(routine.call(flush, state, key), cell)
        runs_plain = routine.compare(routine.load(cell), "==", CallStatus.PLAIN)
        with routine.when(runs_plain):
            routine.store(routine.call(original, self_, arguments, keywords), cell)
        routine.call(self._stack.set_state, _ON)
        routine.call(python_function("Py_DecRef"), passed)
        with routine.when(runs_plain):
            routine.give_back(routine.load(cell))
        result = routine.load(cell)
        with routine.when(routine.compare(result, "==", CallStatus.RAISED)):
            routine.give_back(0)
        with routine.when(routine.compare(result, "!=", 0)):
            routine.give_back(result)
        routine.give_back(routine.call(original, self_, arguments, keywords))  # torch tells the mode
        return routine

    def _whole_arguments(self) -> Routine:
        """whole_arguments(self, arguments, form): all of them in one tuple, as torch tells modes."""
        routine = self._library.routine("whole_arguments", 3)
        self_, arguments, form = routine.parameters
        count, cell = routine.stack(1), routine.stack(1)
        items = routine.stack(1)
        routine.store(0, count)
        routine.store(arguments, cell)
        routine.store(routine.part(arguments, object_layout.ITEMS_WORD), items)
        is_pair = routine.compare(form, "==", ArgumentForm.PAIR)
        with routine.when(is_pair):
            routine.store(1, count)
            routine.store(cell, items)
        has_more = routine.compare(arguments, "!=", 0)
        with routine.when(routine.both(routine.opposite(is_pair), has_more)):
            routine.store(routine.load(arguments, object_layout.LENGTH_WORD), count)
        made = routine.call(python_function("PyTuple_New"), routine.add(routine.load(count), 1))
        with routine.when(routine.compare(made, "==", 0)):
            routine.give_back(0)
        routine.call(python_function("Py_IncRef"), self_)
        routine.store(self_, made, object_layout.ITEMS_WORD)
        with routine.loop(routine.load(count)) as index:
            item = routine.load(routine.load(items), index)
            routine.call(python_function("Py_IncRef"), item)
            routine.store(item, made, routine.add(index, object_layout.ITEMS_WORD + 1))
        routine.give_back(made)
        return routine

    def _call_builtin(
        self, followed: Routine, decide: Routine, flush: Routine, role_of: Routine, call_original: Foreign
    ) -> None:
        """call_builtin(function, arguments, count, names): what Python calls builtin functions through; `call_original`
        is what it would have called, with a tuple and a dictionary."""
        gather = self._gather()
        routine = self._library.routine("call_builtin", 4)
        function, arguments, count, names = routine.parameters
        given = routine.stack(2)
        failure = routine.call(gather, arguments, routine.common_bits(count, ~_SPARE_PLACE), names, given)
        with routine.when(routine.compare(failure, "!=", 0)):
            routine.give_back(0)
        passed, keywords = routine.load(given), routine.load(given, 1)
        state, cell = routine.call(followed), routine.stack(1)
        routine.store(0, cell)
        with routine.when(routine.compare(state, "!=", 0)):
            entry = routine.call(role_of, routine.load(state, FollowingWords.roles), function)
            with routine.when(routine.compare(entry, "!=", 0)):
                routine.call(self._stack.set_state, _ALL_OFF)
                role = routine.load(entry, RoleEntry.role)
                routine.store(routine.call(decide, state, role, function, function, passed, keywords), cell)
                with routine.when(routine.compare(routine.load(cell), "==", CallStatus.PLAIN_AFTER_FLUSH)):
                    routine.store(routine.call(flush, state, function), cell)
                with routine.when(routine.compare(routine.load(cell), "==", CallStatus.PLAIN)):
                    plain = routine.call(call_original, function, passed, keywords)
                    routine.store(routine.choose(routine.compare(plain, "==", 0), CallStatus.RAISED, plain), cell)
                routine.call(self._stack.set_state, _ON)
        with routine.when(routine.compare(routine.load(cell), "==", 0)):
            routine.store(routine.call(call_original, function, passed, keywords), cell)
        routine.call(python_function("Py_DecRef"), passed)
        with routine.when(routine.compare(keywords, "!=", 0)):
            routine.call(python_function("Py_DecRef"), keywords)
        result = routine.load(cell)
        routine.give_back(routine.choose(routine.compare(result, "==", CallStatus.RAISED), 0, result))

    def _gather(self) -> Routine:
        """gather(arguments, count, names, given): a tuple of the positional arguments and, if there are named ones, a
        dictionary of them; 1 with Python's error set if there is no memory."""
        routine = self._library.routine("gather", 4)
        arguments, count, names, given = routine.parameters
        passed = routine.call(python_function("PyTuple_New"), count)
        with routine.when(routine.compare(passed, "==", 0)):
            routine.give_back(1)
        with routine.loop(count) as index:
            item = routine.load(arguments, index)
            routine.call(python_function("Py_IncRef"), item)
            routine.store(item, passed, routine.add(index, object_layout.ITEMS_WORD))
        routine.store(passed, given)
        routine.store(0, given, 1)
        with routine.when(routine.compare(names, "==", 0)):
            routine.give_back(0)
        keywords = routine.call(python_function("PyDict_New"))
        with routine.when(routine.compare(keywords, "==", 0)):
            routine.call(python_function("Py_DecRef"), passed)
            routine.give_back(1)
        with routine.loop(routine.load(names, object_layout.LENGTH_WORD)) as index:
            name = routine.load(names, routine.add(index, object_layout.ITEMS_WORD))
            value = routine.load(arguments, routine.add(count, index))
            routine.call(python_function("PyDict_SetItem", 32), keywords, name, value)
        routine.store(keywords, given, 1)
        routine.give_back(0)
        return routine

    # --- questions ----------------------------------------------------------------------------------------------------

    def _questions(self, followed: Routine, is_quiet: Routine, is_plain: Routine) -> None:
        """Whether a mode watches: no, if the only mode is ours and the code that asks need not know of it."""
        for place, name in enumerate(("ask_one", "ask_all", "ask_many")):
            are_all_plain = self._are_all_plain(name, is_plain)
            routine = self._library.routine(name, 4)
            _, arguments, count, names = routine.parameters
            state = routine.call(followed)
            with routine.when(routine.both(routine.compare(state, "!=", 0), routine.compare(names, "==", 0))):
                number = routine.common_bits(count, ~_SPARE_PLACE)
                are_plain = routine.call(are_all_plain, arguments, number)
                with routine.when(routine.compare(are_plain, "!=", 0)):
                    is_free = routine.call(is_quiet, state)
                    with routine.when(routine.compare(is_free, "!=", 0)):
                        routine.call(python_function("Py_IncRef"), id(False))
                        routine.give_back(id(False))
            original = routine.load(self._originals, place)
            routine.give_back(routine.call(original, *routine.parameters))

    def _are_all_plain(self, name: str, is_plain: Routine) -> Routine:
        """Whether nothing that is asked about has a `__torch_function__` of its own: one object, those in a tuple or
        list, or all arguments."""
        routine = self._library.routine(f"{name}_is_plain", 2)
        items, count = routine.parameters
        if name != "ask_many":
            with routine.when(routine.compare(count, "!=", 1)):
                routine.give_back(0)
        if name == "ask_all":
            given = routine.load(items)
            kind = routine.load(given, object_layout.TYPE_WORD)
            is_list = routine.compare(kind, "==", id(list))
            with routine.when(routine.opposite(routine.either(is_list, routine.compare(kind, "==", id(tuple))))):
                routine.give_back(0)
            inline = routine.part(given, object_layout.ITEMS_WORD)
            items = routine.choose(is_list, routine.load(inline), inline)
            count = routine.load(given, object_layout.LENGTH_WORD)
        with routine.loop(count) as index:
            one = routine.call(is_plain, routine.load(items, index))
            with routine.when(routine.compare(one, "==", 0)):
                routine.give_back(0)
        routine.give_back(1)
        return routine

    def _is_quiet(self, role_of: Routine) -> Routine:
        """is_quiet(state): whether the Python function that asks is to be told of no mode. Functions that are not known
        yet are shown to Python."""
        routine = self._library.routine("is_quiet", 1)
        (state,) = routine.parameters
        frame = routine.call(python_function("PyEval_GetFrame"))
        with routine.when(routine.compare(frame, "==", 0)):
            routine.give_back(0)
        code = routine.call(python_function("PyFrame_GetCode"), frame)
        routine.call(python_function("Py_DecRef"), code)  # the frame holds it
        entry = routine.call(role_of, routine.load(state, FollowingWords.roles), code)
        with routine.when(routine.compare(entry, "!=", 0)):
            is_quiet = routine.compare(routine.load(entry, RoleEntry.role), "==", NativeRole.QUIET)
            routine.give_back(routine.choose(is_quiet, 1, 0))
        classify = routine.load(state, FollowingWords.classify)
        answer = routine.call(python_function("PyObject_CallOneArg"), classify, frame)
        with routine.when(routine.compare(answer, "==", 0)):
            routine.call(python_function("PyErr_Clear"))
            routine.give_back(0)
        routine.call(python_function("Py_DecRef"), answer)
        routine.give_back(routine.choose(routine.compare(answer, "==", id(True)), 1, 0))
        return routine
