"""How rows are shared out where they lie across memory, or where there are too few of them for all threads.

In: how many rows there are and how long they are, in units of what a thread takes together. Out: threads of a block
across rows and down them, and parts that rows go in. A launch should have at least ENOUGH_THREADS, so that there is
always enough under way from memory, however large the device. Nothing depends on the device itself, so results are the
same on all of them.
"""

from __future__ import annotations

ENOUGH_THREADS = 1 << 17
ENOUGH_BLOCKS = 256
"""Of threads that go side by side; with more of them less is left over for the last ones."""
MOST_THREADS = 1024
COLUMN_THREADS = 256
"""Of a block whose rows lie across memory, if they are enough."""
LINE = 32
"""Threads side by side that read as much at once as memory likes best, if there are that many."""
FEW_TURNS = 8
"""How often a thread should at least take elements before others below it are worth combining with."""
PART_THREADS, PARTS = 1024, 264
"""Of a block that has part of a row, and how many blocks share rows in parts at most: an H200 has room for so many at
once, where threads have no more than 32 registers. Fewer of them leave room, more wait for others to end, and each has
something to combine at its end: a variance of all elements takes 2 to 4% more time with twice as many blocks. Smaller
blocks that fill the device take as long, unless their threads come to have a few more registers; then some wait."""
FEW_ROWS = 132
"""With more rows there is enough to do without parts of them."""
FUNCTION_THREADS, FUNCTION_PARTS = 256, 1024
"""The same where functions are computed of elements, which take more registers."""
PART_BYTES, PART_DOUBLES = 32, 8
"""What a thread that has part of a row asks for before it waits, and how many elements that may be if each becomes a
float64: more of them take more registers."""
COLUMN_PART_THREADS, COLUMN_PARTS = 512, 264
"""Of a block that has part of rows that lie across memory, and how many blocks share them at most. The last one to be
done waits for what all others have left: many threads below each other, with few parts each, wait together. Sums of
8192 x 512 bfloat16 take 6 or 7 us, and some 17 where eight threads have 32 parts each."""
MOST_PARTS = max(PARTS, FUNCTION_PARTS, COLUMN_PARTS)
WORTH_A_LAUNCH = 1 << 19
"""Bytes that a block may read before it takes longer than another launch."""
MOST_COUNTERS = 1024
"""Groups of blocks that are counted each by a number of its own."""
MOST_COUNTED = 1 << 14
"""Blocks whose values the last one may combine: with more of them a launch of its own, of more threads, is sooner done,
and counting, of one block at a time, would hold them up."""
_SHARED_BYTES = 48 << 10
_WIDEST = 8
"""Bytes of what is gathered for a row."""


def power_of_two(count: int) -> int:
    """The next one, upwards."""
    return 1 << (count - 1).bit_length()


def most_down(across: int, lanes: int) -> int:
    """How many threads there may be below each other, so that shared memory has room for what they have gathered."""
    threads = MOST_THREADS
    while threads // max(across, LINE) * across * lanes * _WIDEST > _SHARED_BYTES:
        threads //= 2
    return threads // across


def column_block(rows: int, length: int, narrowest: int, lanes: int) -> tuple[int, int]:
    """Threads of a block across (groups of) rows, at least `narrowest` if there are that many, and down them."""
    down = 1
    while down < COLUMN_THREADS // LINE and length > down * FEW_TURNS:
        down *= 2
    across = COLUMN_THREADS // down
    while across > min(narrowest, power_of_two(rows)) and -(-rows // across) < ENOUGH_BLOCKS:
        across //= 2
        if length > down * FEW_TURNS:
            down *= 2
    blocks, limit = -(-rows // across), most_down(across, lanes)
    while down < limit and blocks * across * down < ENOUGH_THREADS and length > down * FEW_TURNS:
        down *= 2
    return across, max(down, LINE // across)


def columns_go_in_parts(rows: int, length: int, across: int, down: int, bytes_of_a_unit: int) -> bool:
    """Whether there are too few blocks, each of which has much to read."""
    threads = -(-rows // across) * across * down
    return threads * 16 < ENOUGH_THREADS * 15 and length * across * bytes_of_a_unit > WORTH_A_LAUNCH


def turns_of_part(read: int, lanes: int, most: int, are_doubles: bool) -> int:
    """How many units a thread that has part of a row takes before it waits, of so many bytes and lanes."""
    turns = 1
    while turns < most and turns * read < PART_BYTES and not (are_doubles and 2 * turns * lanes > PART_DOUBLES):
        turns *= 2
    return turns


def part_of(blocks: int, length: int, turn: int, parts: int) -> int:
    """How much of a row goes together, so that so many blocks for whole rows become about `parts` of them, and no more
    unless they were: a multiple of a turn."""
    count = max(min(parts // blocks, length // turn), 1)
    return -(-length // (count * turn)) * turn
