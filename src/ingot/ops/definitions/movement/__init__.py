"""Operators that move elements without computing: views, padding, joining, and what is composed of these.

In: handles of a builder. Out: records in the op table, like those of the modules beside this package. What always
holds: elements keep their bits, and half types stay half in every dialect.
"""

from ingot.ops.definitions.movement import joins, rearrangements, shapes, views  # noqa: F401  (they add their operators)
