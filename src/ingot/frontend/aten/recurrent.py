"""Cells of recurrent networks, as PyTorch calls them on GPUs: what follows the two products of a cell.

Gates lie side by side in rows; beside the new states comes what the derivative would need, in the same order.
"""

from __future__ import annotations

from typing import Any

from ingot.frontend.aten.table import lowers, narrowed, require_float, require_one_type, unsupported
from ingot.ir.builder import Builder
from ingot.ops.definitions.movement.rearrangements import part
from ingot.ops.definitions.normalizations import require_shape


@lowers("_thnn_fused_lstm_cell.default")
def _lstm_cell(b: Builder, given: Any, hidden: Any, cell: Any, given_bias: Any, hidden_bias: Any) -> Any:
    """The new state, the new cell, and all four gates."""
    total = [
        first + second
        for first, second in zip(
            _gates(b, given, given_bias, cell, 4), _gates(b, hidden, hidden_bias, cell, 4), strict=True
        )
    ]
    taken, kept, output = (b.sigmoid(total[number]) for number in (0, 1, 3))
    proposed = b.tanh(total[2])
    new_cell = kept * b.cast(cell, cell.dtype.widened) + taken * proposed
    new_state = output * b.tanh(new_cell)
    return narrowed(b, (new_state, new_cell, b.cat([taken, kept, proposed, output], 1)), cell.dtype)


@lowers("_thnn_fused_gru_cell.default")
def _gru_cell(b: Builder, given: Any, hidden: Any, state: Any, given_bias: Any, hidden_bias: Any) -> Any:
    """The new state, and both gates, what was proposed, the old state and what it adds to the proposal."""
    first, second = _gates(b, given, given_bias, state, 3), _gates(b, hidden, hidden_bias, state, 3)
    reset, kept = (b.sigmoid(first[number] + second[number]) for number in (0, 1))
    proposed = b.tanh(first[2] + reset * second[2])
    old = b.cast(state, state.dtype.widened)
    new_state = proposed + kept * (old - proposed)
    return narrowed(b, (new_state, b.cat([reset, kept, proposed, old, second[2]], 1)), state.dtype)


def _gates(b: Builder, x: Any, bias: Any, state: Any, count: int) -> list[Any]:
    """What a product and its bias give each gate, in the type that is computed in."""
    require_float("a recurrent cell", x)
    require_one_type("a recurrent cell", x, bias, state)
    if len(state.shape) != 2 or not isinstance(state.shape[1], int):
        unsupported("a recurrent cell needs rows of a known size")
    rows, size = state.shape
    require_shape(b, x, (rows, count * size))
    require_shape(b, bias, (count * size,))
    wide = b.cast(x, x.dtype.widened)
    if bias is not None:
        wide = wide + b.cast(bias, x.dtype.widened)
    return [part(b, wide, 1, number * size, (number + 1) * size) for number in range(count)]
