"""The op table. Importing this package fills it; `table()` and `lookup(name)` read it.

In: records, one for each operator: signature, type rule, meaning in PyTorch, how an element is computed, test samples.
Out: the table that builders, passes, code generation and tests read. What always holds: an incomplete record is an
error when ingot is imported.
"""

from ingot.ops import definitions  # noqa: F401  (its modules add their operators when imported)
from ingot.ops.record import Kind, Op, lookup, table

__all__ = ["Kind", "Op", "lookup", "table"]
