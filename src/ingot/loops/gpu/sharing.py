"""How rows are shared out where they are strided, or where there are too few of them for all threads.

In: how many rows there are and how long they are, in units of what a thread takes together. Out: threads of a block
across rows and down them, and the parts of split rows. Figures are those of `tuning`.
"""

from __future__ import annotations

from ingot.loops.gpu.schedule import SHARED_BYTES
from ingot.loops.gpu.tuning import CudaTuning

_SIDE_BY_SIDE = 32
"""How many threads read one whole transaction of memory together."""
_WIDEST = 8
"""Bytes of what is accumulated for a row."""


def power_of_two(count: int) -> int:
    """The next power of two, upwards."""
    return 1 << (count - 1).bit_length()


def most_down(across: int, vector_width: int, tuning: CudaTuning) -> int:
    """How many threads there may be below each other, so that shared memory has room for what they have accumulated."""
    threads = tuning.most_threads
    while threads // max(across, _SIDE_BY_SIDE) * across * vector_width * _WIDEST > SHARED_BYTES:
        threads //= 2
    return threads // across


def column_block(rows: int, length: int, narrowest: int, vector_width: int, tuning: CudaTuning) -> tuple[int, int]:
    """Threads of a block across (groups of) rows, at least `narrowest` if there are that many, and down them."""
    down = 1
    while down < tuning.column_threads // _SIDE_BY_SIDE and length > down * tuning.few_iterations:
        down *= 2
    across = tuning.column_threads // down
    while across > min(narrowest, power_of_two(rows)) and -(-rows // across) < tuning.enough_blocks:
        across //= 2
        if length > down * tuning.few_iterations:
            down *= 2
    blocks, limit = -(-rows // across), most_down(across, vector_width, tuning)
    while down < limit and blocks * across * down < tuning.enough_threads and length > down * tuning.few_iterations:
        down *= 2
    return across, max(down, _SIDE_BY_SIDE // across)


def splits_columns(rows: int, length: int, across: int, down: int, bytes_of_a_unit: int, tuning: CudaTuning) -> bool:
    """Whether there are too few blocks, each of which has much to read."""
    threads = -(-rows // across) * across * down
    return threads * 16 < tuning.enough_threads * 15 and length * across * bytes_of_a_unit > tuning.worth_a_launch


def iterations_of_split(read: int, vector_width: int, are_doubles: bool, tuning: CudaTuning) -> int:
    """How many units a thread that has part of a row takes before it waits, of so many bytes and elements."""
    iterations = 1
    while (
        iterations < tuning.iterations_at_once
        and iterations * read < tuning.split_bytes
        and not (are_doubles and 2 * iterations * vector_width > tuning.split_doubles)
    ):
        iterations *= 2
    return iterations


def split_length_of(blocks: int, length: int, multiple: int, splits: int) -> int:
    """How many elements of a row make a part, a multiple of what an iteration takes, so that the blocks for whole rows
    become about `splits` blocks in all."""
    count = max(min(splits // blocks, length // multiple), 1)
    return -(-length // (count * multiple)) * multiple
