"""Graph nodes: immutable, and one object per expression.

A node is known by its digest, a hash over operator, attributes and operands. `make` returns the existing node where one
with the same digest is alive anywhere in the process, so equal expressions are one object, common subexpressions cannot
arise, and comparing nodes is comparing identities. Digests depend on text alone: they are the same in every process,
for every PYTHONHASHSEED.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from weakref import WeakValueDictionary

from ingot.base.forks import new_lock
from ingot.base.numbers import Number
from ingot.base.sizes import Size
from ingot.base.types import ValueType
from ingot.ops import Kind, Op
from ingot.ops.attributes import NONE, Attributes, ConstantAttributes


@dataclass(frozen=True, slots=True)
class Assumption:
    """Two sizes that must turn out equal when the graph runs, and the operator that needs it."""

    left: Size
    right: Size
    operator: str

    def __str__(self) -> str:
        return f"{self.left} == {self.right} in {self.operator}"


class Node:
    """One operation with its operands. Make it with `make`; nothing about it ever changes."""

    __slots__ = ("__weakref__", "assumptions", "attributes", "digest", "op", "operands", "type")

    op: Op
    operands: tuple[Node, ...]
    attributes: Attributes
    type: ValueType
    assumptions: tuple[Assumption, ...]
    """What its type rule had to take for granted."""
    digest: bytes

    @property
    def has_effect(self) -> bool:
        """Whether every execution counts, so that it may be neither removed nor merged nor reordered."""
        return getattr(self.attributes, "ordinal", None) is not None

    @property
    def constant(self) -> Number | None:
        """The value of a constant node, None for all others."""
        return self.attributes.value if isinstance(self.attributes, ConstantAttributes) else None

    def __repr__(self) -> str:
        return f"<{self.op.name}: {self.type}>"


_alive: WeakValueDictionary[bytes, Node] = WeakValueDictionary()
_lock = new_lock()


def make(op: Op, operands: Sequence[Node] = (), attributes: Attributes = NONE) -> Node:
    """The node for this expression: the existing one, or a new one whose type follows from its operands."""
    digest = _digest(op, operands, attributes)
    found = _alive.get(digest)
    if found is not None:
        return found
    assumptions: list[Assumption] = []

    def assume(left: Size, right: Size) -> None:
        left, right = sorted((left, right), key=lambda size: (isinstance(size, int), str(size)))
        assumptions.append(Assumption(left, right, op.name))

    node = Node()
    node.op, node.operands, node.attributes, node.digest = op, tuple(operands), attributes, digest
    assert op.infer is not None, f"{op.name} is a composite and cannot be a node"
    node.type = op.infer([operand.type for operand in operands], attributes, assume)
    node.assumptions = tuple(dict.fromkeys(assumptions)) if assumptions else ()
    with _lock:
        # Another thread may have made the same node meanwhile: the first one wins.
        return _alive.setdefault(digest, node)


def _digest(op: Op, operands: Sequence[Node], attributes: Attributes) -> bytes:
    parts = [f"{op.name}({attributes.text})".encode(), *[operand.digest for operand in operands]]
    return blake2b(b"".join(parts), digest_size=16).digest()


def is_structure(node: Node, name: str) -> bool:
    """Whether a node is an input, a constant, a dimension or an item."""
    return node.op.kind is Kind.STRUCTURE and node.op.name == name
