"""A compiled function: recordings where Python may be skipped, following where it may not.

In: a function and options. Out: an object that is called like the function and gives what the function gives. Each call
takes the quickest way that is right:

    skip     a recording stands in for Python as well (cache/recorded_function.py)
    follow   Python runs, compiled segments stand in for its arithmetic (follow/)
    eager    the function itself
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from ingot.base.errors import CaptureError
from ingot.frontend.jit.cache.recorded_function import RecordedFunction
from ingot.frontend.jit.follow.follower import Follower
from ingot.frontend.jit.settings.options import Options
from ingot.frontend.jit.settings.switch import is_off
from ingot.runtime.compiler import JitCompiler


class CompiledFunction(RecordedFunction):
    """A function of the user's, compiled by calling it."""

    def __init__(self, function: Callable[..., Any], options: Options, compiler: JitCompiler, name: str):
        super().__init__(function, options, compiler, name)
        self.follower = Follower(function, options, compiler, name)
        self.otherwise = self.native.otherwise = self.follower

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.options.python != "run":
            return super().__call__(*args, **kwargs)
        return (self.function if is_off() else self.follower)(*args, **kwargs)

    def forget(self) -> None:
        super().forget()
        self.follower.forget()


def require_callable(function: Any) -> None:
    """Refuse what cannot be compiled by calling it, and say why."""
    if not callable(function):
        raise CaptureError(f"ingot.jit takes a function, a method, a module or a module class, not {function!r}")
    code = inspect.unwrap(function) if not isinstance(function, functools.partial) else function.func
    for test, what in (
        (inspect.isgeneratorfunction, "a generator: it stops between its operations. Return a list of tensors instead"),
        (inspect.iscoroutinefunction, "a coroutine: jit the functions that it calls"),
        (inspect.isasyncgenfunction, "an asynchronous generator: jit the functions that it calls"),
    ):
        if test(code):
            raise CaptureError(f"{getattr(function, '__qualname__', function)} is {what}")
