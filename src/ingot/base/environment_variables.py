"""Environment variables: every one that ingot reads, typed, in one place. They are read once, at first use."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from ingot.base.errors import ConfigError
from ingot.base.stages import STAGES, named_stage, pass_names

_PYTHON_DEFINITION = {"python_definition": "the Python code of every fusion when its definition ends"}
_PASSES = {"passes": "what each pass did", "<pass>": "every trace or graph that a pass has changed, after it"}


def dump_words() -> dict[str, str]:
    """What INGOT_DUMP can name, separated by commas: stages, and passes by their names."""
    stages = {stage.name: f"the text of a stage: {stage.summary}" for stage in STAGES}
    return {**_PYTHON_DEFINITION, **stages, **_PASSES}


CHECKS = {
    "bounds": "that kernels on the CPU stay inside the memory of their tensors, at every call; also under python -X dev"
}
"""What INGOT_CHECK can name, separated by commas."""

LOGS = {
    "recompiles": "every recording after a function's first, and why it was made",
    "fallbacks": "calls that run eagerly because they need gradients, or because eager PyTorch is quicker",
    "fusion": "every kernel of a graph, and why it ends where it does; operations left to PyTorch",
    "cache": "whether machine code was there already, in this process or on disk, and what is wrong on disk",
    "perf": "what compiling took, and what compiled calls take compared with eager ones",
}
"""What INGOT_LOGS can name, separated by commas."""


@dataclass(frozen=True, slots=True)
class EnvironmentVariables:
    dump: frozenset[str]
    check: frozenset[str]
    logs: frozenset[str] = frozenset()
    is_disabled: bool = False
    """Whether INGOT_DISABLE=1 makes every compiled function call its original."""
    backend: tuple[str, ...] = ()
    """The backends that INGOT_BACKEND names, in order; all that are available if it names none."""
    cache_directory: Path | None = None
    """Where compiled kernels are kept; None if they are not, because INGOT_CACHE_DIR is set to nothing."""
    cache_limit: int = 10**9
    """The most bytes that are kept there."""
    workdir: str | None = None
    """Where INGOT_WORKDIR has files written that people read: kept stages, and PTX that a driver refused."""
    keeps_stages: bool = False
    """Whether INGOT_KEEP_INTERM=1 keeps the text of every stage in the working directory."""

    @staticmethod
    def read(variables: Mapping[str, str]) -> EnvironmentVariables:
        return EnvironmentVariables(
            frozenset(map(named_stage, _words(variables, "INGOT_DUMP", _dumpable()))),
            _words(variables, "INGOT_CHECK", CHECKS),
            _words(variables, "INGOT_LOGS", LOGS),
            _switch(variables, "INGOT_DISABLE"),
            _names(variables, "INGOT_BACKEND"),
            _cache_directory(variables),
            _bytes(variables, "INGOT_CACHE_LIMIT", 10**9),
            variables.get("INGOT_WORKDIR", "").strip() or None,
            _switch(variables, "INGOT_KEEP_INTERM"),
        )


def _dumpable() -> tuple[str, ...]:
    others = (stage.other_name for stage in STAGES if stage.other_name is not None)
    return (*_PYTHON_DEFINITION, *(stage.name for stage in STAGES), *others, "passes", *pass_names())


def _switch(variables: Mapping[str, str], name: str) -> bool:
    """Whether a variable is set to 1."""
    value = variables.get(name, "").strip()
    if value not in ("", "0", "1"):
        raise ConfigError(f"{name} must be 0 or 1, not {value!r}")
    return value == "1"


def _words(variables: Mapping[str, str], name: str, known: Collection[str]) -> frozenset[str]:
    """The words of a variable, separated by commas."""
    found = frozenset(_names(variables, name))
    unknown = found - set(known)
    if unknown:
        raise ConfigError(f"{name} cannot name {', '.join(sorted(unknown))}; it knows {', '.join(known)}")
    return found


_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_AMOUNT = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?B?)", re.IGNORECASE)


def _bytes(variables: Mapping[str, str], name: str, default: int) -> int:
    """A number of bytes, which may end in KB, MB, GB or TB."""
    text = variables.get(name, "").strip()
    if not text:
        return default
    amount = _AMOUNT.fullmatch(text)
    unit = None if amount is None else _UNITS.get(amount[2].upper())
    if amount is None or unit is None:
        raise ConfigError(f"{name} must be a number of bytes such as 500MB or 2GB, not {text!r}")
    return int(float(amount[1]) * unit)


def _cache_directory(variables: Mapping[str, str]) -> Path | None:
    """INGOT_CACHE_DIR, or `ingot` in the user's folder for such things; relative folders count from where the process
    is when this is read."""
    named = variables.get("INGOT_CACHE_DIR")
    if named is not None:
        return Path(named.strip()).expanduser().absolute() if named.strip() else None
    base = variables.get("XDG_CACHE_HOME", "")
    if os.path.isabs(base):  # others are to be ignored, its specification says
        return Path(base, "ingot")
    home = variables.get("HOME", "")
    return Path(home, ".cache", "ingot") if os.path.isabs(home) else None


def _names(variables: Mapping[str, str], name: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in variables.get(name, "").split(",") if word.strip())


@lru_cache(maxsize=1)
def environment() -> EnvironmentVariables:
    """The environment of this process."""
    return EnvironmentVariables.read(os.environ)
