"""The operators themselves, one record each, in modules by subject.

In: the decorators and tables of `ingot.ops`. Out: importing this package adds every operator to the op table. What
always holds: a record that lacks something is refused when it is made, so a table that was filled is complete.
"""

from ingot.ops.definitions import (  # noqa: F401  (each module adds its operators when imported)
    activations,
    derivatives,
    elementwise,
    factories,
    fused_approximations,
    indexing,
    libraries,
    losses,
    movement,
    normalizations,
    pointwise,
    random_numbers,
    reductions,
    scans,
    special_functions,
    statistics,
    structural_nodes,
)

# isort: split
from ingot.ops.definitions import complex_numbers  # noqa: F401  (after the operators whose records it fills in)
