"""Calls of Python objects that are answered natively where a record of them fits.

In: objects of classes from `NativeCallable`, each with a table of call records. Out: calling such an object goes to a
native routine first, which compares the call with the records, the last used first, and runs the one that fits. Every
other call goes to the `__call__` of the object's class.

The routine stands where a class has the address that Python calls its objects through. The class itself stays as it
was: code that reads its `__call__` finds the Python function.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from ingot.base.once import once
from ingot.runtime.native.abi import object_layout
from ingot.runtime.native.abi.object_layout import TensorLayout, tensor_layout
from ingot.runtime.native.abi.settings import Settings, devices_in_use, emit_settings
from ingot.runtime.native.assembler.addresses import python_function
from ingot.runtime.native.assembler.routines import Foreign, Library, Routine, Value
from ingot.runtime.native.assembler.structs import Struct
from ingot.runtime.native.assembler.ticks import now
from ingot.runtime.native.dispatch.call_matching import CallMatchingEmitter
from ingot.runtime.native.dispatch.call_records import DECLINED, MOST_ARGUMENTS, CallRecord
from ingot.runtime.native.dispatch.call_structs import (
    AS_CALLED,
    LEAF,
    NO_LEAF,
    AnswerWords,
    CallRecordWords,
    CallWords,
    CountWords,
    DispatchTableWords,
    ForwardingWords,
    NestingWords,
    SourceWords,
)
from ingot.runtime.native.dispatch.conditions import are_places_as_expected
from ingot.runtime.native.launch.callables import RecordTable, new_capsule
from ingot.runtime.native.launch.guard_matching import make_room
from ingot.runtime.native.launch.launcher import Launcher, launcher
from ingot.runtime.native.launch.record_structs import MOST_RECORDS, FormWords
from ingot.runtime.native.launch.records import OTHER_SLOTS

_CALL_WORD = 16
"""Where a class has the address that its objects are called through; confirmed by classes of this process."""
_CLASS_WORDS = 24
_FEW = 3
"""With fewer records, no guess is made which one a call will be answered by."""
_RAISED = 1
"""Returned for an exception; 0 means that `__call__` has to answer."""
ANY_SETTINGS = -2
"""Instead of settings: any settings."""


class NativeCallable:
    """An object whose calls may be answered natively, once it has a table."""

    __slots__ = ("_dispatch_owner",)

    _dispatch_owner: tuple[Any, DispatchTable]
    """The address of the table in a form that native code reads, and the table itself."""


class DispatchTable(RecordTable[CallRecord]):
    """The records of calls of one object, and what calls without a record are handed on to."""

    def __init__(self, found: Launcher):
        self._words, self._forwarding = DispatchTableWords.zeroed(), ForwardingWords.zeroed()
        self._words.forwarding = self._forwarding.address
        super().__init__(found, self._words)
        self._target: Callable[..., Any] | None = None

    def forward(self, target: Callable[..., Any], settings: int, calls: int) -> None:
        """Hand the next calls that fit no record, made under these settings of torch, on to a function as they are."""
        before, self._target = self._target, target
        self._forwarding.become(ForwardingWords(target=id(target), settings=settings, remaining=calls))
        del before  # not while its address is there to be read

    def stop_forwarding(self) -> None:
        self._forwarding.become(ForwardingWords.zeroed())
        self._target = None

    @property
    def remaining(self) -> int:
        """How many more calls are handed on."""
        return self._forwarding.remaining

    def put(self, record: CallRecord) -> None:
        self._words.most_environment_tensors = max(self._words.most_environment_tensors, record.environment_count)
        super().put(record)


class DispatchEmitter:
    """Writes the routines into a library."""

    def __init__(self, library: Library, found: Launcher, tensors: TensorLayout, settings: Settings):
        self._library = library
        self._launcher = found
        self._matching = CallMatchingEmitter(library, found, tensors, settings)
        self._settings = settings

    def emit(self, owner_word: int, original: Foreign) -> None:
        """Write all routines: `call` is what Python calls, `settings` serves the Python side."""
        settings = emit_settings(self._library, self._settings)
        answer = self._answer(self._run_kernels(), self._call_function())
        forward = self._forward()
        look = self._look(self._matching.emit(), answer, forward)
        self._call(owner_word, original, self._attempt(settings, look, forward))

    def _call(self, owner_word: int, original: Foreign, attempt: Routine) -> None:
        """call(self, arguments, keywords): what Python calls."""
        routine = self._library.routine("call", 3)
        self_, arguments, keywords = routine.parameters
        owner = routine.load(self_, owner_word)
        with routine.when(routine.compare(owner, "!=", 0)):
            capsule = routine.load(owner, object_layout.ITEMS_WORD)
            table = routine.call(python_function("PyCapsule_GetPointer"), capsule, 0)
            result = routine.call(attempt, table, arguments, keywords)
            with routine.when(routine.compare(result, "==", _RAISED)):
                routine.give_back(0)
            with routine.when(routine.compare(result, "!=", 0)):
                routine.give_back(result)
        routine.give_back(routine.call(original, self_, arguments, keywords))

    def _forward(self) -> Routine:
        """forward(table, settings, arguments, keywords): the result of what calls are handed on to; 0 if there is
        nothing."""
        routine = self._library.routine("forward", 4)
        table, settings, arguments, keywords = routine.parameters
        words = routine.load(table, DispatchTableWords.forwarding)
        wanted = routine.load(words, ForwardingWords.settings)
        is_meant = routine.either(routine.compare(wanted, "==", settings), routine.compare(wanted, "==", ANY_SETTINGS))
        is_left = routine.compare(routine.load(words, ForwardingWords.remaining), ">", 0)
        with routine.when(routine.opposite(routine.both(is_meant, is_left))):
            routine.give_back(0)
        routine.increase(-1, words, ForwardingWords.remaining)
        target = routine.load(words, ForwardingWords.target)
        routine.call(python_function("Py_IncRef"), target)
        result = routine.call(python_function("PyObject_Call"), target, arguments, keywords)
        routine.call(python_function("Py_DecRef"), target)
        routine.give_back(routine.choose(routine.compare(result, "==", 0), _RAISED, result))
        return routine

    def _attempt(self, settings: Routine, look: Routine, forward: Routine) -> Routine:
        """attempt(table, arguments, keywords): the result; 0 where `__call__` has to answer."""
        routine = self._library.routine("attempt", 3)
        table, arguments, keywords = routine.parameters
        start = now(routine)
        found = routine.call(settings)
        positional, named = routine.load(arguments, object_layout.LENGTH_WORD), routine.stack(1)
        routine.store(0, named)
        with routine.when(routine.compare(keywords, "!=", 0)):
            routine.store(routine.load(keywords, object_layout.LENGTH_WORD), named)
        count = routine.add(positional, routine.load(named))
        is_long = routine.compare(count, ">", MOST_ARGUMENTS)
        with routine.when(routine.either(is_long, routine.compare(found, "<", 0))):
            routine.give_back(0)
        with routine.when(routine.compare(routine.load(table, DispatchTableWords.count), "==", 0)):
            routine.give_back(routine.call(forward, table, found, arguments, keywords))
        beside = routine.load(table, DispatchTableWords.most_environment_tensors)
        given, nesting = routine.stack(routine.add(count, beside)), self._stack_of(routine, count, NestingWords)
        names = self._gather(routine, arguments, positional, keywords, routine.load(named), given)
        total, nested = self._measure(routine, given, count, nesting)
        with routine.when(routine.compare(total, ">", MOST_ARGUMENTS)):
            routine.give_back(routine.call(forward, table, found, arguments, keywords))
        leaves, call = routine.add(total, beside), routine.stack(CallWords.words())
        is_nested = routine.compare(nested, "!=", 0)
        apart = routine.stack(routine.choose(is_nested, leaves, 0))
        keys, items = routine.stack(routine.choose(is_nested, total, 0)), routine.choose(is_nested, apart, given)
        with routine.when(is_nested):
            self._flatten(routine, given, count, nesting, items, keys)
        self._change_references(routine, "Py_IncRef", nested, total, items)  # lists may change meanwhile
        routine.fill(
            call,
            CallWords,
            settings=found,
            positional=positional,
            named=routine.load(named),
            names=names,
            leaves=leaves,
            given=total,
            nesting=nesting,
            keyed=routine.choose(is_nested, total, 0),
            keys=keys,
        )
        result = routine.call(look, table, call, items, start, arguments, keywords)
        self._change_references(routine, "Py_DecRef", nested, total, items)
        routine.give_back(result)
        return routine

    def _stack_of(self, routine: Routine, count: Value, struct: type[Struct]) -> Value:
        return routine.stack(routine.multiply(count, struct.words()))

    def _change_references(self, routine: Routine, function: str, nested: Value, total: Value, items: Value) -> None:
        """Take or give up references to all leaves of a call, if some of its arguments are nested."""
        with routine.loop(routine.choose(routine.compare(nested, "==", 0), 0, total)) as index:
            routine.call(python_function(function), routine.load(items, index))

    def _measure(self, routine: Routine, given: Value, count: Value, nesting: Value) -> tuple[Value, Value]:
        """Note how arguments are nested; how many leaves they have, and how many of them are lists, tuples or
        dictionaries."""
        total, nested = routine.stack(1), routine.stack(1)
        routine.store(0, total)
        routine.store(0, nested)
        with routine.loop(count) as index:
            object_ = routine.load(given, index)
            kind, noted = routine.load(object_, object_layout.TYPE_WORD), routine.item(nesting, index, NestingWords)
            is_sequence = routine.either(routine.compare(kind, "==", id(list)), routine.compare(kind, "==", id(tuple)))
            is_nested = routine.either(is_sequence, routine.compare(kind, "==", id(dict)))
            routine.fill(noted, NestingWords, class_=LEAF, length=1)
            with routine.when(is_nested):
                routine.increase(1, nested)
                routine.fill(noted, NestingWords, class_=kind, length=routine.load(object_, object_layout.LENGTH_WORD))
            routine.increase(routine.load(noted, NestingWords.length), total)
        return routine.load(total), routine.load(nested)

    def _flatten(self, routine: Routine, given: Value, count: Value, nesting: Value, items: Value, keys: Value) -> None:
        """Put the leaves of all arguments side by side, and the keys of those that are entries of dictionaries."""
        done, cursor = routine.stack(1), routine.stack(3)
        routine.store(0, done)
        with routine.loop(count) as index:
            object_, noted = routine.load(given, index), routine.item(nesting, index, NestingWords)
            kind, length = routine.load(noted, NestingWords.class_), routine.load(noted, NestingWords.length)
            first = routine.load(done)
            is_leaf, is_dictionary = (routine.compare(kind, "==", one) for one in (LEAF, id(dict)))
            with routine.loop(length) as part:
                routine.store(0, keys, routine.add(first, part))
            with routine.when(is_leaf):
                routine.store(object_, items, first)
            with routine.when(is_dictionary):
                places = (routine.part(keys, first), routine.part(items, first))
                self._flatten_dictionary(routine, object_, length, places, cursor)
            with routine.when(routine.opposite(routine.either(is_leaf, is_dictionary))):
                inline = routine.part(object_, object_layout.ITEMS_WORD)
                parts = routine.choose(routine.compare(kind, "==", id(list)), routine.load(inline), inline)
                with routine.loop(length) as part:
                    routine.store(routine.load(parts, part), items, routine.add(first, part))
            routine.increase(length, done)

    def _flatten_dictionary(
        self, routine: Routine, dictionary: Value, length: Value, places: tuple[Value, Value], cursor: Value
    ) -> None:
        """Put the keys and the values of a dictionary into two places; the cursor is three words to work with."""
        key, value = routine.part(cursor, 1), routine.part(cursor, 2)
        routine.store(0, cursor)
        with routine.loop(length) as part:
            routine.call(python_function("PyDict_Next", 32), dictionary, cursor, key, value)
            for word, place in zip((key, value), places, strict=True):
                routine.store(routine.load(word), place, part)

    def _look(self, matches: Routine, answer: Routine, forward: Routine) -> Routine:
        """look(table, call, items, start, arguments, keywords): the result of the first record that fits, or of what
        calls are handed on to; 0 if there is neither, or the record leaves this call to Python."""
        expect, note_successor = self._expect(), self._note_successor()
        routine = self._library.routine("look", 6)
        table, call, items, start, arguments, keywords = routine.parameters
        last = routine.call(expect, table)
        slots, found = routine.stack(routine.load(call, CallWords.leaves)), routine.load(call, CallWords.settings)
        with routine.loop(MOST_RECORDS) as index:
            # Comparing may run Python code (how keys of dictionaries compare), and the table be another afterwards.
            with routine.when(routine.compare(index, ">=", routine.load(table, DispatchTableWords.count))):
                routine.give_back(routine.call(forward, table, found, arguments, keywords))
            place = routine.add(index, DispatchTableWords.records)
            record = routine.load(table, place)
            is_match = routine.call(matches, record, call, items, slots)
            with routine.when(routine.compare(is_match, "!=", 0)):
                with routine.when(routine.compare(routine.load(table, place), "==", record)):
                    make_room(routine, table, index)
                    routine.store(record, table, DispatchTableWords.records)
                routine.call(note_successor, table, last, record)
                self._pause(routine, routine.load(record, CallRecordWords.calls))
                routine.give_back(routine.call(answer, record, items, slots, start, arguments, keywords))
        routine.give_back(routine.call(forward, table, found, arguments, keywords))
        return routine

    def _expect(self) -> Routine:
        """expect(table): moves the record to the front that was used last time after the one used last, which is
        returned; 0 if there are too few to choose from. Sizes that grow from call to call and begin again, as those of
        a text that is generated, would otherwise be compared with all other records every time."""
        routine = self._library.routine("expect", 1)
        (table,) = routine.parameters
        count, last = routine.load(table, DispatchTableWords.count), routine.load(table, DispatchTableWords.records)
        with routine.when(routine.compare(count, "<", _FEW)):
            routine.give_back(0)
        guess = routine.load(last, CallRecordWords.successor)
        with routine.when(routine.either(routine.compare(guess, "==", 0), routine.compare(guess, "==", last))):
            routine.give_back(last)
        with routine.loop(count) as index:
            is_guess = routine.compare(routine.load(table, routine.add(index, DispatchTableWords.records)), "==", guess)
            with routine.when(is_guess):
                make_room(routine, table, index)
                routine.store(guess, table, DispatchTableWords.records)
                routine.give_back(last)
        routine.give_back(last)
        return routine

    def _note_successor(self) -> Routine:
        """note_successor(table, last, record): a record was used after another, if that is still in the table: by now
        it is one of the first."""
        routine = self._library.routine("note_successor", 3)
        table, last, record = routine.parameters
        count = routine.load(table, DispatchTableWords.count)
        known = routine.choose(routine.compare(count, "<", _FEW), count, _FEW)  # comparing may have had some taken out
        with routine.loop(routine.choose(routine.compare(last, "==", 0), 0, known)) as place:
            found = routine.load(table, routine.add(place, DispatchTableWords.records))
            with routine.when(routine.compare(found, "==", last)):
                routine.store(record, last, CallRecordWords.successor)
        routine.give_back()
        return routine

    def _pause(self, routine: Routine, count: Value) -> None:
        """Leave the call to Python if the count of answered calls has reached the one to pause at."""
        value = routine.load(count, CountWords.value)
        with routine.when(routine.compare(value, ">=", routine.load(count, CountWords.pause))):
            routine.store(routine.add(routine.multiply(value, 2), 1), count, CountWords.pause)
            routine.give_back(0)

    def _gather(
        self, routine: Routine, arguments: Value, positional: Value, keywords: Value, named: Value, items: Value
    ) -> Value:
        """Put all arguments of a call side by side; where the names of the keyword arguments are."""
        with routine.loop(positional) as index:
            routine.store(routine.load(arguments, routine.add(index, object_layout.ITEMS_WORD)), items, index)
        names, position, pair = routine.stack(named), routine.stack(1), routine.stack(2)
        routine.store(0, position)
        with routine.loop(named) as index:
            following = python_function("PyDict_Next", 32)
            routine.call(following, keywords, position, pair, routine.add(pair, 8))
            routine.store(routine.load(pair, 0), names, index)
            routine.store(routine.load(pair, 1), items, routine.add(positional, index))
        return names

    # --- answering ----------------------------------------------------------------------------------------------------

    def _answer(self, run_kernels: Routine, call_function: Routine) -> Routine:
        """answer(record, items, slots, start, arguments, keywords): the result of a call that matches; the record stays
        meanwhile."""
        routine = self._library.routine("answer", 6)
        record, items, slots, start, arguments, keywords = routine.parameters
        cell = routine.stack(1)
        answer = routine.part(record, CallRecordWords.answer)
        has_kernels = routine.compare(routine.load(answer, AnswerWords.kernels), "!=", 0)
        routine.increase(1, record, CallRecordWords.in_flight)
        with routine.when(has_kernels):
            routine.store(routine.call(run_kernels, answer, items, slots, start), cell)
        with routine.when(routine.opposite(has_kernels)):
            routine.store(routine.call(call_function, answer, items, arguments, keywords), cell)
        routine.increase(-1, record, CallRecordWords.in_flight)
        result = routine.load(cell)
        with routine.when(routine.compare(result, "!=", 0)):
            routine.increase(1, routine.load(record, CallRecordWords.calls), CountWords.value)
        routine.give_back(result)
        return routine

    def _run_kernels(self) -> Routine:
        """run_kernels(answer, items, slots, start): the results of the kernels, or 0."""
        routine = self._library.routine("run_kernels", 4)
        answer, items, slots, start = routine.parameters
        kernels, form = routine.load(answer, AnswerWords.kernels), routine.load(answer, AnswerWords.form)
        inputs, outputs = routine.load(form, FormWords.inputs), routine.load(form, FormWords.outputs)
        room = routine.add(routine.multiply(inputs, 2), routine.add(outputs, OTHER_SLOTS))
        given, values = routine.stack(inputs), routine.stack(room)
        sources = routine.load(answer, AnswerWords.sources)
        with routine.loop(inputs) as index:
            source = routine.item(sources, index, SourceWords)
            leaf = routine.load(source, SourceWords.leaf)
            routine.store(id(None), given, index)
            routine.store(routine.load(source, SourceWords.number), values, index)
            with routine.when(routine.compare(leaf, "!=", NO_LEAF)):
                routine.store(routine.load(items, leaf), given, index)
                routine.store(routine.load(slots, leaf), values, index)
        routine.give_back(routine.call(self._launcher.run, form, kernels, given, values, start))
        return routine

    def _call_function(self) -> Routine:
        """call_function(answer, items, arguments, keywords): what the answer's Python function makes of its leaves, or
        of the call as it is; 0 if it declines."""
        routine = self._library.routine("call_function", 4)
        answer, items, arguments, keywords = routine.parameters
        count, leaves = routine.load(answer, AnswerWords.passed_count), routine.load(answer, AnswerWords.passed)
        with routine.when(routine.compare(count, "==", AS_CALLED)):
            whole = python_function("PyObject_Call")
            result = routine.call(whole, routine.load(answer, AnswerWords.function), arguments, keywords)
            routine.give_back(routine.choose(routine.compare(result, "==", 0), _RAISED, result))
        passed = routine.call(python_function("PyTuple_New"), count)
        with routine.when(routine.compare(passed, "==", 0)):
            routine.give_back(_RAISED)
        with routine.loop(count) as index:
            item = routine.load(items, routine.load(leaves, index))
            routine.call(python_function("Py_IncRef"), item)
            routine.call(python_function("PyTuple_SetItem", 32), passed, index, item)
        function = routine.load(answer, AnswerWords.function)
        result = routine.call(python_function("PyObject_CallOneArg"), function, passed)
        routine.call(python_function("Py_DecRef"), passed)
        with routine.when(routine.compare(result, "==", 0)):
            routine.give_back(_RAISED)
        with routine.when(routine.compare(result, "==", id(DECLINED))):
            routine.call(python_function("Py_DecRef"), result)
            routine.give_back(0)
        routine.give_back(result)
        return routine


class Dispatcher:
    """The routines of this process, compiled. There is one: `dispatcher()`."""

    def __init__(self, emitter: DispatchEmitter, library: Library, owner_word: int, original: int):
        emitter.emit(owner_word, Foreign(original))
        library.compile()
        self._call, self._original = library.address("call"), original
        self._settings = ctypes.PYFUNCTYPE(ctypes.c_int64)(library.address("settings"))

    def settings(self) -> int:
        """torch's settings in one word, as records have them; negative if a watcher is active."""
        devices_in_use.look()
        return self._settings()

    def attach(self, object_: NativeCallable) -> DispatchTable:
        """A table for an object, which answers its calls from now on."""
        found = launcher()
        assert found is not None, "there is a dispatcher only where there is a launcher"
        table: DispatchTable = DispatchTable(found)
        slot = _class_words(type(object_))
        if slot[_CALL_WORD] == self._original:  # not where other code has put an address of its own
            slot[_CALL_WORD] = self._call
        object_._dispatch_owner = (new_capsule(table.address, None, None), table)
        return table


