"""What a jitted function says of itself: how it runs its calls, and how often it was recorded.

In: what `ingot.jit` gave. Out: a word, a number. Only what users have is asked: attributes and the text of `explain()`.
"""

from __future__ import annotations

import re
from typing import Any

EAGER_TIER, COMPILED_TIER, UNKNOWN = "eager", "compiled", ""
_TIER = re.compile(r"(?:\btier\b\W*|^\s*)(follow|skip)(?:s|ed|ing|ped|ping)?\b", re.IGNORECASE | re.MULTILINE)
"""A tier named after the word, or at the beginning of a line: elsewhere these are words like others."""
_TIER_NAMES = {"follow": "following", "skip": "skipping"}
_RECORDINGS = re.compile(r"\b(\d+) recordings?\b")


def text_of(jitted: Any) -> str:
    """What `explain()` says; nothing where there is none."""
    return jitted.explain() if hasattr(jitted, "explain") else ""


def tier_of(jitted: Any) -> str:
    """How calls run: the tier that `explain()` names first, or else whether anything is compiled."""
    named = getattr(jitted, "tier", None)
    if isinstance(named, str):
        return named
    text = text_of(jitted)
    tier = _TIER.search(text)
    if tier is not None:
        return _TIER_NAMES[tier[1].lower()]
    if not text:
        return UNKNOWN
    return COMPILED_TIER if " became " in text else EAGER_TIER


def recordings_of(jitted: Any) -> int | None:
    """How many recordings were made so far; None where nothing says so."""
    counted = getattr(jitted, "recordings", None)
    if isinstance(counted, int):
        return counted
    told = _RECORDINGS.search(text_of(jitted))
    return int(told[1]) if told else None
