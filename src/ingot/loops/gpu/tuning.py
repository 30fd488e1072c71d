"""What decides which schedule a call on a GPU gets: thresholds and sizes that were measured, in one record.

In: nothing. Out: `CudaTuning`, which the backend holds and hands to `schedule_gpu_call`; figures in what follows are an
H200's. Always holds: schedules depend on a program, its sizes, strides and addresses, and on this record alone, not on
the device, so results are the same on all devices. Kernels depend on the schedule, and no further on this record.
"""

from __future__ import annotations

from dataclasses import dataclass

from ingot.base.errors import ConfigError
from ingot.loops.gpu.schedule import MOST_COUNTERS, MOST_SPLITS, MOST_THREADS
from ingot.loops.kernel_arguments import ACCESS


@dataclass(frozen=True, slots=True, kw_only=True)
class CudaTuning:
    access: int = ACCESS
    """Bytes that a thread takes at a time, where neighbouring elements lie so that it can."""
    most_threads: int = MOST_THREADS
    """Threads of a block at most."""
    enough_threads: int = 1 << 17
    """Threads that a launch should have, so that enough loads are under way on a device of any size."""

    # --- elements that belong to no rows ------------------------------------------------------------------------------

    grid_threads: int = 256
    """Threads of a block whose elements follow each other in memory."""
    line_threads: int = 128
    """Threads of a block that has positions along several axes to compute: a bias and gelu, or rotations by cosines and
    sines, take 1 to 2% less time than with 256 threads. Without such axes it is as much time, or a little more."""
    most_iterations: int = 4
    """How often a thread takes elements where it cannot have a whole access of them together. Where it can, once is
    enough: most cases of the comparison take 1% more time if twice, and making numbers of bytes 3% if four times."""
    few_bytes: int = 8
    """A thread whose unit reads fewer bytes than this takes another one, which shares the values computed once per
    line: images of bytes, with a mean and a deviation for each channel, take 1% more time as float32 if a thread has
    one unit, and 2% if four. As bfloat16, where a unit reads 8 bytes, it is as much time with one, and a third less to
    assemble; scales and shifts of channels take 0.5 to 3% less with one."""
    much_read: int = 48
    """A unit that reads as much is halved if only arithmetic is done with it: 8 bytes of each of three arrays are
    enough under way. a*b*c and AdamW take 0.4% less time, and AdamW half as much to assemble; with two arrays it is 1%
    more time, and Black-Scholes, with three and functions, takes 10% more."""
    many_functions: int = 16
    """A unit with this many functions is halved, too, and where there are enough units a thread takes
    `function_iterations` of them in a loop: Black-Scholes takes a third less time to assemble, and to run as much as
    float32 and 5% more as bfloat16. With two iterations, or with eight or more, it is another 1 to 7% more."""
    function_iterations: int = 4

    # --- squares that are transposed ----------------------------------------------------------------------------------

    side: int = 64
    """The side of a square, in elements."""
    short_side: int = 32
    """The side of squares of single elements and pairs, so that a thread has few of them."""
    shortest_axis: int = 16
    """The shortest axis that squares are used for: along shorter ones most of a square would be empty."""
    tile_vector_width: int = 4
    """Elements that a thread takes together, or more where they take no more than `tile_bytes`. With 8 x 8 of bfloat16
    in a thread, instead of 4 x 4, a + b.T takes 1% more time and twice as long to assemble; with 2 x 2 of float32,
    instead of 4 x 4, it takes 1% more time."""
    tile_bytes: int = 8
    tile_threads: int = 256

    # --- rows ---------------------------------------------------------------------------------------------------------

    kept_words: int = 40
    """32-bit registers of a thread that may hold a row between passes: with a thousand threads each has 64 in all."""
    few_elements: int = 16
    """What a thread has of a row: the fewer, the shorter its code; up to `most_elements` where a warp alone can hold
    the row, which saves the barrier, and where a block has no more threads."""
    most_elements: int = 32
    few_units: int = 2
    """How many units of a row of float32, or of narrower elements, a thread takes where only arithmetic is done and
    threads come out even: layer_norm of 8192 columns takes 1 to 2% less time than with four units, and a third less to
    assemble. With functions softmax takes 2% more, or a fifth where rows are few, and logsumexp a quarter; with one
    unit 30%, and with threads to spare 26%."""
    row_bytes: int = 128
    """What threads of a short row should at least read of it side by side, where the row has that much: softmax and
    layer_norm of 1,000,000 x 32 float32 take a sixth less time with eight threads to a row than with two, each of which
    has 16 elements."""
    row_threads: int = 128
    """Threads of a block whose thread groups are parts of warps. Where a thread has one unit, softmax of short rows
    takes a quarter more time with 64."""
    iterations_at_once: int = 4
    """Iterations of a long row that run side by side."""
    few_rows: int = 132
    """Rows are split only where there are at most this many: more rows keep all threads busy."""
    split_threads: int = 1024
    """Threads of a block that has part of a row."""
    splits: int = 264
    """How many blocks share split rows at most: an H200 has room for so many at once, where threads have at most 32
    registers. Fewer of them leave room, more wait for others to end, and each has something to combine at its end: a
    variance of all elements takes 2 to 4% more time with twice as many blocks. Smaller blocks that fill the device take
    as long, unless their threads come to have a few more registers; then some wait."""
    function_split_threads: int = 256
    """The same where functions are computed of elements, which take more registers."""
    function_splits: int = 1024
    split_bytes: int = 32
    """Bytes that a thread with part of a row loads before it waits."""
    split_doubles: int = 8
    """How many elements that may be if each becomes a float64, which takes more registers."""

    # --- strided rows -------------------------------------------------------------------------------------------------

    column_threads: int = 256
    """Threads of a block, if there are enough blocks."""
    column_vector_width: int = 4
    """Neighbouring rows of a thread: with eight, a sum of bfloat16 takes a fifth longer to compile, and split rows
    take a tenth to a fifth more time. With half as much to an access, whole rows take twice as many iterations
    together, so that as much is under way."""
    column_bytes: int = 128
    """What threads side by side should at least read of each of their rows' elements, or twice that where they do not
    begin at a multiple of it: a sum of 65536 x 1000 float32 takes a tenth less time than with as much."""
    most_accumulated: int = 8
    """How many values a thread may accumulate at a time for neighbouring rows; each takes registers."""
    enough_blocks: int = 256
    """Blocks of threads side by side that are enough: with more blocks, less is left over for the last ones."""
    few_iterations: int = 8
    """The fewest iterations of a thread that make threads below it worth combining with."""
    column_split_threads: int = 512
    """Threads of a block that has part of such rows. The last block waits for the values of all others: many threads
    below each other, with few parts each, wait together. Sums of 8192 x 512 bfloat16 take 6 or 7 us, and some 17 where
    eight threads have 32 parts each."""
    column_splits: int = 264
    """How many blocks share such rows at most."""
    worth_a_launch: int = 1 << 19
    """Bytes that a block may read before it takes longer than another launch."""

    # --- values that blocks combine -----------------------------------------------------------------------------------

    most_counters: int = MOST_COUNTERS
    """How many groups of blocks have a counter of their own."""
    most_counted: int = 1 << 14
    """Blocks whose values the last one may combine: with more of them a launch of its own, of more threads, is sooner
    done, and counting, of one block at a time, would hold them up."""
    total_threads: int = 1024
    """Threads of the one block that combines the values of all others, if that is a launch."""

    def __post_init__(self) -> None:
        """Refuse values that kernels and their launcher cannot handle."""
        if max(self.splits, self.function_splits, self.column_splits) > MOST_SPLITS:
            raise ConfigError(f"split reductions have at most {MOST_SPLITS} parts")
        if self.most_counters > MOST_COUNTERS:
            raise ConfigError(f"there are {MOST_COUNTERS} numbers to count blocks by")
