"""The memory of records: what Python writes for each, and the launcher's native routines read."""

from __future__ import annotations

from enum import auto

from ingot.runtime.native.assembler.structs import Code, Field, Inline, Row, Struct, row

MOST_RECORDS = 32
"""How many records a table holds."""


class Convention(Code):
    """How inputs and results are passed."""

    LIST = auto()
    """function([a, b]) or function((a, b)) returns a list."""
    POSITIONAL = auto()
    """function(a, b) returns one tensor, or a tuple where there are several."""
    TUPLE = auto()
    """function(a, b) returns a tuple."""
    NOTHING = auto()
    """function(a, b) returns None."""


class FormWords(Struct):
    """What all records of a function have in common."""

    inputs: Field
    outputs: Field
    convention: Field


class TableWords(Struct):
    """Records, the last used first."""

    count: Field
    records: Row = row(MOST_RECORDS)


class CallTableWords(TableWords):
    """The table of a compiled fusion."""

    form: Inline[FormWords]


class RecordWords(Struct):
    in_flight: Field
    """How many calls are running the record without the GIL."""
    guards: Field
    """The address of an array of guards, one for each input."""
    prototypes: Field
    """The address of an array with the address of a prototype for each result."""
    arena_bytes: Field
    conversion_count: Field
    conversions: Field
    step_count: Field
    steps: Field
    most_words: Field
    """The largest number of words that a step has."""
    is_long: Field
    """Whether steps run without the GIL."""
    statistics: Field
    launches: Field
    """How many steps statistics count as launches."""
    bytes_moved: Field
    run: Field
    """The routine that runs the record where its kernels do not run on the CPU; else 0."""
    site: Field
    """What that routine is given besides the record, such as the device."""
    extent_count: Field
    extents: Field


class ExtentWords(Struct):
    """The memory of an input where inputs are overwritten."""

    slot: Field
    """The slot of the input."""
    bytes: Field
    is_written: Field
    keys: Field
    """The dispatch keys that a tensor must have to be overwritten."""


class GuardWords(Struct):
    """The beginning of every guard. Guards of tensors and of numbers lie in one array."""

    type: Field
    """For a number its code in `NUMBER_TYPES`, for a tensor the bits of its dtype and device."""


class TensorGuardWords(GuardWords):
    rank: Field
    axes: Field
    item_bytes: Field
    """0 if there are no elements."""
    mask: Field
    """Which bits of the tensor's word hold dtype and device."""
    keys: Field
    """Dispatch keys of ordinary tensors, which are never 0. A number's guard has 0 there."""
    inference_keys: Field
    """Dispatch keys of ordinary tensors made in inference mode."""
    last_bits: Field
    """Which bits of the first element's address are compared."""
    remainder: Field
    """What these bits must be."""


class NumberGuardWords(GuardWords, like=TensorGuardWords):
    lowest: Field
    highest: Field


class AxisWords(Struct):
    size: Field
    stride: Field
    mask: Field
    """-1 if the stride is compared, else 0."""


class StepWords(Struct):
    """What every step has, wherever its kernel runs."""

    word_count: Field
    template: Field
    """The address of the words as they are before patches put slots into them."""
    patch_count: Field
    patches: Field


class CpuStepWords(Struct):
    """A kernel on the CPU."""

    step: Inline[StepWords]
    entry: Field
    is_parallel: Field


class KernelWords(Struct):
    """The first words that a kernel on the CPU is given."""

    threads: Field
    fault: Field


class PatchWords(Struct):
    word: Field
    slot: Field
    offset: Field


class ConversionWords(Struct):
    """An int or bool that a kernel takes as a double."""

    source: Field
    """The slot of the int or bool."""
    target: Field
    """The slot of the double."""


class StatisticsWords(Struct):
    executions: Field
    ticks: Field
    launches: Field
    bytes_moved: Field
