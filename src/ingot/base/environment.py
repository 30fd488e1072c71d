"""Environment variables: every one that ingot reads, typed, in one place. They are read once, at first use."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from ingot.base.errors import ConfigError

DUMPS = {
    "python_definition": "the Python code of every fusion when its definition ends",
    "graph": "every graph before optimisation",
    "optimized_graph": "every graph after optimisation",
    "passes": "what each pass did",
}
"""What INGOT_DUMP can name, separated by commas."""


@dataclass(frozen=True, slots=True)
class Environment:
    dump: frozenset[str]

    @staticmethod
    def read(variables: Mapping[str, str]) -> Environment:
        dump = frozenset(word.strip() for word in variables.get("INGOT_DUMP", "").split(",") if word.strip())
        unknown = dump - set(DUMPS)
        if unknown:
            raise ConfigError(f"INGOT_DUMP cannot name {', '.join(sorted(unknown))}; it knows {', '.join(DUMPS)}")
        return Environment(dump)


@lru_cache(maxsize=1)
def environment() -> Environment:
    """The environment of this process."""
    return Environment.read(os.environ)
