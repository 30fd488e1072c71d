"""The launcher's native routines that read the arguments of a call and compare them with a record's guards."""

from __future__ import annotations

import torch

from ingot.runtime.native.abi import object_layout
from ingot.runtime.native.abi.object_layout import TensorLayout
from ingot.runtime.native.assembler.addresses import python_function
from ingot.runtime.native.assembler.routines import Condition, Library, Routine, Value
from ingot.runtime.native.launch import records
from ingot.runtime.native.launch.record_structs import (
    AxisWords,
    NumberGuardWords,
    RecordWords,
    TableWords,
    TensorGuardWords,
)


def make_room(routine: Routine, table: Value, count: Value) -> None:
    """Move the first records of a table one place back."""
    with routine.loop(count) as index:
        target = routine.add(routine.subtract(count, index), TableWords.records)
        routine.store(routine.load(table, routine.subtract(target, 1)), table, target)


class MatchingEmitter:
    """Writes these routines into a library."""

    def __init__(self, library: Library, tensors: TensorLayout):
        self._library = library
        self._layout = tensors

    def emit(self) -> Routine:
        """matches(record, inputs, items, slots)."""
        return self._matches(self._tensor_matches(), self._number_matches())

    def _matches(self, tensor_matches: Routine, number_matches: Routine) -> Routine:
        """matches(record, inputs, items, slots): whether the record was made for arguments like these; their addresses
        and values are put into the slots."""
        routine = self._library.routine("matches", 4)
        record, inputs, items, slots = routine.parameters
        guards = routine.load(record, RecordWords.guards)
        with routine.loop(inputs) as index:
            guard = routine.item(guards, index, TensorGuardWords)
            object_, slot = routine.load(items, index), routine.part(slots, index)
            kind = routine.load(object_, object_layout.TYPE_WORD)
            is_tensor = routine.either(
                routine.compare(kind, "==", id(torch.Tensor)), routine.compare(kind, "==", id(torch.nn.Parameter))
            )
            with routine.when(is_tensor):
                tensor = routine.load(object_, self._layout.implementation_word)
                is_same = routine.call(tensor_matches, guard, tensor, slot)
                with routine.when(routine.compare(is_same, "==", 0)):
                    routine.give_back(0)
            with routine.when(routine.opposite(is_tensor)):
                is_same = routine.call(number_matches, guard, object_, kind, slot)
                with routine.when(routine.compare(is_same, "==", 0)):
                    routine.give_back(0)
        routine.give_back(1)
        return routine

    # --- tensors ------------------------------------------------------------------------------------------------------

    def _tensor_matches(self) -> Routine:
        """tensor_matches(guard, tensor, slot): whether the tensor is an ordinary one and as the guard says."""
        routine = self._library.routine("tensor_matches", 3)
        guard, tensor, slot = routine.parameters
        rank = routine.load(guard, TensorGuardWords.rank)
        with routine.when(routine.opposite(self._is_of_kind(routine, guard, tensor, rank))):
            routine.give_back(0)
        axes = routine.load(guard, TensorGuardWords.axes)
        sizes, strides = self._sizes_and_strides(routine, tensor, rank)
        with routine.loop(rank) as axis:
            expected = routine.item(axes, axis, AxisWords)
            other_size = routine.differing_bits(routine.load(sizes, axis), routine.load(expected, AxisWords.size))
            other_stride = routine.differing_bits(routine.load(strides, axis), routine.load(expected, AxisWords.stride))
            other_place = routine.common_bits(other_stride, routine.load(expected, AxisWords.mask))
            with routine.when(routine.compare(routine.united_bits(other_size, other_place), "!=", 0)):
                routine.give_back(0)
        self._find_data(routine, guard, tensor, slot)
        routine.give_back(1)
        return routine

    def _is_of_kind(self, routine: Routine, guard: Value, tensor: Value, rank: Value) -> Condition:
        """Whether a tensor is an ordinary one of the guard's device, dtype and rank."""
        keys = routine.load(tensor, self._layout.keys_word)
        is_plain = routine.either(
            routine.compare(keys, "==", routine.load(guard, TensorGuardWords.keys)),
            routine.compare(keys, "==", routine.load(guard, TensorGuardWords.inference_keys)),
        )
        bits = routine.load(tensor, self._layout.dtype_quarter // 4)
        code = routine.common_bits(bits, routine.load(guard, TensorGuardWords.mask))
        other_type = routine.differing_bits(code, routine.load(guard, TensorGuardWords.type))
        other_rank = routine.differing_bits(routine.load(tensor, self._layout.rank_word), rank)
        is_same = routine.compare(routine.united_bits(other_type, other_rank), "==", 0)
        return routine.both(is_plain, is_same)

    def _sizes_and_strides(self, routine: Routine, tensor: Value, rank: Value) -> tuple[Value, Value]:
        """The addresses of sizes and strides: in the tensor itself, or apart from it if it has many axes."""
        inside = routine.part(tensor, self._layout.rank_word + 1)
        is_inside = routine.compare(rank, "<=", object_layout.INLINE_RANK)
        sizes = routine.choose(is_inside, inside, routine.load(inside))
        room = routine.choose(is_inside, object_layout.INLINE_RANK, rank)
        return sizes, routine.add(sizes, routine.multiply(room, 8))

    def _find_data(self, routine: Routine, guard: Value, tensor: Value, slot: Value) -> None:
        """Put the address of the first element into the slot. A tensor whose memory was given up does not match, nor
        does one whose address has another remainder where that is compared."""
        start = routine.load(routine.load(tensor, self._layout.storage_word), self._layout.data_word)
        item_bytes = routine.load(guard, TensorGuardWords.item_bytes)
        is_gone = routine.both(routine.compare(start, "==", 0), routine.compare(item_bytes, "!=", 0))
        offset = routine.multiply(routine.load(tensor, self._layout.offset_word), item_bytes)
        address = routine.add(start, offset)
        last_bits = routine.common_bits(address, routine.load(guard, TensorGuardWords.last_bits))
        is_odd = routine.compare(last_bits, "!=", routine.load(guard, TensorGuardWords.remainder))
        with routine.when(routine.either(is_gone, is_odd)):
            routine.give_back(0)
        routine.store(address, slot)

    # --- numbers ------------------------------------------------------------------------------------------------------

    def _number_matches(self) -> Routine:
        """number_matches(guard, object, kind, slot): whether the object is a number as the guard says."""
        routine = self._library.routine("number_matches", 4)
        guard, object_, kind, slot = routine.parameters
        wanted = routine.load(guard, NumberGuardWords.type)
        for type_, number in records.NUMBER_TYPES.items():
            is_wanted = routine.compare(wanted, "==", number)
            with routine.when(routine.both(is_wanted, routine.compare(kind, "!=", id(type_)))):
                routine.give_back(0)
        with routine.when(routine.compare(wanted, "==", records.FLOAT)):
            routine.store(routine.load(object_, object_layout.FLOAT_WORD), slot)
            routine.give_back(1)
        with routine.when(routine.compare(wanted, "==", records.BOOL)):
            routine.store(routine.choose(routine.compare(object_, "==", id(True)), 1, 0), slot)
            routine.give_back(1)
        with routine.when(routine.compare(wanted, "!=", records.INT)):
            routine.give_back(0)
        has_overflown = routine.stack(1)
        routine.store(0, has_overflown)
        value = routine.call(python_function("PyLong_AsLongLongAndOverflow"), object_, has_overflown)
        routine.store(value, slot)
        is_low = routine.compare(value, "<", routine.load(guard, NumberGuardWords.lowest))
        is_high = routine.compare(value, ">", routine.load(guard, NumberGuardWords.highest))
        is_huge = routine.compare(routine.load(has_overflown), "!=", 0)
        is_outside = routine.either(is_huge, routine.either(is_low, is_high))
        routine.give_back(routine.choose(is_outside, 0, 1))
        return routine