@once
def dispatcher() -> Dispatcher | None:
    """The routines, compiled at first use; None where Python, torch or the system are not as they need them."""
    found, tensors, settings = launcher(), tensor_layout(), Settings.find()
    original, owner_word = _original_call(), _owner_word()
    if found is None or tensors is None or settings is None or not are_places_as_expected():
        return None
    if original is None or owner_word is None:
        return None
    library = Library("dispatcher")
    emitter = DispatchEmitter(library, found, tensors, settings)
    return Dispatcher(emitter, library, owner_word, original)


def _class_words(class_: type) -> Any:
    return (ctypes.c_uint64 * _CLASS_WORDS).from_address(id(class_))


def _original_call() -> int | None:
    """The address that objects of Python classes with a `__call__` are called through."""
    plain = [type(name, (), {}) for name in ("First", "Second")]
    callable_ = [type(name, (), {"__call__": lambda self: None}) for name in ("Third", "Fourth")]
    words = [list(_class_words(class_)) for class_ in (*plain, *callable_)]
    places = [
        place
        for place in range(3, _CLASS_WORDS)
        if words[0][place] == words[1][place] == 0 != words[2][place] == words[3][place]
    ]
    return words[2][_CALL_WORD] if places == [_CALL_WORD] else None


def _owner_word() -> int | None:
    """Where an object has its table."""
    probe, owner = NativeCallable(), (object(), object())
    probe._dispatch_owner = owner  # type: ignore[assignment]
    words = list((ctypes.c_uint64 * (NativeCallable.__basicsize__ // 8)).from_address(id(probe)))
    places = [place for place, word in enumerate(words) if word == id(owner)]
    return places[0] if len(places) == 1 else None
