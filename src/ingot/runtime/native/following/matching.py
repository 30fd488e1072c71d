"""The native routines that compare the arguments of a torch call with a step."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from ingot.runtime.native.abi import object_layout
from ingot.runtime.native.abi.settings import Settings
from ingot.runtime.native.assembler.addresses import python_function
from ingot.runtime.native.assembler.routines import Condition, Library, Routine, Value
from ingot.runtime.native.assembler.structs import Field, Row, Struct, row
from ingot.runtime.native.following.following_structs import (
    MOST_OUTSIDE,
    Entry,
    EntryKind,
    FollowedStepWords,
    FollowingWords,
)
from ingot.runtime.native.following.layouts import DEVICE_MASK, DEVICE_WORD, SLICE_WORD, FollowingLayout
from ingot.runtime.native.launch.launcher import Launcher
from ingot.runtime.torch_state import GRAD_MODE, INFERENCE_MODE


class Found(Struct):
    """What a comparison has found so far."""

    cursor: Field
    """The entry to compare with next."""
    values: Field
    """Where the tensors are that have appeared."""
    outside_count: Field
    open_count: Field
    gradients_count: Field
    """Whether tensors that need gradients match nothing."""
    outside: Row = row(MOST_OUTSIDE)
    """The new tensors."""
    open: Row = row(MOST_OUTSIDE)
    """The open numbers."""


class StepMatchingEmitter:
    """Writes these routines into a library."""

    def __init__(self, library: Library, places: FollowingLayout, launcher: Launcher, settings: Settings):
        self._library = library
        self._places = places
        self._launcher = launcher
        self._settings = settings

    def emit(self) -> Routine:
        """step_fits(step, state, arguments, keywords, found)."""
        return self._step_fits(self._fits(self._leaf_fits(self._outside_fits())))

    def _step_fits(self, fits: Routine) -> Routine:
        routine = self._library.routine("step_fits", 5)
        step, state, arguments, keywords, found = routine.parameters
        count = routine.load(arguments, object_layout.LENGTH_WORD)
        _require(routine, routine.compare(count, "==", routine.load(step, FollowedStepWords.arguments)))
        named = routine.load(step, FollowedStepWords.keywords)
        given = routine.stack(1)
        routine.store(0, given)
        with routine.when(routine.compare(keywords, "!=", 0)):
            routine.store(routine.call(python_function("PyDict_Size"), keywords), given)
        _require(routine, routine.compare(routine.load(given), "==", named))
        routine.fill(
            found,
            Found,
            cursor=routine.load(step, FollowedStepWords.entries),
            values=routine.load(routine.load(state, FollowingWords.values), object_layout.ITEMS_WORD),
            outside_count=0,
            open_count=0,
            gradients_count=self._settings.read(routine, GRAD_MODE),
        )
        with routine.loop(count) as index:
            item = routine.load(arguments, routine.add(index, object_layout.ITEMS_WORD))
            _require_call(routine, fits, item, found)
        names = routine.load(step, FollowedStepWords.names)
        with routine.loop(named) as index:
            item = routine.call(python_function("PyDict_GetItem"), keywords, routine.load(names, index))
            _require(routine, routine.compare(item, "!=", 0))
            _require_call(routine, fits, item, found)
        routine.give_back(1)
        return routine

    def _fits(self, leaf_fits: Routine) -> Routine:
        """fits(object, found): whether an object is as the next entries say."""
        routine = self._library.routine("fits", 2)
        object_, found = routine.parameters
        entry = routine.load(found, Found.cursor)
        routine.store(routine.part(entry, Entry.words()), found, Found.cursor)
        kind = routine.load(entry, Entry.kind)
        type_ = routine.load(object_, object_layout.TYPE_WORD)
        with routine.when(routine.compare(kind, "==", EntryKind.GROUP)):
            _require(routine, routine.compare(type_, "==", routine.load(entry, Entry.first)))
            count = routine.load(object_, object_layout.LENGTH_WORD)
            _require(routine, routine.compare(count, "==", routine.load(entry, Entry.second)))
            inline = routine.part(object_, object_layout.ITEMS_WORD)
            is_list = routine.compare(type_, "==", id(list))
            items = routine.choose(is_list, routine.load(inline), inline)
            with routine.loop(count) as index:
                _require_call(routine, routine, routine.load(items, index), found)
            routine.give_back(1)
        with routine.when(routine.compare(kind, "==", EntryKind.SLICE)):
            _require(routine, routine.compare(type_, "==", id(slice)))
            with routine.loop(3) as index:
                _require_call(routine, routine, routine.load(object_, routine.add(index, SLICE_WORD)), found)
            routine.give_back(1)
        routine.give_back(routine.call(leaf_fits, object_, found, entry))
        return routine

    def _leaf_fits(self, outside_fits: Routine) -> Routine:
        """leaf_fits(object, found, entry)."""
        is_small = self._is_small()
        routine = self._library.routine("leaf_fits", 3)
        object_, found, entry = routine.parameters
        kind, expected = routine.load(entry, Entry.kind), routine.load(entry, Entry.first)
        type_ = routine.load(object_, object_layout.TYPE_WORD)
        with self._case(routine, kind, EntryKind.SAME):
            routine.give_back(_truth(routine, routine.compare(object_, "==", expected)))
        with self._case(routine, kind, EntryKind.VALUE):
            value = routine.load(routine.load(found, Found.values), expected)
            routine.give_back(_truth(routine, routine.compare(object_, "==", value)))
        with self._case(routine, kind, EntryKind.OUTSIDE):
            routine.give_back(routine.call(outside_fits, object_, found, entry))
        with self._case(routine, kind, EntryKind.AGAIN):
            value = routine.load(found, routine.add(expected, Found.outside))
            routine.give_back(_truth(routine, routine.compare(object_, "==", value)))
        with self._case(routine, kind, EntryKind.OPEN):
            _require(routine, routine.compare(type_, "==", expected))
            _require_call(routine, is_small, object_, type_, routine.load(entry, Entry.second))
            count = routine.load(found, Found.open_count)
            routine.store(object_, found, routine.add(count, Found.open))
            routine.store(routine.add(count, 1), found, Found.open_count)
            routine.give_back(1)
        with self._case(routine, kind, EntryKind.INTEGER):
            _require(routine, routine.compare(type_, "==", id(int)))
            overflow = routine.stack(1)
            routine.store(0, overflow)
            value = routine.call(python_function("PyLong_AsLongLongAndOverflow"), object_, overflow)
            _require(routine, routine.compare(routine.load(overflow), "==", 0))
            routine.give_back(_truth(routine, routine.compare(value, "==", expected)))
        with self._case(routine, kind, EntryKind.FLOAT):
            _require(routine, routine.compare(type_, "==", id(float)))
            bits = routine.load(object_, object_layout.FLOAT_WORD)
            routine.give_back(_truth(routine, routine.compare(bits, "==", expected)))
        with self._case(routine, kind, EntryKind.DEVICE):
            _require(routine, routine.compare(type_, "==", id(torch.device)))
            device = routine.common_bits(routine.load(object_, DEVICE_WORD), DEVICE_MASK)
            routine.give_back(_truth(routine, routine.compare(device, "==", expected)))
        with self._case(routine, kind, EntryKind.TEXT):
            with routine.when(routine.compare(object_, "==", expected)):
                routine.give_back(1)
            _require(routine, routine.compare(type_, "==", id(str)))
            difference = routine.call(python_function("PyUnicode_Compare", 32), object_, expected)
            routine.give_back(_truth(routine, routine.compare(difference, "==", 0)))
        routine.give_back(0)
        return routine

    def _is_small(self) -> Routine:
        """is_small(number, type, largest): whether a number without its sign is at most the largest."""
        routine = self._library.routine("is_small", 3)
        object_, type_, largest = routine.parameters
        with routine.when(routine.compare(type_, "==", id(float))):
            # Without the sign, floats compare as their bits do, and NaN is larger than all numbers.
            bits = routine.common_bits(routine.load(object_, object_layout.FLOAT_WORD), (1 << 63) - 1)
            routine.give_back(_truth(routine, routine.compare(bits, "<=", largest)))
        overflow = routine.stack(1)
        routine.store(0, overflow)
        value = routine.call(python_function("PyLong_AsLongLongAndOverflow"), object_, overflow)
        _require(routine, routine.compare(routine.load(overflow), "==", 0))
        is_low = routine.compare(value, "<", routine.subtract(0, largest))
        is_high = routine.compare(value, ">", largest)
        routine.give_back(_truth(routine, routine.opposite(routine.either(is_low, is_high))))
        return routine

    def _outside_fits(self) -> Routine:
        """outside_fits(object, found, entry): whether an object is a tensor like the one that a step took, whose memory
        torch has allocated, so that no code outside torch writes it."""
        routine = self._library.routine("outside_fits", 3)
        object_, found, entry = routine.parameters
        class_ = routine.load(entry, Entry.second)
        _require(routine, routine.compare(routine.load(object_, object_layout.TYPE_WORD), "==", class_))
        tensors, storages = self._places.tensors, self._places.storages
        tensor, slot = routine.load(object_, tensors.implementation_word), routine.stack(1)
        is_like = routine.call(self._launcher.tensor_matches, routine.load(entry, Entry.first), tensor, slot)
        _require(routine, routine.compare(is_like, "!=", 0))
        with routine.when(routine.compare(routine.load(found, Found.gradients_count), "!=", 0)):
            needs_gradients = routine.call(self._settings.requires_grad, tensor)
            _require(routine, routine.compare(needs_gradients, "==", 0))
        with routine.when(routine.compare(class_, "==", id(torch.Tensor))):
            word, byte = divmod(storages.flag_byte, 8)
            flags = routine.load(routine.load(tensor, tensors.storage_word), word)
            _require(routine, routine.compare(routine.common_bits(flags, 1 << 8 * byte), "!=", 0))
        with routine.when(routine.compare(routine.load(tensor, self._places.version_word), "==", 0)):
            # PyTorch refuses to write tensors of inference mode outside of it; Python looks at these.
            _require(routine, routine.compare(self._settings.read(routine, INFERENCE_MODE), "!=", 0))
        count = routine.load(found, Found.outside_count)
        routine.store(object_, found, routine.add(count, Found.outside))
        routine.store(routine.add(count, 1), found, Found.outside_count)
        routine.give_back(1)
        return routine

    @contextmanager
    def _case(self, routine: Routine, kind: Value, expected: EntryKind) -> Iterator[None]:
        with routine.when(routine.compare(kind, "==", expected)):
            yield


def _require(routine: Routine, condition: Condition) -> None:
    with routine.when(routine.opposite(condition)):
        routine.give_back(0)


def _require_call(routine: Routine, target: Routine, *arguments: Value) -> None:
    _require(routine, routine.compare(routine.call(target, *arguments), "!=", 0))


def _truth(routine: Routine, condition: Condition) -> Value:
    return routine.choose(condition, 1, 0)
