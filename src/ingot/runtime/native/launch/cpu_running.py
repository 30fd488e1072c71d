"""The launcher's native routines that run a record's steps on the CPU and make its results."""

from __future__ import annotations

from ingot.runtime.native.abi.object_layout import TensorLayout
from ingot.runtime.native.abi.prototypes import PrototypeWords
from ingot.runtime.native.assembler.addresses import torch_function
from ingot.runtime.native.assembler.routines import Foreign, Library, Routine, Value
from ingot.runtime.native.launch.record_structs import CpuStepWords, ExtentWords, FormWords, KernelWords, RecordWords
from ingot.runtime.native.launch.run_parts import (
    collect_results,
    convert_numbers,
    count_run,
    fill_words,
    give_up_tensors,
    run_guarded,
)
from ingot.runtime.native.memory.pool import Pool
from ingot.runtime.native.memory.pool_routines import BlockWords
from ingot.runtime.profiling.ranges import listening_function


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
        """run(form, record, items, slots, start). Also `one_thread`, for a forked child: the threads of OpenMP's team
        do not exist in it, and starting one would hang."""
        one_thread = self._library.routine("one_thread", 0)
        one_thread.store(1, self._has_forked)
        one_thread.give_back()
        return self._run(self._are_apart(), self._run_steps(), self._take_memory(), self._wrap_results())

    def _are_apart(self) -> Routine:
        """are_apart(record, items, slots): whether inputs that are overwritten share no memory with other inputs, and
        autograd can be told of the change."""
        routine = self._library.routine("are_apart", 3)
        record, items, slots = routine.parameters
        extents = routine.load(record, RecordWords.extents)
        with routine.loop(routine.load(record, RecordWords.extent_count)) as index:
            one = routine.item(extents, index, ExtentWords)
            is_written = routine.load(one, ExtentWords.is_written)
            slot = routine.load(one, ExtentWords.slot)
            first = routine.load(slots, slot)
            last = routine.add(first, routine.load(one, ExtentWords.bytes))
            with routine.when(routine.compare(is_written, "!=", 0)):
                tensor = routine.load(routine.load(items, slot), self._layout.implementation_word)
                keys = routine.load(tensor, self._layout.keys_word)
                with routine.when(routine.compare(keys, "!=", routine.load(one, ExtentWords.keys))):
                    routine.give_back(0)
            with routine.loop(index) as earlier:
                other = routine.item(extents, earlier, ExtentWords)
                begin = routine.load(slots, routine.load(other, ExtentWords.slot))
                end = routine.add(begin, routine.load(other, ExtentWords.bytes))
                counts = routine.united_bits(is_written, routine.load(other, ExtentWords.is_written))
                do_meet = routine.both(routine.compare(first, "<", end), routine.compare(begin, "<", last))
                with routine.when(routine.both(do_meet, routine.compare(counts, "!=", 0))):
                    routine.give_back(0)
        routine.give_back(1)
        return routine

    def _tell_written(self, routine: Routine, record: Value, items: Value) -> None:
        """Count a change of all inputs that were overwritten, for autograd."""
        bump = _version_function()
        extents = routine.load(record, RecordWords.extents)
        with routine.loop(0 if bump is None else routine.load(record, RecordWords.extent_count)) as index:
            one = routine.item(extents, index, ExtentWords)
            with routine.when(routine.compare(routine.load(one, ExtentWords.is_written), "!=", 0)):
                object_ = routine.load(items, routine.load(one, ExtentWords.slot))
                place = routine.part(object_, self._layout.implementation_word)
                assert bump is not None
                routine.call(bump, place)

    def _run(self, are_apart: Routine, run_steps: Routine, take_memory: Routine, wrap_results: Routine) -> Routine:
        """run(form, record, items, slots, start): the results of a record, or 0 if Python has to compute them, as it
        does while a profiler listens: there every kernel is a range of its own."""
        routine = self._library.routine("run", 5)
        form, record, items, slots, start = routine.parameters
        is_listening = listening_function()
        if is_listening is not None:
            with routine.when(routine.compare(routine.call(is_listening), "!=", 0)):
                routine.give_back(0)
        elsewhere = routine.load(record, RecordWords.run)
        with routine.when(routine.compare(elsewhere, "!=", 0)):
            routine.give_back(routine.call(elsewhere, *routine.parameters))
        with routine.when(routine.compare(routine.call(are_apart, record, items, slots), "==", 0)):
            routine.give_back(0)
        inputs, outputs = routine.load(form, FormWords.inputs), routine.load(form, FormWords.outputs)
        blocks = routine.stack(routine.add(outputs, 1))
        fresh_slots = routine.part(slots, inputs)
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
        result = routine.call(wrap_results, form, record, blocks)
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
        prototypes = routine.load(record, RecordWords.prototypes)
        arena_bytes = routine.load(record, RecordWords.arena_bytes)
        routine.store(0, blocks, outputs)
        with routine.loop(outputs) as index:
            wanted = routine.load(routine.load(prototypes, index), PrototypeWords.bytes)
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
        routine.store(routine.load(block, BlockWords.data), slots, index)

    def _run_steps(self) -> Routine:
        """run_steps(record, slots): one step after the other; 0, or 1 as soon as one reports a fault."""
        routine = self._library.routine("run_steps", 2)
        record, slots = routine.parameters
        words = routine.stack(routine.load(record, RecordWords.most_words))
        steps = routine.load(record, RecordWords.steps)
        with routine.loop(routine.load(record, RecordWords.step_count)) as index:
            step = routine.item(steps, index, CpuStepWords)
            fill_words(routine, routine.part(step, CpuStepWords.step), words, slots)
            self._set_threads(routine, step, words)
            routine.call_address(routine.load(step, CpuStepWords.entry), words)
            with routine.when(routine.compare(routine.load(words, KernelWords.fault), "!=", 0)):
                routine.give_back(1)
        routine.give_back(0)
        return routine

    def _set_threads(self, routine: Routine, step: Value, words: Value) -> None:
        routine.store(1, words, KernelWords.threads)
        count = _thread_count_function()
        if count is None:
            return
        is_parallel = routine.compare(routine.load(step, CpuStepWords.is_parallel), "!=", 0)
        may_start = routine.compare(routine.load(self._has_forked), "==", 0)
        with routine.when(routine.both(is_parallel, may_start)):
            routine.store(routine.call(count), words, KernelWords.threads)

    # --- results ------------------------------------------------------------------------------------------------------

    def _wrap_results(self) -> Routine:
        """wrap_results(form, record, blocks): tensors on the blocks, in the form the convention asks for.

        If torch refuses one of them, all are given up and the result is 0.
        """
        collect = collect_results(self._library)
        routine = self._library.routine("wrap_results", 3)
        form, record, blocks = routine.parameters
        outputs = routine.load(form, FormWords.outputs)
        prototypes = routine.load(record, RecordWords.prototypes)
        with routine.loop(outputs) as index:
            tensor = routine.call(self._pool.wrap, routine.load(prototypes, index), routine.load(blocks, index))
            with routine.when(routine.compare(tensor, "==", 0)):
                self._abandon(routine, blocks, outputs, index)
            routine.store(tensor, blocks, index)
        routine.give_back(routine.call(collect, form, blocks))
        return routine

    def _abandon(self, routine: Routine, things: Value, count: Value, failed: Value) -> None:
        """Give up all results after one has failed: those before it are tensors, those after it still blocks."""
        give_up_tensors(routine, things, failed)
        with routine.loop(count) as index, routine.when(routine.compare(index, ">", failed)):
            routine.call(self._pool.give, routine.load(things, index))
        routine.give_back(0)
