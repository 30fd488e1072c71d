"""What results of a call look like for operands of other sizes than those it was seen with.

In: a function, its arguments, what it did with other sizes, and its operands' metadata. Out: an outcome, or None where
the call has to be watched once more. A rule holds for row-major tensors alone; whatever is unusual has no rule.
"""

from __future__ import annotations

from typing import Any

from ingot.frontend.jit.follow.functions import is_always_view
from ingot.frontend.jit.follow.steps import Metadata, Outcome, Wait


def foretell(
    function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], known: Outcome | None, metadata: tuple[Metadata, ...]
) -> Outcome | None:
    """What a call does, judged by what it did with operands of other sizes."""
    if known is None:
        return None
    if known.wait is Wait.NOW or known.wait is Wait.ALONE:
        return known
    if known.wait is Wait.VIEW:
        return known if is_always_view(function, args) else None
    return None
