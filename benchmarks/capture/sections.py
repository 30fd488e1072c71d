"""The sections of the comparison, by name."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.capture.calls import calls
from benchmarks.capture.contests import Job, Settings
from benchmarks.capture.functions import functions
from benchmarks.capture.lengths import lengths
from benchmarks.capture.models import models
from benchmarks.capture.slow import slow

SECTIONS: dict[str, Callable[[Settings], list[Job]]] = {
    "functions": functions,
    "slow": slow,
    "models": models,
    "lengths": lengths,
    "calls": calls,
}
