"""What native routines ask of Python's objects: whether they are tensors, how many references they have, whether they
are written.

In: objects as the user's code passes them. Out: conditions, and the routine are_written(arguments, keywords).
"""

from __future__ import annotations

from enum import auto

import torch

from ingot.runtime.native.abi import object_layout
from ingot.runtime.native.assembler.addresses import python_function
from ingot.runtime.native.assembler.routines import Condition, Library, Routine, Value
from ingot.runtime.native.assembler.structs import Code
from ingot.runtime.native.following.layouts import COUNT_WORD, LOWER_HALF, FollowingLayout


class Seen(Code):
    """What is known of objects."""

    WRITTEN = auto()
    """No tensor among them is pending."""
    PENDING = auto()
    """One is."""
    UNKNOWN = auto()
    """There may be tensors that are not seen."""


def is_tensor(routine: Routine, object_: Value) -> Condition:
    """Whether an object is exactly a tensor or parameter, not of a subclass."""
    kind = routine.load(object_, object_layout.TYPE_WORD)
    return routine.either(
        routine.compare(kind, "==", id(torch.Tensor)), routine.compare(kind, "==", id(torch.nn.Parameter))
    )


def has_one_reference(routine: Routine, counted: Value) -> Condition:
    """Whether one of torch's objects is held once."""
    references = routine.common_bits(routine.load(counted, COUNT_WORD), LOWER_HALF)
    return routine.compare(references, "==", 1)


def is_held_once(routine: Routine, object_: Value, tensor: Value) -> Condition:
    """Whether a tensor is held by one Python reference, and by no other C++ object."""
    references = routine.common_bits(routine.load(object_, 0), LOWER_HALF)
    return routine.both(routine.compare(references, "==", 1), has_one_reference(routine, tensor))


def _is_unwritten(library: Library, places: FollowingLayout, bit: int) -> Routine:
    """is_unwritten(object): what is known of it."""
    routine = library.routine("is_unwritten", 1)
    (object_,) = routine.parameters
    type_ = routine.load(object_, object_layout.TYPE_WORD)
    with routine.when(is_tensor(routine, object_)):
        tensor = routine.load(object_, places.tensors.implementation_word)
        keys = routine.load(tensor, places.tensors.keys_word)
        marked = routine.common_bits(keys, bit)
        routine.give_back(routine.choose(routine.compare(marked, "!=", 0), Seen.PENDING, Seen.WRITTEN))
    plain = (int, float, bool, str, type(None), type(Ellipsis))
    known = [id(kind) for kind in (*plain, torch.dtype, torch.device, torch.layout, torch.memory_format)]
    is_known = routine.compare(type_, "==", known[0])
    for kind in known[1:]:
        is_known = routine.either(is_known, routine.compare(type_, "==", kind))
    routine.give_back(routine.choose(is_known, Seen.WRITTEN, Seen.UNKNOWN))
    return routine


def emit_are_written(library: Library, places: FollowingLayout, bit: int) -> Routine:
    """are_written(arguments, keywords): what is known of all of them."""
    within = _parts_are_written(library, _is_unwritten(library, places, bit))
    routine = library.routine("are_written", 2)
    arguments, keywords = routine.parameters
    with routine.loop(routine.load(arguments, object_layout.LENGTH_WORD)) as index:
        item = routine.load(arguments, routine.add(index, object_layout.ITEMS_WORD))
        found = routine.call(within, item)
        with routine.when(routine.compare(found, "!=", Seen.WRITTEN)):
            routine.give_back(found)
    with routine.when(routine.compare(keywords, "!=", 0)):
        position, pair = routine.stack(1), routine.stack(2)
        routine.store(0, position)
        size = routine.call(python_function("PyDict_Size"), keywords)
        with routine.loop(size):
            following = python_function("PyDict_Next", 32)
            routine.call(following, keywords, position, pair, routine.add(pair, 8))
            found = routine.call(within, routine.load(pair, 1))
            with routine.when(routine.compare(found, "!=", Seen.WRITTEN)):
                routine.give_back(found)
    routine.give_back(Seen.WRITTEN)
    return routine


def _parts_are_written(library: Library, is_unwritten: Routine) -> Routine:
    """parts_are_written(object): the same for one argument; lists, tuples and slices are looked into once."""
    routine = library.routine("parts_are_written", 1)
    (object_,) = routine.parameters
    type_ = routine.load(object_, object_layout.TYPE_WORD)
    is_list = routine.compare(type_, "==", id(list))
    is_tuple = routine.either(routine.compare(type_, "==", id(tuple)), routine.compare(type_, "==", id(torch.Size)))
    with routine.when(routine.either(is_list, is_tuple)):
        inline = routine.part(object_, object_layout.ITEMS_WORD)
        items = routine.choose(is_list, routine.load(inline), inline)
        with routine.loop(routine.load(object_, object_layout.LENGTH_WORD)) as index:
            part = routine.load(items, index)
            is_slice = routine.compare(routine.load(part, object_layout.TYPE_WORD), "==", id(slice))
            with routine.when(is_slice):
                found = routine.call(routine, part)
                with routine.when(routine.compare(found, "!=", Seen.WRITTEN)):
                    routine.give_back(found)
            with routine.when(routine.opposite(is_slice)):
                found = routine.call(is_unwritten, part)
                with routine.when(routine.compare(found, "!=", Seen.WRITTEN)):
                    routine.give_back(found)
        routine.give_back(Seen.WRITTEN)
    with routine.when(routine.compare(type_, "==", id(slice))):
        with routine.loop(3) as index:
            part = routine.load(object_, routine.add(index, 2))
            found = routine.call(is_unwritten, part)
            with routine.when(routine.compare(found, "!=", Seen.WRITTEN)):
                routine.give_back(found)
        routine.give_back(Seen.WRITTEN)
    routine.give_back(routine.call(is_unwritten, object_))
    return routine
