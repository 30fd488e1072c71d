"""A store for recordings in memory, and functions whose recordings are kept at their second call."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ingot.frontend.jit.kept import recordings


class Store:
    """What is kept, by what it is found by. As on disk, it is text in between."""

    def __init__(self) -> None:
        self.entries: dict[str, bytes] = {}
        self.found = 0

    def keep(self, what: Any, name: str, function: str, payload: bytes) -> None:
        self.entries[json.dumps(what)] = payload

    def find(self, what: Any) -> bytes | None:
        payload = self.entries.get(json.dumps(what))
        self.found += payload is not None
        return payload


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Store:
    """The first call records, the second is compiled, the third audited, after which the recording is in the store."""
    made = Store()
    monkeypatch.setattr(recordings, "find_recording", made.find)
    monkeypatch.setattr(recordings, "keep_recording", made.keep)
    monkeypatch.setattr("ingot.frontend.jit.autotune.eager_comparison.ROUNDS", 0)
    monkeypatch.setattr("ingot.frontend.jit.cache.audits.FIRST", 2)
    return made
