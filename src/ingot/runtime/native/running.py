"""The launcher's native routines that run a record's steps on the CPU and make its results."""

from __future__ import annotations

from ingot.runtime.native import pool_routines, records
from ingot.runtime.native.addresses import torch_function
from ingot.runtime.native.answering import (
    collect_results,
    convert_numbers,
    count_run,
    fill_words,
    give_up_tensors,
    run_guarded,
)
from ingot.runtime.native.layout import TensorLayout
from ingot.runtime.native.matching import INPUTS, OUTPUTS
from ingot.runtime.native.pool import Pool
from ingot.runtime.native.prototypes import PROTOTYPE_BYTES
from ingot.runtime.native.routines import Foreign, Library, Routine, Value


def _thread_count_function() -> Foreign | None:
    """torch.get_num_threads without Python."""
    return torch_function("torch_cpu", "_ZN2at15get_num_threadsEv", 32)


def _version_function() -> Foreign | None:
    """What counts a change of a tensor, given the address of a reference to it."""
    return torch_function("torch_cpu", "_ZN5torch8autograd4impl12bump_versionERKN2at6TensorE")


def can_overwrite() -> bool:
    """Whether records may overwrite inputs: torch can be told."""
    return _version_function() is not None


class RunningEmitter:
    """Writes these routines into a library."""

    def __init__(self, library: Library, memory: Pool, tensors: TensorLayout):
        self._library = library
        self._pool = memory
        self._layout = tensors
        self._has_forked = library.memory("has_forked", 1)

    def emit(self) -> Routine:
        """run(table, record, items, slots, start). Also `one_thread`, for a forked child: threads of a team are not
        there any more, and starting one would hang."""
        one_thread = self._library.routine("one_thread", 0)
        one_thread.store(1, self._has_forked)
        one_thread.give_back()
        return self._run(self._are_apart(), self._run_steps(), self._take_memory(), self._wrap_results())

    def _are_apart(self) -> Routine:
        """are_apart(record, items, slots): whether inputs that are overwritten share no memory with others, and whoever
        keeps them can be told."""
        routine = self._library.routine("are_apart", 3)
        record, items, slots = routine.parameters
        extents = routine.load(record, records.EXTENTS)
        with routine.loop(routine.load(record, records.EXTENT_COUNT)) as index:
            one = routine.add(extents, routine.multiply(index, records.EXTENT_WORDS * 8))
            is_written = routine.load(one, records.EXTENT_IS_WRITTEN)
            slot = routine.load(one, records.EXTENT_SLOT)
            first = routine.load(slots, slot)
            last = routine.add(first, routine.load(one, records.EXTENT_BYTES))
            with routine.when(routine.compare(is_written, "!=", 0)):
                tensor = routine.load(routine.load(items, slot), self._layout.implementation_word)
                keys = routine.load(tensor, self._layout.keys_word)
                with routine.when(routine.compare(keys, "!=", routine.load(one, records.EXTENT_KEYS))):
                    routine.give_back(0)
            with routine.loop(index) as earlier:
                other = routine.add(extents, routine.multiply(earlier, records.EXTENT_WORDS * 8))
                begin = routine.load(slots, routine.load(other, records.EXTENT_SLOT))
                end = routine.add(begin, routine.load(other, records.EXTENT_BYTES))
                counts = routine.united_bits(is_written, routine.load(other, records.EXTENT_IS_WRITTEN))
                do_meet = routine.both(routine.compare(first, "<", end), routine.compare(begin, "<", last))
                with routine.when(routine.both(do_meet, routine.compare(counts, "!=", 0))):
                    routine.give_back(0)
        routine.give_back(1)
        return routine

    def _tell_written(self, routine: Routine, record: Value, items: Value) -> None:
        """Count a change of all inputs that were overwritten, as autograd wants to know."""
        bump = _version_function()
        extents = routine.load(record, records.EXTENTS)
        with routine.loop(0 if bump is None else routine.load(record, records.EXTENT_COUNT)) as index:
            one = routine.add(extents, routine.multiply(index, records.EXTENT_WORDS * 8))
            with routine.when(routine.compare(routine.load(one, records.EXTENT_IS_WRITTEN), "!=", 0)):
                object_ = routine.load(items, routine.load(one, records.EXTENT_SLOT))
                place = routine.add(object_, self._layout.implementation_word * 8)
                assert bump is not None
                routine.call(bump, place)

    def _run(self, are_apart: Routine, run_steps: Routine, take_memory: Routine, wrap_results: Routine) -> Routine:
        """run(table, record, items, slots, start): the results of a record, or 0 if Python has to compute them."""
        routine = self._library.routine("run", 5)
        table, record, items, slots, start = routine.parameters
        elsewhere = routine.load(record, records.RUN)
        with routine.when(routine.compare(elsewhere, "!=", 0)):
            routine.give_back(routine.call(elsewhere, *routine.parameters))
        with routine.when(routine.compare(routine.call(are_apart, record, items, slots), "==", 0)):
            routine.give_back(0)
        inputs, outputs = routine.load(table, INPUTS), routine.load(table, OUTPUTS)
        blocks = routine.stack(routine.add(outputs, 1))
        fresh_slots = routine.add(slots, routine.multiply(inputs, 8))
        is_short = routine.call(take_memory, record, outputs, blocks, fresh_slots)
        with routine.when(routine.compare(is_short, "!=", 0)):
            routine.give_back(0)
        convert_numbers(routine, record, slots)
        fault = run_guarded(routine, record, items, inputs, run_steps, record, slots)
        self._give_arena(routine, blocks, outputs)
        with routine.when(routine.compare(fault, "!=", 0)):
            with routine.loop(outputs) as index:
                routine.call(self._pool.give, routine.load(blocks, index))
            routine.give_back(0)
        self._tell_written(routine, record, items)
        result = routine.call(wrap_results, table, record, blocks)
        with routine.when(routine.compare(result, "!=", 0)):
            count_run(routine, record, start)
        routine.give_back(result)
        return routine

    def _give_arena(self, routine: Routine, blocks: Value, outputs: Value) -> None:
        arena = routine.load(blocks, outputs)
        with routine.when(routine.compare(arena, "!=", 0)):
            routine.call(self._pool.give, arena)

    def _take_memory(self) -> Routine:
        """take_memory(record, outputs, blocks, slots): blocks for results and arena; 1 if memory is short."""
        routine = self._library.routine("take_memory", 4)
        record, outputs, blocks, slots = routine.parameters
        prototypes = routine.load(record, records.PROTOTYPES)
        arena_bytes = routine.load(record, records.ARENA_BYTES)
        routine.store(0, blocks, outputs)
        with routine.loop(outputs) as index:
            wanted = routine.load(routine.load(prototypes, index), PROTOTYPE_BYTES)
            self._take_block(routine, wanted, blocks, slots, index)
        with routine.when(routine.compare(arena_bytes, ">", 0)):
            self._take_block(routine, arena_bytes, blocks, slots, outputs)
        routine.give_back(0)
        return routine

    def _take_block(self, routine: Routine, wanted: Value, blocks: Value, slots: Value, index: Value) -> None:
        block = routine.call(self._pool.take, wanted)
        with routine.when(routine.compare(block, "==", 0)):
            with routine.loop(index) as earlier:
                routine.call(self._pool.give, routine.load(blocks, earlier))
            routine.give_back(1)
        routine.store(block, blocks, index)
        routine.store(routine.load(block, pool_routines.DATA), slots, index)

    def _run_steps(self) -> Routine:
        """run_steps(record, slots): one step after the other; 0, or 1 as soon as one reports a fault."""
        routine = self._library.routine("run_steps", 2)
        record, slots = routine.parameters
        words = routine.stack(routine.load(record, records.MOST_WORDS))
        steps = routine.load(record, records.STEPS)
        with routine.loop(routine.load(record, records.STEP_COUNT)) as index:
            step = routine.add(steps, routine.multiply(index, records.STEP_WORDS * 8))
            fill_words(routine, step, words, slots)
            self._set_threads(routine, step, words)
            routine.call_address(routine.load(step, records.STEP_ENTRY), words)
            with routine.when(routine.compare(routine.load(words, records.FAULT_WORD), "!=", 0)):
                routine.give_back(1)
        routine.give_back(0)
        return routine

    def _set_threads(self, routine: Routine, step: Value, words: Value) -> None:
        routine.store(1, words, records.THREADS_WORD)
        count = _thread_count_function()
        if count is None:
            return
        is_parallel = routine.compare(routine.load(step, records.STEP_IS_PARALLEL), "!=", 0)
        may_start = routine.compare(routine.load(self._has_forked), "==", 0)
        with routine.when(routine.both(is_parallel, may_start)):
            routine.store(routine.call(count), words, records.THREADS_WORD)

    # --- results ------------------------------------------------------------------------------------------------------

    def _wrap_results(self) -> Routine:
        """wrap_results(table, record, blocks): tensors on the blocks, in the form the convention asks for.

        If torch refuses one of them, all are given up and the result is 0.
        """
        collect = collect_results(self._library)
        routine = self._library.routine("wrap_results", 3)
        table, record, blocks = routine.parameters
        outputs = routine.load(table, OUTPUTS)
        prototypes = routine.load(record, records.PROTOTYPES)
        with routine.loop(outputs) as index:
            tensor = routine.call(self._pool.wrap, routine.load(prototypes, index), routine.load(blocks, index))
            with routine.when(routine.compare(tensor, "==", 0)):
                self._abandon(routine, blocks, outputs, index)
            routine.store(tensor, blocks, index)
        routine.give_back(routine.call(collect, table, blocks))
        return routine

    def _abandon(self, routine: Routine, things: Value, count: Value, failed: Value) -> None:
        """Give up results of which those before the failed one are tensors and those after it still blocks."""
        give_up_tensors(routine, things, failed)
        with routine.loop(count) as index, routine.when(routine.compare(index, ">", failed)):
            routine.call(self._pool.give, routine.load(things, index))
        routine.give_back(0)
