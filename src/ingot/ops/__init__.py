"""The op table. Importing this package fills it; `table()` and `lookup(name)` read it."""

from ingot.ops import (  # noqa: F401  (each module adds its operators when imported)
    elementwise,
    factories,
    indexing,
    library,
    losses,
    normalizations,
    pointwise,
    reductions,
    shapes,
    shorter_forms,
)
from ingot.ops.record import Kind, Op, lookup, table

__all__ = ["Kind", "Op", "lookup", "table"]
