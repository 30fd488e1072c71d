"""What running a record natively has in common, wherever its kernels run.

Each function writes instructions into a routine: numbers made ready, the words of a step filled, steps run without the
GIL where they may take long, results put into the form the caller wants, and the run counted.
"""

from __future__ import annotations

from ingot.runtime.native.assembler.addresses import python_function, system_function
from ingot.runtime.native.assembler.routines import Library, Routine, Value, Word
from ingot.runtime.native.assembler.ticks import now
from ingot.runtime.native.launch.record_structs import (
    Convention,
    ConversionWords,
    FormWords,
    PatchWords,
    RecordWords,
    StatisticsWords,
    StepWords,
)


def convert_numbers(routine: Routine, record: Value, slots: Value) -> None:
    """Put ints and bools of the call, as doubles, into the slots for them."""
    conversions = routine.load(record, RecordWords.conversions)
    with routine.loop(routine.load(record, RecordWords.conversion_count)) as index:
        conversion = routine.item(conversions, index, ConversionWords)
        number = routine.load(slots, routine.load(conversion, ConversionWords.source))
        target = routine.load(conversion, ConversionWords.target)
        routine.store(routine.to_double(number), slots, target)


def fill_words(routine: Routine, step: Value, words: Value, slots: Value) -> None:
    """The words of a step for this call: its template, with slots put into it."""
    size = routine.multiply(routine.load(step, StepWords.word_count), 8)
    routine.call(system_function("memcpy"), words, routine.load(step, StepWords.template), size)
    patches = routine.load(step, StepWords.patches)
    with routine.loop(routine.load(step, StepWords.patch_count)) as number:
        patch = routine.item(patches, number, PatchWords)
        source = routine.load(slots, routine.load(patch, PatchWords.slot))
        value = routine.add(source, routine.load(patch, PatchWords.offset))
        routine.store(value, words, routine.load(patch, PatchWords.word))


def run_guarded(
    routine: Routine, record: Value, items: Value, inputs: Value, run_steps: Routine, *arguments: Value
) -> Word:
    """What a routine returns that runs a record's steps; those that take long run without the GIL, with the inputs and
    the record held."""
    cell, held = routine.stack(1), routine.stack(inputs)
    is_long = routine.compare(routine.load(record, RecordWords.is_long), "!=", 0)
    with routine.when(routine.opposite(is_long)):
        routine.store(routine.call(run_steps, *arguments), cell)
    with routine.when(is_long):
        with routine.loop(inputs) as index:  # the list may change meanwhile
            item = routine.load(items, index)
            routine.store(item, held, index)
            routine.call(python_function("Py_IncRef"), item)
        routine.increase(1, record, RecordWords.in_flight)
        thread = routine.call(python_function("PyEval_SaveThread"))
        routine.store(routine.call(run_steps, *arguments), cell)
        routine.call(python_function("PyEval_RestoreThread"), thread)
        routine.increase(-1, record, RecordWords.in_flight)
        with routine.loop(inputs) as index:
            routine.call(python_function("Py_DecRef"), routine.load(held, index))
    return routine.load(cell)


def collect_results(library: Library) -> Routine:
    """collect(form, tensors): the results, which are given away, in the form the convention asks for; 0 if there is no
    memory for it, and then they are gone."""
    routine = library.routine("collect", 2)
    form, tensors = routine.parameters
    outputs, convention = routine.load(form, FormWords.outputs), routine.load(form, FormWords.convention)
    is_positional = routine.compare(convention, "==", Convention.POSITIONAL)
    with routine.when(routine.both(is_positional, routine.compare(outputs, "==", 1))):
        routine.give_back(routine.load(tensors))
    with routine.when(routine.compare(convention, "==", Convention.NOTHING)):
        routine.call(python_function("Py_IncRef"), id(None))
        routine.give_back(id(None))
    with routine.when(routine.compare(convention, "==", Convention.LIST)):
        _give_back_container(routine, "PyList", tensors, outputs)
    _give_back_container(routine, "PyTuple", tensors, outputs)
    return routine


def _give_back_container(routine: Routine, kind: str, tensors: Value, count: Value) -> None:
    """End with a new list or tuple of tensors, which become its own."""
    container = routine.call(python_function(f"{kind}_New"), count)
    with routine.when(routine.compare(container, "==", 0)):
        give_up_tensors(routine, tensors, count)
        routine.give_back(0)
    put = python_function(f"{kind}_SetItem", 32)
    with routine.loop(count) as index:
        routine.call(put, container, index, routine.load(tensors, index))
    routine.give_back(container)


def give_up_tensors(routine: Routine, tensors: Value, count: Value) -> None:
    """Let go of the first tensors after a failure. Python repeats the call, fails the same way and words the error."""
    routine.call(python_function("PyErr_Clear"))
    with routine.loop(count) as index:
        routine.call(python_function("Py_DecRef"), routine.load(tensors, index))


def count_run(routine: Routine, record: Value, start: Value) -> None:
    """Add a run that began at a time to the record's statistics."""
    statistics = routine.load(record, RecordWords.statistics)
    routine.increase(1, statistics, StatisticsWords.executions)
    routine.increase(routine.subtract(now(routine), start), statistics, StatisticsWords.ticks)
    routine.increase(routine.load(record, RecordWords.launches), statistics, StatisticsWords.launches)
    routine.increase(routine.load(record, RecordWords.bytes_moved), statistics, StatisticsWords.bytes_moved)
