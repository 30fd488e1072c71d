"""The native routines that Python calls where a stretch of pending steps begins and where it ends.

    settings()                                  torch's settings in one word; negative where nothing can be followed
    begin(node, values, numbers, settings)      nothing is pending; the lists are the call's from now on
    settle(values, bases)                       which tensors are still needed; lets go of those that are not
    release(values)                             all tensors may be read
    aliases(values)                             the same in a tuple, for tensors that must not be read yet others over
                                                the same memory, which may be
    run(function, values, writes)               calls a function that writes tensors, and counts it as eager does
    elements(values)                            how many elements the tensors in a tuple have, and those in its lists

They are builtins, since a followed call makes several of these calls and ctypes takes longer than they do.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ingot.runtime.native.abi import object_layout
from ingot.runtime.native.assembler.addresses import python_function
from ingot.runtime.native.assembler.routines import Library, Routine, Value
from ingot.runtime.native.following.following_structs import FollowingWords, Write, WritesHead
from ingot.runtime.native.following.layouts import VERSION_WORD, FollowingLayout
from ingot.runtime.native.following.objects import is_held_once, is_tensor

_DETACH = torch.Tensor.detach
MOST_VALUES = 4096
"""Tensors that may be pending; one step more may bring as many again."""


@dataclass(frozen=True, slots=True)
class BoundaryRoutines:
    """The same for other native routines."""

    settle: Routine
    """settle_into(values, bases, needed): writes a word for each tensor, 1 if it is a result that is needed."""
    release: Routine
    """release_all(values)"""
    aliases: Routine
    """aliases_of(tuple)"""
    run: Routine
    """run_function(function, values, writes): its result, 0 with Python's error set."""


