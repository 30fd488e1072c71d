"""How elements without rows are shared out."""

from __future__ import annotations

from itertools import product

import pytest

from ingot.loops.gpu import lines
from ingot.loops.gpu.lines import MOST_LINES, Share, Unit
from ingot.loops.gpu.tuning import CudaTuning

NUMBERS = Unit(widest=16, read=16, has_line_values=False)
BYTES_OF_CHANNELS = Unit(widest=16, read=4, has_line_values=True)
SINGLE = Unit(widest=4, read=4, has_line_values=False)
TUNING = CudaTuning()
MANY = 8 * TUNING.enough_threads


def share_of_elements(line: int, count: int, unit: Unit) -> Share:
    return lines.share_of_elements(line, count, unit, TUNING)


def test_elements_one_after_the_other_are_taken_once():
    for unit in (NUMBERS, BYTES_OF_CHANNELS):
        assert share_of_elements(MANY, 1, unit) == Share(TUNING.grid_threads, 1, has_lines=False)


def test_what_is_made_of_the_values_of_a_line_serves_two_units():
    assert share_of_elements(1 << 16, 768, BYTES_OF_CHANNELS) == Share(TUNING.line_threads, 2, has_lines=True)
    assert share_of_elements(1 << 16, 768, NUMBERS) == Share(TUNING.line_threads, 1, has_lines=True)


def test_units_that_read_more_than_a_few_bytes_are_left_alone():
    for read in (8, 16, 32):
        assert share_of_elements(1 << 16, 768, Unit(widest=16, read=read, has_line_values=True)).iterations == 1


def test_where_units_are_small_there_are_more_of_them():
    assert share_of_elements(MANY, 1, SINGLE).iterations == 4
    assert share_of_elements(MANY, 1, Unit(8, 8, False)).iterations == 2
    assert share_of_elements(2048, 2048, SINGLE) == Share(TUNING.line_threads, 4, has_lines=True)


@pytest.mark.parametrize("unit", [SINGLE, BYTES_OF_CHANNELS])
def test_a_few_units_are_spread_over_as_many_threads(unit: Unit):
    assert share_of_elements(1024, 32, unit).iterations == 1


def test_short_or_very_many_lines_share_blocks():
    for line, count in ((8, 1 << 18), (70, 1 << 14), (1024, MOST_LINES + 1)):
        assert share_of_elements(line, count, NUMBERS) == Share(TUNING.line_threads, 1, has_lines=False)


def test_blocks_of_a_line_have_little_to_spare():
    for line, unit in product(range(32, 5000, 7), (NUMBERS, BYTES_OF_CHANNELS, SINGLE)):
        share = share_of_elements(line, 1 << 14, unit)
        together = share.threads * share.iterations
        if share.has_lines:
            assert (-(-line // together) * together - line) * 8 <= line
