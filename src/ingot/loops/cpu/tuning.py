"""What decides which schedule a call on the CPU gets: thresholds and sizes that were measured, in one record.

In: nothing. Out: `CpuTuning`, which the backend holds and hands to `schedule_call`. Always holds: schedules depend on a
program, its sizes, strides and addresses, and on this record alone, not on the number of threads: results must not.
Kernels depend on the schedule, and no further on this record.
"""

from __future__ import annotations

from dataclasses import dataclass

from ingot.loops.cpu.schedule import SIDE_BY_SIDE


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuTuning:
    parallel_elements: int = 32_768
    """Below this many elements starting threads costs more than they save; torch splits at the same size."""
    streaming_bytes: int = 16 << 20
    """Results above this size do not fit the caches anyway and are written past them."""
    long_row: int = 65_536
    """Rows of this many elements are worth splitting where there are fewer than `few_rows`."""
    few_rows: int = 8
    grouped_row: int = 1024
    """Up to so many elements the last loop of the flat form is too short to be handed to threads by itself."""
    short_row: int = 15
    """Rows of so many elements are held in as many registers."""
    unrolled_operations: int = 256
    """How much work fully unrolled rows may be to compile: operations of all their elements, functions counted
    `function_operations` times."""
    function_operations: int = 12
    kept_bytes: int = 192 << 10
    """How much of a row may be kept between passes: what a core's second cache holds besides the row itself."""
    cached_row_bytes: int = 512 << 10
    """Longer rows are read from memory again in every pass."""
    short_row_bytes: int = 1 << 10
    """Rows this long, of tensors of `prefetched_bytes`, are prefetched; smaller ones are in a cache already."""
    prefetched_bytes: int = 4 << 20
    flat_block: int = 16_384
    """Elements of a block of each form; squares have `tile` a side."""
    column_block: int = 1_024
    split_block: int = 16_384
    tile: int = 128
    block_multiple: int = 64
    """Elements that blocks are rounded up to multiples of."""
    most_partials: int = 1_024
    """How many partial values a parallel loop may leave to be combined."""
    fewest_column_blocks: int = 8
    """How many blocks strided rows are split into, if blocks are not made too small by that."""
    side_by_side: int = SIDE_BY_SIDE
    """How many strided rows are added up together; divides 64."""
    vector_bytes: int | None = None
    """Bytes of a vector of the widest type; None leaves that to the rule for each loop's instructions."""

    @property
    def has_whole_blocks(self) -> bool:
        """Whether blocks begin where vectors may be streamed to, if rows do."""
        return all(size % 64 == 0 for size in (self.flat_block, self.split_block, self.block_multiple))
