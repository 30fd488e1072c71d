"""The launcher's native routines that read the arguments of a call and compare them with a record's guards."""

from __future__ import annotations

import torch

from ingot.runtime.native import layout, pool_routines, records
from ingot.runtime.native.addresses import TensorExchange, python_function
from ingot.runtime.native.layout import TensorLayout
from ingot.runtime.native.routines import Library, Routine

# The words of a call table.
INPUTS, OUTPUTS, CONVENTION, COUNT = range(4)
RECORDS = 4
MOST_RECORDS = 32
TABLE_WORDS = RECORDS + MOST_RECORDS
LIST_CONVENTION, POSITIONAL_CONVENTION = range(2)

# A DLTensor in words, as arguments are read into it.
TENSOR_DATA, TENSOR_DEVICE, TENSOR_TYPE, TENSOR_SIZES, TENSOR_STRIDES, TENSOR_OFFSET = range(6)
TENSOR_WORDS = 6


class MatchingEmitter:
    """Writes these routines into a library."""

    def __init__(self, library: Library, tensors: TensorLayout, exchange: TensorExchange):
        self._library = library
        self._layout = tensors
        self._exchange = exchange

    def emit(self) -> tuple[Routine, Routine]:
        """read_argument(object, tensor, slot) and matches(table, record, tensors, slots)."""
        return self._read_argument(self._read_tensor()), self._matches(self._tensor_matches())

    # --- arguments ----------------------------------------------------------------------------------------------------

    def _read_tensor(self) -> Routine:
        """read_tensor(object, tensor, slot): describe a tensor and note its address; 0 if it is not an ordinary one."""
        routine = self._library.routine("read_tensor", 3)
        object_, tensor, slot = routine.parameters
        keys = routine.load(routine.load(object_, self._layout.implementation_word), self._layout.keys_word)
        is_plain = routine.compare(keys, "==", self._layout.plain_keys[0])
        for plain in self._layout.plain_keys[1:]:
            is_plain = routine.either(is_plain, routine.compare(keys, "==", plain))
        with routine.when(routine.opposite(is_plain)):
            routine.give_back(0)
        failure = routine.call(self._exchange.from_python, object_, tensor)
        with routine.when(routine.compare(failure, "!=", 0)):
            routine.call(python_function("PyErr_Clear"))
            routine.give_back(0)
        address = routine.add(routine.load(tensor, TENSOR_DATA), routine.load(tensor, TENSOR_OFFSET))
        routine.store(address, slot)
        is_here = routine.compare(routine.load(tensor, TENSOR_DEVICE), "==", pool_routines.CPU_DEVICE)
        routine.give_back(routine.choose(is_here, 1, 0))
        return routine

    def _read_argument(self, read_tensor: Routine) -> Routine:
        """read_argument(object, tensor, slot): a tensor as above; of a number kind and value; 0 for anything else."""
        routine = self._library.routine("read_argument", 3)
        object_, tensor, slot = routine.parameters
        kind = routine.load(object_, layout.TYPE_WORD)
        is_tensor = routine.compare(kind, "==", id(torch.Tensor))
        is_parameter = routine.compare(kind, "==", id(torch.nn.Parameter))
        with routine.when(routine.either(is_tensor, is_parameter)):
            routine.give_back(routine.call(read_tensor, object_, tensor, slot))
        with routine.when(routine.compare(kind, "==", id(float))):
            routine.store(records.FLOAT, tensor, TENSOR_TYPE)
            routine.store(routine.load(object_, layout.FLOAT_WORD), slot)
            routine.give_back(1)
        with routine.when(routine.compare(kind, "==", id(bool))):
            routine.store(records.BOOL, tensor, TENSOR_TYPE)
            routine.store(routine.choose(routine.compare(object_, "==", id(True)), 1, 0), slot)
            routine.give_back(1)
        with routine.when(routine.compare(kind, "!=", id(int))):
            routine.give_back(0)
        routine.store(records.INT, tensor, TENSOR_TYPE)
        routine.store(0, tensor, TENSOR_DATA)
        as_word = python_function("PyLong_AsLongLongAndOverflow")
        routine.store(routine.call(as_word, object_, tensor), slot)
        routine.give_back(routine.choose(routine.compare(routine.load(tensor, TENSOR_DATA), "==", 0), 1, 0))
        return routine

    # --- records ------------------------------------------------------------------------------------------------------

    def _tensor_matches(self) -> Routine:
        """tensor_matches(guard, tensor): whether sizes and strides are those of the guard, where they matter."""
        routine = self._library.routine("tensor_matches", 2)
        guard, tensor = routine.parameters
        axes = routine.load(guard, records.GUARD_AXES)
        sizes, strides = routine.load(tensor, TENSOR_SIZES), routine.load(tensor, TENSOR_STRIDES)
        with routine.loop(routine.load(guard, records.GUARD_RANK)) as axis:
            expected = routine.add(axes, routine.multiply(axis, records.AXIS_WORDS * 8))
            other_size = routine.differing_bits(routine.load(sizes, axis), routine.load(expected, records.AXIS_SIZE))
            other_stride = routine.differing_bits(
                routine.load(strides, axis), routine.load(expected, records.AXIS_STRIDE)
            )
            other_place = routine.common_bits(other_stride, routine.load(expected, records.AXIS_MASK))
            with routine.when(routine.compare(routine.united_bits(other_size, other_place), "!=", 0)):
                routine.give_back(0)
        routine.give_back(1)
        return routine

    def _matches(self, tensor_matches: Routine) -> Routine:
        """matches(table, record, tensors, slots): whether the record was made for arguments like these."""
        routine = self._library.routine("matches", 4)
        table, record, tensors, slots = routine.parameters
        guards = routine.load(record, records.GUARDS)
        with routine.loop(routine.load(table, INPUTS)) as index:
            guard = routine.add(guards, routine.multiply(index, records.GUARD_WORDS * 8))
            tensor = routine.add(tensors, routine.multiply(index, TENSOR_WORDS * 8))
            kind = routine.load(guard, records.GUARD_TYPE)
            with routine.when(routine.compare(routine.load(tensor, TENSOR_TYPE), "!=", kind)):
                routine.give_back(0)
            with routine.when(routine.compare(routine.load(guard, records.GUARD_RANK), ">", 0)):
                is_same = routine.call(tensor_matches, guard, tensor)
                with routine.when(routine.compare(is_same, "==", 0)):
                    routine.give_back(0)
            with routine.when(routine.compare(kind, "==", records.INT)):
                value = routine.load(slots, index)
                too_low = routine.compare(value, "<", routine.load(guard, records.GUARD_LOWEST))
                too_high = routine.compare(value, ">", routine.load(guard, records.GUARD_HIGHEST))
                with routine.when(routine.either(too_low, too_high)):
                    routine.give_back(0)
        routine.give_back(1)
        return routine
