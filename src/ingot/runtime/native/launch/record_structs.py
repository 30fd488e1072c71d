"""The memory of records: what Python writes for each, and the launcher's native routines read."""

from __future__ import annotations

from enum import auto

from ingot.runtime.native.assembler.structs import Code, Field, Inline, Row, Struct, row

MOST_RECORDS = 32
"""Of a table."""


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
    """Calls that are inside without the GIL."""
    guards: Field
    """For each input."""
    prototypes: Field
    """The addresses of those of the results."""
    arena_bytes: Field
    conversion_count: Field
    conversions: Field
    step_count: Field
    steps: Field
    most_words: Field
    """That a step has."""
    is_long: Field
    """Whether steps run without the GIL."""
    statistics: Field
    launches: Field
    """Steps that statistics count."""
    bytes_moved: Field
    run: Field
    """The routine that answers instead, if kernels do not run on the CPU; else 0."""
    site: Field
    """What that routine has to know."""
    extent_count: Field
    extents: Field


class ExtentWords(Struct):
    """The memory of an input where inputs are overwritten."""

    slot: Field
    """Which input."""
    bytes: Field
    is_written: Field
    keys: Field
    """Of tensors that may be overwritten."""


class GuardWords(Struct):
    """What the guards of tensors and of numbers begin with. They lie in one array."""

    type: Field
    """Of a number what `NUMBER_TYPES` says, of a tensor the bits of its dtype and device."""


class TensorGuardWords(GuardWords):
    rank: Field
    axes: Field
    item_bytes: Field
    """0 if there are no elements."""
    mask: Field
    """The bits that say dtype and device."""
    keys: Field
    """Dispatch keys of ordinary tensors. Where a number's guard has 0, which those of no tensor are."""
    inference_keys: Field
    """Of those made in inference mode."""
    last_bits: Field
    """The bits of the first element's address that count."""
    remainder: Field
    """What they must be."""


class NumberGuardWords(GuardWords, like=TensorGuardWords):
    lowest: Field
    highest: Field


class AxisWords(Struct):
    size: Field
    stride: Field
    mask: Field
    """-1 if the stride counts, else 0."""


class StepWords(Struct):
    """What every step has, wherever its kernel runs."""

    word_count: Field
    template: Field
    """The words, with slots to be put in."""
    patch_count: Field
    patches: Field


class CpuStepWords(Struct):
    """A kernel on the CPU."""

    step: Inline[StepWords]
    entry: Field
    is_parallel: Field


class KernelWords(Struct):
    """What the words begin with that a kernel on the CPU is given."""

    threads: Field
    fault: Field


class PatchWords(Struct):
    word: Field
    slot: Field
    offset: Field


class ConversionWords(Struct):
    """A whole number that is wanted as a double."""

    source: Field
    """Its slot."""
    target: Field
    """That of the double."""


class StatisticsWords(Struct):
    executions: Field
    ticks: Field
    launches: Field
    bytes_moved: Field
