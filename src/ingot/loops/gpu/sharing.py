"""How rows are shared out where they lie across memory, or where there are too few of them for all threads.

In: how many rows there are and how long they are, in units of what a thread takes together. Out: threads of a block
across rows and down them, and parts that rows go in. Figures are those of `tuning`.
"""

from __future__ import annotations

from ingot.loops.gpu.schedule import SHARED_BYTES
from ingot.loops.gpu.tuning import CudaTuning

_SIDE_BY_SIDE = 32
"""Threads that read as much at once as memory likes best, if there are that many."""
_WIDEST = 8
"""Bytes of what is gathered for a row."""


def power_of_two(count: int) -> int:
    """The next one, upwards."""
    return 1 << (count - 1).bit_length()


def most_down(across: int, lanes: int, tuning: CudaTuning) -> int:
    """How many threads there may be below each other, so that shared memory has room for what they have gathered."""
    threads = tuning.most_threads
    while threads // max(across, _SIDE_BY_SIDE) * across * lanes * _WIDEST > SHARED_BYTES:
        threads //= 2
    return threads // across


def column_block(rows: int, length: int, narrowest: int, lanes: int, tuning: CudaTuning) -> tuple[int, int]:
    """Threads of a block across (groups of) rows, at least `narrowest` if there are that many, and down them."""
    down = 1
    while down < tuning.column_threads // _SIDE_BY_SIDE and length > down * tuning.few_turns:
        down *= 2
    across = tuning.column_threads // down
    while across > min(narrowest, power_of_two(rows)) and -(-rows // across) < tuning.enough_blocks:
        across //= 2
        if length > down * tuning.few_turns:
            down *= 2
    blocks, limit = -(-rows // across), most_down(across, lanes, tuning)
    while down < limit and blocks * across * down < tuning.enough_threads and length > down * tuning.few_turns:
        down *= 2
    return across, max(down, _SIDE_BY_SIDE // across)


def columns_go_in_parts(
    rows: int, length: int, across: int, down: int, bytes_of_a_unit: int, tuning: CudaTuning
) -> bool:
    """Whether there are too few blocks, each of which has much to read."""
    threads = -(-rows // across) * across * down
    return threads * 16 < tuning.enough_threads * 15 and length * across * bytes_of_a_unit > tuning.worth_a_launch


def turns_of_part(read: int, lanes: int, are_doubles: bool, tuning: CudaTuning) -> int:
    """How many units a thread that has part of a row takes before it waits, of so many bytes and lanes."""
    turns = 1
    while (
        turns < tuning.turns_at_once
        and turns * read < tuning.part_bytes
        and not (are_doubles and 2 * turns * lanes > tuning.part_doubles)
    ):
        turns *= 2
    return turns


def part_of(blocks: int, length: int, turn: int, parts: int) -> int:
    """How much of a row goes together, so that so many blocks for whole rows become about `parts` of them, and no more
    unless they were: a multiple of a turn."""
    count = max(min(parts // blocks, length // turn), 1)
    return -(-length // (count * turn)) * turn
