"""The native routines that compare a call of a Python object with a record: arguments, environment tensors,
places."""

from __future__ import annotations

from ingot.runtime.native.abi import object_layout
from ingot.runtime.native.abi.object_layout import TensorLayout
from ingot.runtime.native.abi.settings import Settings
from ingot.runtime.native.assembler.addresses import python_function
from ingot.runtime.native.assembler.routines import Condition, Library, Routine, Value
from ingot.runtime.native.dispatch.call_structs import (
    CallRecordWords,
    CallWords,
    IdentityWords,
    NestingWords,
    OtherKind,
    OtherWords,
    TensorWords,
)
from ingot.runtime.native.dispatch.conditions import emit_places_hold
from ingot.runtime.native.launch.launcher import Launcher


class CallMatchingEmitter:
    """Writes these routines into a library."""

    def __init__(self, library: Library, found: Launcher, tensors: TensorLayout, settings: Settings):
        self._library = library
        self._launcher = found
        self._layout = tensors
        self._settings = settings

    def emit(self) -> Routine:
        """matches(record, call, items, slots)."""
        places_hold = emit_places_hold(self._library)
        return self._matches(self._tensor_fits(), self._other_fits(), self._first_of(), places_hold)

    def _matches(self, tensor_fits: Routine, other_fits: Routine, first_of: Routine, places_hold: Routine) -> Routine:
        """matches(record, call, items, slots): whether a record was made for such a call; the environment tensors are
        put after the arguments, and addresses and numbers into the slots."""
        routine = self._library.routine("matches", 4)
        record, call, items, slots = routine.parameters
        positional, named = (routine.load(call, place) for place in (CallWords.positional, CallWords.named))
        for word, value in (
            (CallRecordWords.settings, routine.load(call, CallWords.settings)),
            (CallRecordWords.positional_count, positional),
            (CallRecordWords.keyword_count, named),
        ):
            self._require(routine, routine.compare(routine.load(record, word), "==", value))
        names, expected = routine.load(call, CallWords.names), routine.load(record, CallRecordWords.names)
        with routine.loop(named) as index:
            is_same = routine.compare(routine.load(names, index), "==", routine.load(expected, index))
            self._require(routine, is_same)
        given, known = routine.load(call, CallWords.nesting), routine.load(record, CallRecordWords.nesting)
        with routine.loop(routine.multiply(routine.add(positional, named), NestingWords.words())) as index:
            self._require(routine, routine.compare(routine.load(given, index), "==", routine.load(known, index)))
        keys, expected = routine.load(call, CallWords.keys), routine.load(record, CallRecordWords.keys)
        with routine.loop(routine.load(call, CallWords.keyed)) as index:  # nested alike, so the record has as many
            is_same = routine.compare(routine.load(keys, index), "==", routine.load(expected, index))
            self._require(routine, is_same)
        self._match_arguments(routine, tensor_fits, other_fits, first_of)
        environment_tensors = routine.load(record, CallRecordWords.environment_tensors)
        first, count = routine.load(call, CallWords.given), routine.load(record, CallRecordWords.environment_count)
        self._require(routine, routine.compare(routine.add(first, count), "<=", routine.load(call, CallWords.leaves)))
        with routine.loop(count) as index:
            guard = routine.item(environment_tensors, index, TensorWords)
            object_, leaf = routine.load(guard, TensorWords.source), routine.add(first, index)
            routine.store(object_, items, leaf)
            slot = routine.part(slots, leaf)
            self._require_call(routine, tensor_fits, record, guard, object_, slot)
        routine.increase(1, record, CallRecordWords.in_flight)
        are_same = routine.call(places_hold, routine.load(record, CallRecordWords.places))
        routine.increase(-1, record, CallRecordWords.in_flight)
        routine.give_back(are_same)
        return routine

    def _match_arguments(self, routine: Routine, tensor_fits: Routine, other_fits: Routine, first_of: Routine) -> None:
        record, _, items, slots = routine.parameters
        tensors, others = (routine.load(record, place) for place in (CallRecordWords.tensors, CallRecordWords.others))
        room = routine.load(record, CallRecordWords.identity_room)
        known = routine.stack(routine.multiply(room, IdentityWords.words()))
        with routine.loop(room) as index:
            routine.store(0, routine.item(known, index, IdentityWords), IdentityWords.object)
        is_looked_up = routine.compare(room, "!=", 0)
        with routine.loop(routine.load(record, CallRecordWords.tensor_count)) as index:
            guard = routine.item(tensors, index, TensorWords)
            leaf = routine.load(guard, TensorWords.source)
            object_, slot = routine.load(items, leaf), routine.part(slots, leaf)
            self._require_call(routine, tensor_fits, record, guard, object_, slot)
            with routine.when(routine.compare(routine.load(record, CallRecordWords.forbids_attributes), "!=", 0)):
                self._require_no_attributes(routine, object_)
            with routine.when(is_looked_up):
                first = routine.call(first_of, known, routine.subtract(room, 1), object_, leaf)
                self._require(routine, routine.compare(first, "==", routine.load(guard, TensorWords.first)))
            with routine.loop(routine.choose(is_looked_up, 0, index)) as earlier:
                other = routine.item(tensors, earlier, TensorWords)
                is_one = self._is_one(routine, routine.load(items, routine.load(other, TensorWords.source)), object_)
                was_one = self._is_one(
                    routine,
                    routine.load(other, TensorWords.first),
                    routine.load(guard, TensorWords.first),
                )
                self._require(routine, routine.compare(is_one, "==", was_one))
        with routine.loop(routine.load(record, CallRecordWords.other_count)) as index:
            guard = routine.item(others, index, OtherWords)
            leaf = routine.load(guard, OtherWords.leaf)
            slot = routine.part(slots, leaf)
            self._require_call(routine, other_fits, guard, routine.load(items, leaf), slot)

    def _first_of(self) -> Routine:
        """first_of(table, mask, object, leaf): the leaf with which an object was first asked for."""
        routine = self._library.routine("first_of", 4)
        table, mask, object_, leaf = routine.parameters
        place = routine.stack(1)
        mixed = routine.add(routine.shift_right(object_, 4), routine.shift_right(object_, 11))
        routine.store(routine.common_bits(mixed, mask), place)
        with routine.forever():
            entry = routine.item(table, routine.load(place), IdentityWords)
            known = routine.load(entry, IdentityWords.object)
            with routine.when(routine.compare(known, "==", object_)):
                routine.give_back(routine.load(entry, IdentityWords.leaf))
            with routine.when(routine.compare(known, "==", 0)):
                routine.fill(entry, IdentityWords, object=object_, leaf=leaf)
                routine.give_back(leaf)
            routine.store(routine.common_bits(routine.add(routine.load(place), 1), mask), place)
        return routine

    def _is_one(self, routine: Routine, one: Value, other: Value) -> Value:
        return routine.choose(routine.compare(one, "==", other), 1, 0)

    def _require_no_attributes(self, routine: Routine, object_: Value) -> None:
        place = routine.call(python_function("_PyObject_GetDictPtr"), object_)
        with routine.when(routine.compare(place, "!=", 0)):
            attributes = routine.load(place)
            with routine.when(routine.compare(attributes, "!=", 0)):
                count = routine.load(attributes, object_layout.LENGTH_WORD)
                self._require(routine, routine.compare(count, "==", 0))

    def _require(self, routine: Routine, condition: Condition) -> None:
        with routine.when(routine.opposite(condition)):
            routine.give_back(0)

    def _require_call(self, routine: Routine, target: Routine, *arguments: Value) -> None:
        self._require(routine, routine.compare(routine.call(target, *arguments), "!=", 0))

    def _tensor_fits(self) -> Routine:
        """tensor_fits(record, guard, object, slot): whether an object is a tensor as the guard says."""
        routine = self._library.routine("tensor_fits", 4)
        record, guard, object_, slot = routine.parameters
        kind = routine.load(object_, object_layout.TYPE_WORD)
        self._require(routine, routine.compare(kind, "==", routine.load(guard, TensorWords.class_)))
        tensor = routine.load(object_, self._layout.implementation_word)
        inner = routine.part(guard, TensorWords.guard)
        is_same = routine.call(self._launcher.tensor_matches, inner, tensor, slot)
        self._require(routine, routine.compare(is_same, "!=", 0))
        with routine.when(routine.compare(routine.load(record, CallRecordWords.gradients_count), "!=", 0)):
            needs_gradients = routine.common_bits(routine.call(self._settings.requires_grad, tensor), 1)
            expected = routine.load(guard, TensorWords.needs_gradients)
            self._require(routine, routine.compare(needs_gradients, "==", expected))
        routine.give_back(1)
        return routine

    def _other_fits(self) -> Routine:
        """other_fits(guard, object, slot): whether an object is the one, or a number like the one, expected."""
        routine = self._library.routine("other_fits", 3)
        guard, object_, slot = routine.parameters
        how = routine.load(guard, OtherWords.kind)
        expected = routine.load(guard, OtherWords.expected)
        type_ = routine.load(object_, object_layout.TYPE_WORD)
        with routine.when(routine.compare(how, "==", OtherKind.SAME_OBJECT)):
            routine.give_back(routine.choose(routine.compare(object_, "==", expected), 1, 0))
        inner = routine.part(guard, OtherWords.guard)
        is_number = routine.call(self._launcher.number_matches, inner, object_, type_, slot)
        self._require(routine, routine.compare(is_number, "!=", 0))
        is_open = routine.compare(how, "==", OtherKind.ANY_NUMBER)
        is_same = routine.compare(routine.load(slot), "==", expected)
        routine.give_back(routine.choose(routine.either(is_open, is_same), 1, 0))
        return routine
