"""The catalogue: every program over state and time, by name, as the modules of `catalogue` enter them."""

from __future__ import annotations

from tests.frontend.jit.state.catalogue import (
    branches,
    callers,
    configuration,
    effects,
    given,
    memory,
    neural_modules,
    objects,
    randomness,
    readings,
    replaced_code,
    switches,
)
from tests.frontend.jit.state.worlds import CATALOGUE

KINDS = (
    replaced_code,
    configuration,
    objects,
    neural_modules,
    switches,
    readings,
    effects,
    branches,
    given,
    memory,
    callers,
    randomness,
)
PROGRAMS = dict(CATALOGUE)
