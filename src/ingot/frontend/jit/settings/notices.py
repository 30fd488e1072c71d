"""What users are told of calls that are not recorded, each thing once; an error where they asked for whole recordings.

In: what becomes of calls of a function, and why. Out: the text of a warning or of a line of a log, or None where it has
been said before.
"""

from __future__ import annotations

from ingot.base.errors import CaptureError


class Notices:
    """What was said of the calls of one function."""

    def __init__(self, name: str, fullgraph: bool):
        self._name = name
        self._fullgraph = fullgraph
        self._told: set[str] = set()

    def news(self, what: str, reason: str, place: str | None, subject: str | None) -> str | None:
        """What to say of calls that are not recorded, once per subject where there is one, and else once per text;
        `place` is the user's line. With fullgraph=True that is a CaptureError."""
        reason = f"{reason} ({place})" if place else reason
        if self._fullgraph:
            raise CaptureError(f"{self._name} cannot be recorded whole: {reason}")
        text = f"{self._name} {what}: {reason}"
        if (subject or text) in self._told:
            return None
        self._told.add(subject or text)
        return text

    @property
    def are_there(self) -> bool:
        """Whether anything was said."""
        return bool(self._told)

    def forget(self) -> None:
        """Say everything once more."""
        self._told.clear()
