"""Mistakes of ingot's own while it compiles: the user's program goes on without the compiler, and the user is told.

In: a function that compiles. Out: the same function, whose errors are an IngotError that says why something is not
compiled, or an InternalError after a warning that asks for a report. Nothing else catches what a lowering did not
foresee.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import torch

from ingot.base.errors import (
    CodegenError,
    CudaError,
    ExecutionError,
    FaultWarning,
    InternalError,
    UnsupportedError,
)
from ingot.base.warning import warn

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

_FORESEEN = (UnsupportedError, CodegenError, CudaError, ExecutionError, InternalError)
"""Errors by which a compiler refuses what it was given. Other errors of ours are about graphs and loops, which the
compiler makes itself."""


def reporting_faults(compiles: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Decorator: an error that is not foreseen becomes a warning that asks for a report, and an InternalError."""

    @functools.wraps(compiles)
    def guarded(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        try:
            return compiles(*args, **kwargs)
        except _FORESEEN:
            raise
        except (MemoryError, torch.OutOfMemoryError) as error:
            raise UnsupportedError(f"there is not enough memory to compile it: {error}") from error
        except Exception as error:
            said = "; ".join([f"{type(error).__name__}: {error}", *getattr(error, "__notes__", ())])
            text = " ".join(said.split())
            warn(f"ingot has made a mistake and leaves this to PyTorch; please report it: {text}", FaultWarning)
            raise InternalError(text) from error

    return guarded