class BoundaryEmitter:
    """Writes these routines into a library."""

    def __init__(self, library: Library, places: FollowingLayout, bit: int):
        self._library = library
        self._places = places
        self._bit = bit

    def emit(self, settings: Routine) -> BoundaryRoutines:
        """Write `ask_settings`, `begin`, `settle`, `release`, `aliases`, `run_counted` and `elements`."""
        aliases_of = self._aliases_of()
        routines = BoundaryRoutines(self._settle_into(), self._release_all(), aliases_of, self._run_function())
        self._aliases(aliases_of)
        self._run(routines.run)
        self._settings(settings)
        self._elements()
        self._begin()
        self._settle(routines.settle)
        self._release(routines.release)
        return routines

    def _settings(self, settings: Routine) -> None:
        routine = self._library.routine("ask_settings", 4)
        word = routine.call(settings)
        routine.give_back(routine.call(python_function("PyLong_FromLongLong"), word))

    def _begin(self) -> None:
        """`self` is a capsule with the state of a call. `flushes` goes on counting; everything else begins anew."""
        routine = self._library.routine("begin", 4)
        self_, arguments, _, _ = routine.parameters
        state = routine.call(python_function("PyCapsule_GetPointer"), self_, 0)
        as_word = python_function("PyLong_AsLongLong")
        for word, place in ((FollowingWords.values, 1), (FollowingWords.numbers, 2)):
            routine.store(routine.load(arguments, place), state, word)
        routine.store(routine.call(as_word, routine.load(arguments, 3)), state, FollowingWords.settings)
        routine.store(0, state, FollowingWords.bytes)
        for place in range(FollowingWords.recent.length):
            routine.store(0, state, FollowingWords.recent + place)
        routine.increase(1, state, FollowingWords.flushes)
        node = routine.call(as_word, routine.load(arguments, 0))
        routine.store(node, state, FollowingWords.root)
        routine.store(node, state, FollowingWords.node)
        routine.give_back(self._nothing(routine))

    def _settle(self, settle_into: Routine) -> None:
        """Lets go of results that nothing else refers to. Gives a word for each tensor, in bytes: 1 if it is a result
        that is needed."""
        routine = self._library.routine("settle", 4)
        _, arguments, _, _ = routine.parameters
        values = routine.load(arguments)
        bases = routine.call(python_function("PyLong_AsLongLong"), routine.load(arguments, 1))
        count = routine.load(values, object_layout.LENGTH_WORD)
        result = routine.call(python_function("PyBytes_FromStringAndSize"), 0, routine.multiply(count, 8))
        with routine.when(routine.compare(result, "==", 0)):
            routine.give_back(0)
        routine.call(settle_into, values, bases, routine.call(python_function("PyBytes_AsString"), result))
        routine.give_back(result)

    def _settle_into(self) -> Routine:
        """Lets go of views before what they are views of."""
        routine = self._library.routine("settle_into", 3)
        values, bases, needed = routine.parameters
        count = routine.load(values, object_layout.LENGTH_WORD)
        with routine.loop(count) as index:
            number = routine.subtract(routine.subtract(count, 1), index)
            object_ = routine.load(routine.load(values, object_layout.ITEMS_WORD), number)
            routine.store(0, needed, number)
            with routine.when(routine.compare(object_, "!=", id(None))):
                self._settle_one(routine, values, number, object_, routine.load(bases, number), needed)
        routine.give_back()
        return routine

    def _settle_one(
        self, routine: Routine, values: Value, number: Value, object_: Value, base: Value, needed: Value
    ) -> None:
        tensor = routine.load(object_, self._places.tensors.implementation_word)
        is_result = routine.compare(base, ">=", 0)
        is_dead = routine.both(is_result, is_held_once(routine, object_, tensor))
        with routine.when(is_dead):
            routine.call(python_function("Py_IncRef"), id(None))
            routine.call(python_function("PyList_SetItem", 32), values, number, id(None))
        with routine.when(routine.opposite(is_dead)):
            routine.store(routine.choose(is_result, 1, 0), needed, number)

    def _release(self, release_all: Routine) -> None:
        routine = self._library.routine("release", 4)
        _, arguments, _, _ = routine.parameters
        routine.call(release_all, routine.load(arguments))
        routine.give_back(self._nothing(routine))

    def _release_all(self) -> Routine:
        """Clears all marks."""
        routine = self._library.routine("release_all", 1)
        (values,) = routine.parameters
        with routine.loop(routine.load(values, object_layout.LENGTH_WORD)) as index:
            object_ = routine.load(routine.load(values, object_layout.ITEMS_WORD), index)
            with routine.when(routine.compare(object_, "!=", id(None))):
                tensor = routine.load(object_, self._places.tensors.implementation_word)
                word = self._places.tensors.keys_word
                routine.store(routine.common_bits(routine.load(tensor, word), ~self._bit), tensor, word)
        routine.give_back()
        return routine

    def _aliases(self, aliases_of: Routine) -> None:
        routine = self._library.routine("aliases", 4)
        _, arguments, _, _ = routine.parameters
        routine.give_back(routine.call(aliases_of, routine.load(arguments)))

    def _aliases_of(self) -> Routine:
        """aliases_of(tuple): a tuple with other tensors instead of marked ones; 0 with Python's error set."""
        alias_of = self._alias_of()
        routine = self._library.routine("aliases_of", 1)
        (values,) = routine.parameters
        count = routine.load(values, object_layout.LENGTH_WORD)
        made = routine.call(python_function("PyTuple_New"), count)
        with routine.when(routine.compare(made, "==", 0)):
            routine.give_back(0)
        with routine.loop(count) as index:
            alias = routine.call(alias_of, routine.load(values, routine.add(index, object_layout.ITEMS_WORD)))
            with routine.when(routine.compare(alias, "==", 0)):
                routine.call(python_function("Py_DecRef"), made)
                routine.give_back(0)
            routine.store(alias, made, routine.add(index, object_layout.ITEMS_WORD))
        routine.give_back(made)
        return routine

    def _alias_of(self) -> Routine:
        """alias_of(object): the object, or another tensor over a marked one's memory; 0 with Python's error set."""
        routine = self._library.routine("alias_of", 1)
        (object_,) = routine.parameters
        word = self._places.tensors.keys_word
        with routine.when(is_tensor(routine, object_)):
            tensor = routine.load(object_, self._places.tensors.implementation_word)
            is_marked = routine.compare(routine.common_bits(routine.load(tensor, word), self._bit), "!=", 0)
            with routine.when(is_marked):
                alias = routine.call(python_function("PyObject_CallOneArg"), id(_DETACH), object_)
                with routine.when(routine.compare(alias, "==", 0)):
                    routine.give_back(0)
                other = routine.load(alias, self._places.tensors.implementation_word)
                routine.store(routine.common_bits(routine.load(other, word), ~self._bit), other, word)
                routine.give_back(alias)
        routine.call(python_function("Py_IncRef"), object_)
        routine.give_back(object_)
        return routine

    def _run(self, run_function: Routine) -> None:
        routine = self._library.routine("run_counted", 4)
        _, arguments, _, _ = routine.parameters
        writes = routine.call(python_function("PyLong_AsLongLong"), routine.load(arguments, 2))
        routine.give_back(routine.call(run_function, routine.load(arguments), routine.load(arguments, 1), writes))

    def _run_function(self) -> Routine:
        """`writes` is the address of `WritesHead`. What the function itself counts is forgotten."""
        counter_of = self._counter_of()
        routine = self._library.routine("run_function", 3)
        function, values, writes = routine.parameters
        count = routine.load(writes, WritesHead.count)
        versions = routine.stack(routine.add(count, 1))
        with routine.loop(count) as index:
            counter = routine.call(counter_of, values, writes, index)
            routine.store(0, versions, index)
            with routine.when(routine.compare(counter, "!=", 0)):
                write = routine.item(routine.part(writes, WritesHead.words()), index, Write)
                often = routine.load(write, Write.count)
                routine.store(routine.add(routine.load(counter, VERSION_WORD), often), versions, index)
        result = routine.call(python_function("PyObject_Call"), function, values, 0)
        with routine.when(routine.compare(result, "==", 0)):
            routine.give_back(0)
        with routine.loop(count) as index:
            counter = routine.call(counter_of, values, writes, index)
            with routine.when(routine.compare(counter, "!=", 0)):
                routine.store(routine.load(versions, index), counter, VERSION_WORD)
        routine.give_back(result)
        return routine

    def _counter_of(self) -> Routine:
        """counter_of(values, writes, index): what counts the versions of a tensor; 0 if nothing does."""
        routine = self._library.routine("counter_of", 3)
        values, writes, index = routine.parameters
        write = routine.item(routine.part(writes, WritesHead.words()), index, Write)
        object_ = routine.load(values, routine.add(routine.load(write, Write.value), object_layout.ITEMS_WORD))
        tensor = routine.load(object_, self._places.tensors.implementation_word)
        routine.give_back(routine.load(tensor, self._places.version_word))
        return routine

    def _elements(self) -> None:
        within = self._elements_within(self._elements_of())
        routine = self._library.routine("elements", 4)
        _, arguments, _, _ = routine.parameters
        count = routine.call(within, routine.load(arguments))
        routine.give_back(routine.call(python_function("PyLong_FromLongLong"), count))

    def _elements_of(self) -> Routine:
        """elements_of(object): the elements of a tensor, 0 for anything else; others may notice being asked."""
        routine = self._library.routine("elements_of", 1)
        (object_,) = routine.parameters
        with routine.when(is_tensor(routine, object_)):
            tensor = routine.load(object_, self._places.tensors.implementation_word)
            routine.give_back(routine.load(tensor, self._places.elements_word))
        routine.give_back(0)
        return routine

    def _elements_within(self, elements_of: Routine) -> Routine:
        """elements_within(tuple): the sum over its items; lists and tuples among them are looked into once."""
        routine = self._library.routine("elements_within", 1)
        (values,) = routine.parameters
        total = routine.stack(1)
        routine.store(0, total)
        with routine.loop(routine.load(values, object_layout.LENGTH_WORD)) as index:
            object_ = routine.load(values, routine.add(index, object_layout.ITEMS_WORD))
            kind = routine.load(object_, object_layout.TYPE_WORD)
            is_list = routine.compare(kind, "==", id(list))
            with routine.when(routine.either(is_list, routine.compare(kind, "==", id(tuple)))):
                inline = routine.part(object_, object_layout.ITEMS_WORD)
                items = routine.choose(is_list, routine.load(inline), inline)
                with routine.loop(routine.load(object_, object_layout.LENGTH_WORD)) as part:
                    routine.increase(routine.call(elements_of, routine.load(items, part)), total)
            routine.increase(routine.call(elements_of, object_), total)
        routine.give_back(routine.load(total))
        return routine

    def _nothing(self, routine: Routine) -> int:
        routine.call(python_function("Py_IncRef"), id(None))
        return id(None)
