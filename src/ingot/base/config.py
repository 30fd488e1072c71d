"""Configuration: the flags there are, what each of them means, and the dictionary that holds their values."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ingot.base.errors import ConfigError
from ingot.base.warning import warn


@dataclass(frozen=True, slots=True)
class Flag:
    name: str
    default: Any
    accepts: str
    """What values it takes, in words."""
    is_valid: Callable[[Any], bool]
    meaning: str


def _is_bool(value: Any) -> bool:
    return isinstance(value, bool)


STRATEGIES = ("none", "conservative", "default", "aggressive")
"""How far fusion goes."""
NUMERICS = ("fast", "eager")
"""Where results of half types are rounded: where operations end, or exactly where eager PyTorch rounds them."""

FLAGS: tuple[Flag, ...] = (
    Flag(
        "graph_opt_level",
        3,
        "0, 1, 2 or 3",
        lambda value: isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 3,
        "What is done to a graph: 0 nothing, 1 local arithmetic, 2 whole-graph passes too, 3 generated kernels too.",
    ),
    Flag(
        "max_fusion_size",
        64,
        "an int of at least 1",
        lambda value: isinstance(value, int) and not isinstance(value, bool) and value >= 1,
        "How many operations one generated kernel may hold.",
    ),
    Flag(
        "fusion_strategy",
        "default",
        "one of " + ", ".join(STRATEGIES),
        lambda value: value in STRATEGIES,
        "How far fusion goes: none; conservative joins operations on elements; default also reductions with what feeds "
        "and what uses them; aggressive also kernels that read the same tensor.",
    ),
    Flag(
        "kernel_fusion_level",
        None,
        "None or 0, 1, 2 or 3",
        lambda value: value is None or (isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 3),
        "Where set, limits fusion: 0 none, 1 operations on elements, 2 also what feeds a reduction, 3 what uses it.",
    ),
    Flag(
        "fuse_reductions",
        True,
        "True or False",
        _is_bool,
        "Whether reductions join other operations in one kernel.",
    ),
    Flag(
        "numerics",
        "fast",
        "one of " + ", ".join(NUMERICS),
        lambda value: value in NUMERICS,
        "How float16 and bfloat16 are computed: fast rounds what each operation gives, and on GPUs approximates "
        "quotients and functions as far as 16 bits allow; eager rounds exactly where eager PyTorch does.",
    ),
    Flag(
        "tune",
        False,
        "True or False",
        _is_bool,
        "Whether schedules of kernels on the CPU are found by measuring candidates, when a kernel is first run with "
        "tensors of some sizes. Kernels on GPUs are not tuned.",
    ),
    Flag(
        "kernel_tuning_steps",
        1000,
        "an int of at least 1",
        lambda value: isinstance(value, int) and not isinstance(value, bool) and value >= 1,
        "Where kernels are tuned: how many candidates are measured for each at most.",
    ),
    Flag(
        "kernel_tuning_seconds",
        10.0,
        "a number above 0",
        lambda value: isinstance(value, int | float) and not isinstance(value, bool) and value > 0,
        "Where kernels are tuned: how long each may take at most.",
    ),
    Flag(
        "enable_optimizations",
        True,
        "True or False",
        _is_bool,
        "False runs every graph as it was defined, at every graph_opt_level.",
    ),
    Flag(
        "disabled_passes",
        (),
        "a list of pass names",
        lambda value: isinstance(value, list | tuple | set | frozenset) and all(isinstance(v, str) for v in value),
        "Passes of traces and of graphs to leave out, by name; `ingot passes` lists them.",
    ),
    Flag(
        "enable_caching",
        True,
        "True or False",
        _is_bool,
        "Whether equal graphs share one compiled module, and kernels are kept on disk (INGOT_CACHE_DIR) for other "
        "processes.",
    ),
    Flag(
        "cache_capacity",
        8192,
        "an int of at least 1",
        lambda value: isinstance(value, int) and not isinstance(value, bool) and value >= 1,
        "How many compiled modules are kept; the one used longest ago goes first.",
    ),
    Flag(
        "enable_profiling",
        False,
        "True or False",
        _is_bool,
        "Time every operation of a run; the statistics then tell the time per operator. Slows runs down.",
    ),
    Flag(
        "verify",
        False,
        "True or False",
        _is_bool,
        "Run eager beside every call of a function that ingot.jit compiles, and raise MismatchError where they differ.",
    ),
)

_BY_NAME = {flag.name: flag for flag in FLAGS}


class Config(dict[str, Any]):
    """A dictionary of flags that starts from the defaults: Config(graph_opt_level=1), Config({...}), Config(other).

    A flag that is not known is kept and ignored; one that looks like a misspelt known flag gets a warning.
    """

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__({flag.name: flag.default for flag in FLAGS})
        self.update(*args, **kwargs)

    def update(self, *args: Any, **kwargs: Any) -> None:
        for name, value in dict(*args, **kwargs).items():
            self[name] = value

    def __setitem__(self, name: str, value: Any) -> None:
        flag = _BY_NAME.get(name)
        if flag is None:
            _warn_if_misspelt(name)
        elif not flag.is_valid(value):
            raise ConfigError(f"{name} must be {flag.accepts}, not {value!r}")
        super().__setitem__(name, value)

    def copy(self) -> Config:
        return Config(self)


def _warn_if_misspelt(name: str) -> None:
    near = difflib.get_close_matches(name, _BY_NAME, n=1, cutoff=0.75)
    if near:
        warn(f"there is no flag {name!r}; did you mean {near[0]!r}?", UserWarning)
