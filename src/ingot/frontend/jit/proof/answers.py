"""Answers that a recorded call was given where it asked tensors for their values.

In: the questions of a recording, in order. Out: the answer to each, while the same code is walked, so that the walk
takes the path that the call took. What always holds: the n-th question of the walk is the n-th of the call. Where that
is not certain, the walk is refused: while code is walked that may not run, or ahead of its time, and after the walk has
gone two ways of which one left.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

import torch

if TYPE_CHECKING:
    from ingot.frontend.jit.proof.walker import Walker


class Asked(Protocol):
    """A question as a recording knows it."""

    @property
    def asked_by(self) -> str:
        """The method of tensors that asked."""
        ...

    @property
    def answer(self) -> Any: ...

    @property
    def place(self) -> str:
        """The line that asked, as file:line."""
        ...


class Answers:
    """Given one after the other."""

    def __init__(self, questions: Sequence[Asked] = ()) -> None:
        self._questions = questions
        self._given = 0
        self._unasked = 0
        """How many pieces of code are being walked, one inside the other, that may not run, or run later."""
        self._lost: str | None = None
        """Why the order of questions is not known any more."""

    def decide(self, walker: Walker, meta: torch.Tensor | None) -> bool:
        """Whether a tensor counted as true in the recorded call."""
        if self._given >= len(self._questions):
            walker.refuse("decides by the values of a tensor")
        if self._unasked or self._lost is not None:
            walker.refuse(f"decides by the values of a tensor, and {self._lost or 'it is not certain when'}")
        asked = self._questions[self._given]
        is_other_line = asked.place.rpartition(":")[2] != walker.place().rpartition(":")[2]
        if asked.asked_by != "__bool__" or is_other_line or (meta is not None and meta.numel() != 1):
            walker.refuse("decides by the values of a tensor, and the recording does not say by which")
        self._given += 1
        return bool(asked.answer)

    @contextmanager
    def unasked(self) -> Iterator[None]:
        """A block in which code is walked that may not run, or runs later."""
        self._unasked += 1
        try:
            yield
        finally:
            self._unasked -= 1

    def lose(self, reason: str) -> None:
        """Say that the walk goes on although the call may have gone another way."""
        self._lost = self._lost or reason

    @property
    def are_left(self) -> bool:
        """Whether the call asked for more than the walk."""
        return self._given < len(self._questions)
