"""Schedules of a GPU for small tensors that only large ones get by themselves."""

from __future__ import annotations

from random import Random

from ingot.loops.gpu.tuning import CudaTuning

CHOICES = {
    "access": (8, 16, 16),
    "grid_threads": (32, 128, 256),
    "line_threads": (64, 128),
    "few_bytes": (0, 32),
    "many_functions": (0, 1, 16),
    "function_iterations": (2, 3, 4),
    "most_threads": (32, 32, 64, 1024),
    "kept_words": (1, 8, 40),
    "few_elements": (8, 16),
    "most_elements": (1, 1, 8, 32),
    "row_bytes": (0, 128, 512),
    "column_bytes": (16, 128),
    "iterations_at_once": (1, 2, 4),
    "shortest_axis": (2, 3, 16),
    "enough_threads": (64, 1 << 17),
    "enough_blocks": (1, 4, 256),
    "few_iterations": (1, 2, 8),
    "few_rows": (2, 264),
    "splits": (2, 5, 264),
    "split_threads": (32, 64, 1024),
    "function_split_threads": (32, 256),
    "split_bytes": (1, 32, 64),
    "column_splits": (2, 5, 264),
    "column_split_threads": (256, 512),
    "worth_a_launch": (0, 64, 1 << 18),
}
"""By field, values to choose from: small thread groups have long rows, and few registers keep nothing of them."""


def small_gpu_tuning(seed: int) -> CudaTuning:
    """Other numbers for the choice of schedules; one seed gives one choice."""
    random = Random(seed)
    return CudaTuning(**{name: random.choice(values) for name, values in CHOICES.items()})
