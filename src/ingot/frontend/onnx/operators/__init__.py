"""The records of ONNX's operators, by subject; importing this package fills the table.

In: a node with its inputs, tensors or known arrays. Out: what the node gives. What always holds: a form of an
operator that its record does not know is an error, never another form's result.
"""

from ingot.frontend.onnx.operators import (  # noqa: F401
    arithmetic,
    control,
    indexing,
    normalizations,
    pooling,
    products,
    rearrangements,
    recurrent,
    reductions,
    resizing,
    shapes,
)
