"""What a jitted function says of itself: how it runs its calls, and how often something was recorded.

In: what `ingot.jit` gave, or a function that it did not give. Out: a word, a number.
"""

from __future__ import annotations

from typing import Any

UNKNOWN = ""


def tier_of(jitted: Any) -> str:
    """How calls run: skipping, following or eager; nothing for what was not jitted."""
    tier = getattr(jitted, "tier", UNKNOWN)
    return tier if isinstance(tier, str) else UNKNOWN


def recordings_of(jitted: Any) -> int | None:
    """How many recordings were made so far; None where nothing says so."""
    recordings = getattr(jitted, "recordings", None)
    return recordings if isinstance(recordings, int) else None


def why_python_runs(jitted: Any) -> list[str]:
    """What a function says of why its Python is not skipped, or not even followed."""
    lines = jitted.explain().splitlines() if hasattr(jitted, "explain") else []
    return [line.strip() for line in lines if line.startswith(("  not skipping: ", "  not following: "))]
