"""Values that a model holds, and branches."""

from __future__ import annotations

from typing import Any

from ingot.frontend.onnx.operator_table import NodeCall, defines


@defines("If")
def _branch(call: NodeCall) -> Any:
    """One of two graphs; a condition that is a tensor is read, and Python decides."""
    condition = call.number(0)
    return call.attribute("then_branch" if condition else "else_branch")
