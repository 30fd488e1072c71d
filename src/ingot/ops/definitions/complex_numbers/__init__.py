"""Complex numbers: operators that only they need, and what the operators of real numbers are of complex ones.

In: the table of operators on real numbers. Out: the same table, with the meaning that operators have for complex
numbers in their records. What always holds: arithmetic is done on real and imaginary parts by the operators of real
numbers, so that neither passes nor code generation know complex arithmetic; what is not listed here takes no complex
number.
"""

from ingot.ops.definitions.complex_numbers import (  # noqa: F401  (each module fills in the table when imported)
    arithmetic,
    elementary_functions,
    moving,
    parts,
)
