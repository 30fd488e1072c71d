"""The options of `ingot.jit`, checked when they are given."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from ingot.base.config import NUMERICS, Config
from ingot.base.errors import ConfigError

Mode = Literal["default", "reduce-overhead"]
Python = Literal["auto", "run", "skip"]
"""Whether Python runs at every call: "run" always, "skip" never, "auto" unless skipping it is proven not to matter."""
Numerics = Literal["fast", "eager"]
"""Where half types are rounded: see the flag of this name."""


@dataclass(frozen=True, slots=True)
class Options:
    config: Config
    fullgraph: bool
    """Whether a function that cannot be recorded whole is an error."""
    dynamic: bool | None
    """Whether sizes stay open: from the start, never, or (None) after a few of them have been seen."""
    freeze: bool
    """Whether weights may be taken as they are now: folded, packed, and not read again."""
    is_replayed: bool
    """Whether programs on a GPU are replayed as CUDA graphs."""
    name: str | None
    python: Python = "auto"

    @property
    def tune(self) -> bool:
        """Whether kernels are tuned."""
        return self.config["tune"]

    @property
    def tuning_steps(self) -> int:
        """How many candidates are measured for each kernel."""
        return self.config["kernel_tuning_steps"]

    @classmethod
    def of(
        cls,
        *,
        tune: bool | None = None,
        tuning_steps: int | None = None,
        config: Mapping[str, Any] | None = None,
        fullgraph: bool = False,
        dynamic: bool | None = None,
        freeze: bool = False,
        mode: Mode | None = None,
        name: str | None = None,
        python: Python = "auto",
        numerics: Numerics | None = None,
        **unknown: Any,
    ) -> Options:
        """The options that `ingot.jit` was given; options that contradict each other are refused."""
        _refuse(unknown)
        if tuning_steps is not None:
            if isinstance(tuning_steps, bool) or not isinstance(tuning_steps, int) or tuning_steps < 1:
                raise ConfigError(f"tuning_steps must be an int of at least 1, not {tuning_steps!r}")
            if tune is False:
                raise TuningError("tuning_steps is given, but tune=False says not to tune; leave one of them out")
        for flag, value, also_none in (
            ("tune", tune, True),
            ("fullgraph", fullgraph, False),
            ("freeze", freeze, False),
        ):
            if not isinstance(value, bool) and not (also_none and value is None):
                raise ConfigError(f"{flag} must be True or False, not {value!r}")
        if dynamic not in (None, True, False):
            raise ConfigError(f"dynamic must be True, False or None, not {dynamic!r}")
        if mode is not None:
            _require_one_of("mode", get_args(Mode), mode)
        _require_one_of("python", get_args(Python), python)
        if fullgraph and python == "run":
            raise ConfigError(
                'fullgraph=True asks for recordings that replace Python, but python="run" never makes one; '
                "leave one of them out"
            )
        if name is not None and not isinstance(name, str):
            raise ConfigError(f"name must be a text, not {name!r}")
        if config is not None and not isinstance(config, Mapping):
            raise ConfigError(f"config must be a dictionary or an ingot.Config, not {config!r}")
        return cls(
            _configured(config or {}, numerics, tune, tuning_steps),
            fullgraph,
            dynamic,
            freeze,
            mode == "reduce-overhead",
            name,
            python,
        )


def _configured(config: Mapping[str, Any], numerics: str | None, tune: bool | None, tuning_steps: int | None) -> Config:
    """The flags that were given, with options that stand for flags; those of tuning go before the flags."""
    found = Config(config)
    if tuning_steps is not None:
        found["kernel_tuning_steps"] = tuning_steps
    if tune is not None or tuning_steps is not None:
        found["tune"] = tune is not False
    if numerics is not None:
        _require_one_of("numerics", NUMERICS, numerics)
        if config.get("numerics", numerics) != numerics:
            raise ConfigError(
                f"numerics={numerics!r} is given, and config says {config['numerics']!r}; leave one of them out"
            )
        found["numerics"] = numerics
    return found


def _require_one_of(option: str, known: Sequence[str], value: Any) -> None:
    if isinstance(value, str) and value in known:
        return
    close = difflib.get_close_matches(value, known, 1) if isinstance(value, str) else ()
    advice = f"; did you mean {close[0]!r}?" if close else ""
    raise ConfigError(f"{option} must be one of {', '.join(map(repr, known))}, not {value!r}{advice}")


def _refuse(unknown: Mapping[str, Any]) -> None:
    for name in unknown:
        parameters = inspect.signature(Options.of).parameters.values()
        known = [parameter.name for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY]
        close = difflib.get_close_matches(name, known, 1)
        advice = f"did you mean {close[0]!r}?" if close else f"there are {', '.join(known)}"
        raise TypeError(f"ingot.jit() got an unexpected option {name!r}; {advice}")


class TuningError(ConfigError, ValueError):
    """Options of tuning that contradict each other."""
