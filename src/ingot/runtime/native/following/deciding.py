"""The native routines that decide what becomes of a torch call, by the role of its function.

    role_of(table, key)                                         the entry of a function; 0 if it has none
    decide(state, role, function, key, arguments, keywords)     the result, or a word of `CallStatus`

What always holds: a function that `decide` lets PyTorch call reads no memory that is not written, and writes none that
pending steps read.
"""

from __future__ import annotations

import torch

from ingot.runtime.native.abi import object_layout
from ingot.runtime.native.assembler.routines import Library, Routine
from ingot.runtime.native.following.following_structs import ROLE_PLACES, ROLE_PROBES, CallStatus, NativeRole, RoleEntry
from ingot.runtime.native.following.objects import Seen


class DecidingEmitter:
    """Writes these routines into a library."""

    def __init__(self, library: Library):
        self._library = library

    def role_of(self) -> Routine:
        routine = self._library.routine("role_of", 2)
        table, key = routine.parameters
        first = routine.shift_right(key, 4)
        with routine.loop(ROLE_PROBES) as probe:
            place = routine.common_bits(routine.add(first, probe), ROLE_PLACES - 1)
            entry = routine.item(table, place, RoleEntry)
            with routine.when(routine.compare(routine.load(entry, RoleEntry.key), "==", key)):
                routine.give_back(entry)
        routine.give_back(0)
        return routine

    def decide(self, are_written: Routine, operate: Routine, is_plain: Routine) -> Routine:
        routine = self._library.routine("decide", 6)
        state, role, function, key, arguments, keywords = routine.parameters
        with routine.when(routine.compare(role, "==", NativeRole.METADATA)):
            with routine.loop(routine.load(arguments, object_layout.LENGTH_WORD)) as index:
                one = routine.call(is_plain, routine.load(arguments, routine.add(index, object_layout.ITEMS_WORD)))
                with routine.when(routine.compare(one, "==", 0)):
                    routine.give_back(CallStatus.NONE)
            routine.give_back(CallStatus.PLAIN)
        is_now = routine.compare(role, "==", NativeRole.NOW)
        with routine.when(routine.either(is_now, routine.compare(role, "==", NativeRole.VIEW))):
            found = routine.call(are_written, arguments, keywords)
            with routine.when(routine.compare(found, "==", Seen.WRITTEN)):
                routine.give_back(CallStatus.PLAIN)
            with routine.when(routine.both(is_now, routine.compare(found, "==", Seen.PENDING))):
                routine.give_back(CallStatus.PLAIN_AFTER_FLUSH)
            with routine.when(is_now):
                routine.give_back(CallStatus.NONE)
        is_step = routine.either(
            routine.compare(role, "==", NativeRole.OPERATION), routine.compare(role, "==", NativeRole.VIEW)
        )
        with routine.when(is_step):
            routine.give_back(routine.call(operate, state, function, key, arguments, keywords))
        routine.give_back(CallStatus.NONE)
        return routine


def emit_is_plain(library: Library) -> Routine:
    """is_plain(object): whether it is of a class that has no `__torch_function__` of its own."""
    routine = library.routine("is_plain", 1)
    (object_,) = routine.parameters
    kind = routine.load(object_, object_layout.TYPE_WORD)
    for known in (torch.Tensor, torch.nn.Parameter, type(None), int, float, bool, str):
        with routine.when(routine.compare(kind, "==", id(known))):
            routine.give_back(1)
    routine.give_back(0)
    return routine
