"""The record that followed the last one before is compared first."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
import torch

from tests.frontend.jit.follow.following_checks import followed


@pytest.fixture(autouse=True)
def _no_gradients() -> Iterator[None]:
    with torch.no_grad():
        yield


def doubled(x: torch.Tensor) -> torch.Tensor:
    return torch.relu(x) * 2


def table_of(jitted: Any) -> Any:
    """The records of the only segment."""
    (segment,) = jitted._compiled.follower.summary().segments
    return segment.recorded._dispatch_owner[1]


def first(table: Any) -> int:
    return table._words.records[0]


def call(jitted: Any, size: int) -> None:
    x = torch.randn(size, 3)
    torch.testing.assert_close(jitted(x), doubled(x))


def test_sizes_that_come_in_turn_are_expected_in_turn():
    jitted, used = followed(doubled), []
    for turn in range(8):
        for size in range(3, 9):
            call(jitted, size)
            if turn == 7:
                used.append(first(table_of(jitted)))
    table = table_of(jitted)
    assert len(set(used)) == 6
    for record, successor in pairwise(used):
        assert table._records[record]._words.successor == successor


def test_a_record_that_is_gone_is_not_expected():
    jitted = followed(doubled)
    for _ in range(8):
        for size in range(3, 9):
            call(jitted, size)
    table = table_of(jitted)
    expected = table._records[first(table)]._words.successor
    count = len(table)
    table.remove(lambda record: record.address == expected)
    assert len(table) == count - 1
    for size in (3, 8, 4, 3, 3, 8, 7):
        call(jitted, size)


def test_sizes_in_any_order_find_their_records():
    jitted = followed(doubled)
    sizes = torch.randint(3, 12, (200,), generator=torch.Generator().manual_seed(3)).tolist()
    for size in sizes:
        call(jitted, size)
    answered = table_of(jitted)
    assert len(set(answered._words.records[: len(answered)])) == len(answered)
