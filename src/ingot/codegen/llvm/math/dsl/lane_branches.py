"""Control flow in vector functions: what only some lanes need is done only where one of them needs it.

A branch looks at all lanes together, so all lanes of a vector go the same way. No lane's result may depend on which way
that was: a lane that did not need the way taken has to come out as it would on the other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ingot.codegen.llvm import ir
from ingot.codegen.llvm.math.dsl.vocabulary import Lanes, Mask

Values = tuple[Any, ...]
"""Numbers and Bits, a fixed number of them."""


def _any(mask: Mask) -> Any:
    """One truth value: whether it holds in any lane."""
    if mask.count is None:
        return mask.value
    whole = ir.IntType(mask.count)
    builder: Any = mask.builder
    return builder.icmp_unsigned("!=", builder.bitcast(mask.value, whole), whole(0))


def _placeholders(builder: Any, like: Values) -> Values:
    """Values that depend on where control came from."""
    return tuple(type(lanes)(builder, builder.phi(lanes.value.type)) for lanes in like)


def _came_from(placeholders: Values, values: Values, block: ir.BasicBlock) -> None:
    for placeholder, lanes in zip(placeholders, values, strict=True):
        placeholder.value.add_incoming(lanes.value, block)


def repeated(going: Callable[..., Mask], step: Callable[..., Values], *values: Lanes) -> Values:
    """The values after as many steps as it takes until no lane is going."""
    builder: Any = values[0].builder
    before = builder.block
    head, body, after = (builder.append_block() for _ in range(3))
    builder.branch(head)
    builder.position_at_end(head)
    current = _placeholders(builder, values)
    _came_from(current, values, before)
    builder.cbranch(_any(going(*current)), body, after)
    builder.position_at_end(body)
    _came_from(current, step(*current), builder.block)
    builder.branch(head)
    builder.position_at_end(after)
    return current


def replaced_where_any(mask: Mask, replacement: Callable[[], Values], *values: Lanes) -> Values:
    """The values, or what is to replace them where the mask holds in any lane."""
    builder: Any = mask.builder
    before = builder.block
    rare, after = (builder.append_block() for _ in range(2))
    builder.cbranch(_any(mask), rare, after)
    builder.position_at_end(rare)
    replacements = replacement()
    end_of_rare = builder.block
    builder.branch(after)
    builder.position_at_end(after)
    chosen = _placeholders(builder, values)
    _came_from(chosen, values, before)
    _came_from(chosen, replacements, end_of_rare)
    return chosen
