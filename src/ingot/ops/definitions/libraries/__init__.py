"""Operators that PyTorch's libraries do best: their nodes are library calls, or they are composed around such.

In: handles of a builder. Out: records in the op table, like those of the modules beside this package. What always
holds: a library call is functional, and its results are recorded with their types.
"""

from ingot.ops.definitions.libraries import attention, products, sorting  # noqa: F401  (they add their operators)
