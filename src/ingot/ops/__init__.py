"""The op table. Importing this package fills it; `table()` and `lookup(name)` read it."""

from ingot.ops import (  # noqa: F401  (each module adds its operators when imported)
    activations,
    derivatives,
    elementwise,
    factories,
    indexing,
    library,
    losses,
    normalizations,
    pointwise,
    rearrangements,
    reductions,
    shapes,
    shorter_forms,
    special_functions,
    statistics,
)
from ingot.ops.record import Kind, Op, lookup, table

__all__ = ["Kind", "Op", "lookup", "table"]
