"""What graphs are made of besides operators."""

from __future__ import annotations

from ingot.ops import inference
from ingot.ops.attributes import (
    ConstantAttributes,
    InputAttributes,
    ItemAttributes,
    LibraryAttributes,
    SizeAttributes,
)
from ingot.ops.record import Kind, structure

structure("input", Kind.STRUCTURE, "An argument of the graph.", infer=inference.input_, attributes=InputAttributes)
structure("constant", Kind.STRUCTURE, "A number.", infer=inference.scalar, attributes=ConstantAttributes)
structure("dimension", Kind.STRUCTURE, "A size as a number.", infer=inference.scalar, attributes=SizeAttributes)
structure("item", Kind.STRUCTURE, "One of several results.", infer=inference.item, attributes=ItemAttributes)
structure("library", Kind.LIBRARY, "A call of torch.ops.", infer=inference.library, attributes=LibraryAttributes)
