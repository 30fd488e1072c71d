"""Where compilers get their tuner from: `ingot.tune`, which stands above them, puts itself here.

In: a configuration. Out: a tuner, or None if the configuration asks for none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # `import ingot` loads this, and no more of it
    from ingot.runtime.kernels import KernelTuner

MakeTuner = Callable[[Mapping[str, Any]], "KernelTuner"]
_makers: list[MakeTuner] = []


def tune_by(make: MakeTuner) -> None:
    """Have compilers tune by what this makes of their configuration."""
    _makers[:] = [make]


def tuner_for(config: Mapping[str, Any]) -> KernelTuner | None:
    """The tuner of a new compiler."""
    return _makers[0](config) if config["tune"] and _makers else None
