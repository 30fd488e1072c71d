"""Schedules of a GPU for small tensors that only large ones get by themselves."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from random import Random
from unittest.mock import patch

from ingot.loops.gpu import lines, scheduling, sharing, tiling

MODULES = (lines, scheduling, sharing, tiling)
CHOICES = {
    "ACCESS": (8, 16, 16),
    "THREADS": (32, 128, 256),
    "LINE_THREADS": (64, 128),
    "FEW_BYTES": (0, 32),
    "MANY_FUNCTIONS": (0, 1, 16),
    "TURNS": (2, 3, 4),
    "MOST_THREADS": (32, 32, 64, 1024),
    "KEPT_WORDS": (1, 8, 40),
    "FEW_ELEMENTS": (8, 16),
    "MOST_ELEMENTS": (1, 1, 8, 32),
    "TURNS_AT_ONCE": (1, 2, 4),
    "SHORTEST_AXIS": (2, 3, 16),
    "ENOUGH_THREADS": (64, 1 << 17),
    "ENOUGH_BLOCKS": (1, 4, 256),
    "FEW_TURNS": (1, 2, 8),
    "FEW_ROWS": (2, 264),
    "PARTS": (2, 5, 264),
    "PART_THREADS": (32, 64, 1024),
    "FUNCTION_THREADS": (32, 256),
    "PART_BYTES": (1, 32, 64),
    "COLUMN_PARTS": (2, 5, 264),
    "COLUMN_PART_THREADS": (256, 512),
    "WORTH_A_LAUNCH": (0, 64, 1 << 18),
}
"""By constant, values to choose from: small teams have long rows, and few registers keep nothing of them."""


@contextmanager
def small_gpu_schedules(seed: int) -> Iterator[None]:
    """Other numbers for the choice of schedules; one seed gives one choice."""
    random = Random(seed)
    with ExitStack() as patches:
        for name, values in CHOICES.items():
            found = [module for module in MODULES if name in vars(module)]
            assert found, f"there is no {name} any more"
            value = random.choice(values)
            for module in found:
                patches.enter_context(patch.object(module, name, value))
        yield
