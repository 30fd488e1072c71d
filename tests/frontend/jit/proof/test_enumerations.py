"""Members of enumerations of texts and of numbers: comparing them, and their methods, is proven."""

from __future__ import annotations

import enum

import pytest

from tests.frontend.jit.proof.cases import Case, Cases, check_proven

provable = Cases()


class Kind(str, enum.Enum):  # noqa: UP042, as many programs write it
    PLAIN = "plain"
    SCALED = "scaled"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


@provable()
def enumerations_of_texts_and_numbers(x):
    kind, level = Kind.PLAIN, Level.LOW
    if level < Level.HIGH:
        kind = Kind.SCALED
    if kind == Kind.SCALED and kind != "plain" and kind.startswith("sc") and kind in (Kind.SCALED, Kind.PLAIN):
        x = x * 2
    return x + 1 if level == 1 else x - 1


@pytest.mark.parametrize("case", provable, ids=str)
def test_enumerations_are_proven(case: Case):
    check_proven(case)
