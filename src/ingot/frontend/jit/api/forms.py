"""`ingot.jit` in all its forms: functions, methods, module classes and module instances.

    decorated function        the function, compiled
    decorated method          a descriptor: every object has recordings of its own
    decorated or wrapped class    the class itself, its `forward` compiled
    wrapped function, bound method, callable    an object called like it
    wrapped instance          a twin: another object of the same state, whose `forward` is compiled

What comes back has the name, the documentation and the signature of what went in.
"""

from __future__ import annotations

import copy
import functools
import importlib
import os
import types
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, overload

import torch

from ingot.frontend.jit.api.call_statistics import FunctionStatistics, statistics_of
from ingot.frontend.jit.api.explaining import explain as explain_compiled
from ingot.frontend.jit.api.explaining import inspect
from ingot.frontend.jit.api.function import CompiledFunction, Tier, require_callable
from ingot.frontend.jit.api.report.page import notebook_cell_of, write_report
from ingot.frontend.jit.api.verification.verified_calls import verified_call
from ingot.frontend.jit.settings.options import Mode, Options, Python
from ingot.frontend.jit.settings.switch import is_off
from ingot.runtime.compiler import JitCompiler
from ingot.runtime.native.dispatch.dispatcher import NativeCallable

Subject = TypeVar("Subject")


@overload
def jit(
    obj: None = None,
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
) -> Callable[[Subject], Subject]: ...


@overload
def jit(
    obj: Subject,
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
) -> Subject: ...


def jit(obj: Any = None, **options: Any) -> Any:
    """Compile a function, method, module or module class; nothing happens until it is called.

    The first call runs eagerly and is recorded. Later calls are skipped or followed: where the recording tells all that
    Python does, it replaces Python and runs as fused machine code; elsewhere Python runs at every call, and compiled
    segments stand in for its arithmetic. `explain()` says which and why.

    obj: what to compile; left out, `jit` is a decorator with options.
    tune: True finds schedules of kernels on the CPU by measuring candidates, when they are first run with tensors of
        some sizes; what it finds is kept on disk. None does what the flag `tune` of the configuration says.
    tuning_steps: how many candidates are measured for each kernel at most; implies tune=True.
    config: an `ingot.Config` or a dictionary of its flags.
    fullgraph: an error where a call cannot be recorded whole, so that Python would have to run.
    dynamic: True keeps sizes open from the start, False never does, None does after a few different sizes.
    freeze: parameters and buffers are taken as they are at the first call: constants are folded, weights packed.
    mode: "reduce-overhead" replays what runs on a GPU as CUDA graphs; on the CPU it changes nothing.
    name: what to call it in messages.
    python: "auto" skips Python where that cannot be noticed; "run" never skips it; "skip" is your promise that what it
        does depends on the arguments and the state of modules alone.
    """
    settings = Options.of(**options)
    if obj is None:
        return lambda subject: _compile(subject, settings)
    return _compile(obj, settings)


def explain(subject: Any, *args: Any, **kwargs: Any) -> str:
    """Call something with copies of these arguments, and tell what became of it.

    It is called twice, or five times if it is followed. What is not compiled yet is compiled for the occasion, with the
    usual options.
    """
    compiled = subject if isinstance(subject, Jitted) else jit(subject)
    called: Any = compiled.forward if isinstance(compiled, torch.nn.Module) else compiled
    for number in range(5):
        if number >= 2 and called.tier != "following":
            break
        given, named = copy.deepcopy((args, kwargs))
        compiled(*given, **named)
    return called.explain()


def _compile(subject: Any, options: Options) -> Any:
    if isinstance(subject, staticmethod | classmethod):
        return type(subject)(_compile(subject.__func__, options))
    if isinstance(subject, Jitted):
        return Jitted(subject.__wrapped__, options)
    if isinstance(subject, type) and issubclass(subject, torch.nn.Module):
        subject.forward = Jitted(_plain(subject.forward), options)  # type: ignore[method-assign]
        return subject
    if isinstance(subject, torch.nn.Module):
        return _twin(subject, options)
    require_callable(subject)
    return Jitted(subject, options)


def _plain(function: Any) -> Any:
    return function.__wrapped__ if isinstance(function, Jitted) else function


class Jitted(NativeCallable):
    """A compiled function. As an attribute of a class it is a method."""

    __wrapped__: Callable[..., Any]
    __name__: str
    __qualname__: str

    def __init__(self, function: Callable[..., Any], options: Options):
        functools.update_wrapper(self, function, updated=())
        name = options.name or getattr(function, "__qualname__", type(function).__name__)
        if not hasattr(self, "__name__"):
            self.__name__ = self.__qualname__ = name
        self._options = options
        compiler = JitCompiler(options.config, function=f"{getattr(function, '__module__', '')}.{name}".lstrip("."))
        self._compiled = CompiledFunction(function, options, compiler, name)
        self._is_verified = options.config["verify"]
        if not self._is_verified:  # or else native code would answer, and nothing be compared
            self._compiled.native.belong_to(self)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._is_verified:
            return verified_call(self._compiled, args, kwargs)
        return self._compiled(*args, **kwargs)

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        if instance is None:
            return self
        states = _states_of(instance)
        if states is None:
            if is_off():  # a tool is looking at the object
                return types.MethodType(self.__wrapped__, instance)
            states = _new_states(instance)
        if states is None:
            return types.MethodType(self, instance)
        bound = states.methods.get(id(self))
        if bound is None:
            bound = states.methods[id(self)] = BoundJitted(self, instance)
        return bound

    @property
    def tier(self) -> Tier:
        """How calls like the latest new one run: "skipping", "following" or "eager"; "new" before the first."""
        return self._compiled.tier

    @property
    def recordings(self) -> int:
        """How often something was recorded so far: whole calls, and segments of calls that are followed."""
        return self._compiled.all_recordings

    def explain(self) -> str:
        """What became of the function so far: its tier and why, kernels, what was left to PyTorch, bytes, times."""
        return explain_compiled(self._compiled)

    def inspect(self, stage: str) -> str:
        """The text of a stage, for every kind of call that has been compiled.

        Stages are steps, segments, trace, program, graph, optimized_graph, kernels, loops, llvm, assembly (or asm), and
        for GPUs ptx and sass.
        """
        return inspect(self._compiled, stage)

    def stats(self) -> FunctionStatistics:
        """What calls have cost so far: calls, kernels launched, bytes moved, and with config={"enable_profiling": True}
        the time of each kernel. Printed, it is a table."""
        return statistics_of(self._compiled)

    def report(self, path: str | os.PathLike[str]) -> None:
        """Write a report into one HTML file that needs nothing else: the graph as a picture, kernels with their loops
        and machine code, what they cost, and the lines that stopped the function."""
        write_report(self._compiled, path)

    def _repr_html_(self) -> str:
        """What notebooks show."""
        return notebook_cell_of(self._compiled)

    def __repr__(self) -> str:
        return f"<ingot.jit of {self.__wrapped__!r}>"

    def __reduce__(self) -> Any:
        if _resolve(self.__module__, self.__qualname__) is self:
            return self.__qualname__
        return _compile, (self.__wrapped__, self._options)

    def __getattr__(self, name: str) -> Any:
        """What tools that read code, such as torch.export, ask of a function."""
        if name in _OF_FUNCTIONS and "__wrapped__" in vars(self):
            return getattr(self.__wrapped__, name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __copy__(self) -> Jitted:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        owner = getattr(self.__wrapped__, "__self__", None)
        if owner is None or isinstance(owner, type | types.ModuleType):
            return self  # as functions are
        return Jitted(copy.deepcopy(self.__wrapped__, memo), self._options)


_OF_FUNCTIONS = frozenset({"__code__", "__globals__", "__closure__", "__defaults__", "__kwdefaults__"})


class BoundJitted(Jitted):
    """A compiled method of one object."""

    def __init__(self, function: Jitted, instance: Any):
        super().__init__(types.MethodType(function.__wrapped__, instance), function._options)
        self.__func__ = function
        self.__self__ = instance

    def __reduce__(self) -> Any:
        return getattr, (self.__self__, self.__name__)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return getattr(copy.deepcopy(self.__self__, memo), self.__name__)


_STATES = "_ingot_compiled_methods"


class _States:
    """The compiled methods of an object, kept in the object so that they go when it goes; copies start anew.

    A shallow copy finds those of the original among its attributes, and puts its own in their place.
    """

    def __init__(self, owner: Any = None) -> None:
        self.owner = id(owner)
        """No other object has this identity while there are methods, which hold the owner."""
        self.methods: dict[int, BoundJitted] = {}
        """Methods by the identity of the compiled function, which each of them holds."""

    def __deepcopy__(self, memo: dict[int, Any]) -> _States:
        return _States()

    def __reduce__(self) -> Any:
        return _States, ()


def _states_of(instance: Any) -> _States | None:
    """The compiled methods of an object, if it has any."""
    class_ = type(instance)
    if class_.__dict__.get("_ingot_twin") is instance:
        return class_._ingot_states
    table = getattr(instance, "__dict__", None)
    found = None if table is None else table.get(_STATES)  # compilers that look into this know no more of it
    return found if isinstance(found, _States) and found.owner == id(instance) else None


def _new_states(instance: Any) -> _States | None:
    """A place for an object's compiled methods; None if it has no attributes, or shares them all with another."""
    table = getattr(instance, "__dict__", None)
    if not isinstance(table, dict):
        return None
    known = table.get(_STATES)
    for bound in known.methods.values() if isinstance(known, _States) else ():
        if vars(bound.__self__) is table:
            return None
    made = table[_STATES] = _States(instance)
    return made


# --- module instances -------------------------------------------------------------------------------------------------


def _twin(module: torch.nn.Module, options: Options) -> torch.nn.Module:
    """Another object with the same state, of a class like the module's whose `forward` is compiled."""
    original: Any = type(module)
    if getattr(original, "_ingot_original", None) is not None:
        original = original._ingot_original
    forward = module.forward if isinstance(module, torch.jit.ScriptModule) else vars(module).get("forward")
    if forward is None:
        return _of_class(module, original, options, {"forward": Jitted(_plain(original.forward), options)})
    # Replaced on the instance, where it would go before the class's, or TorchScript's: a property goes before them.
    compiled = Jitted(_plain(forward), options)
    return _of_class(module, original, options, {"forward": property(lambda self: compiled)})


def _of_class(module: torch.nn.Module, original: type, options: Options, members: dict[str, Any]) -> torch.nn.Module:
    class_: Any = type(
        original.__name__,
        (original,),
        {
            **{name: member for name, member in _OF_TWINS.items() if not hasattr(module, name)},
            **members,
            "__doc__": original.__doc__,
            "__module__": original.__module__,
            "__qualname__": original.__qualname__,
            "_ingot_original": original,
            "_ingot_options": options,
            "__reduce_ex__": _reduce_twin,
            "__deepcopy__": _copy_twin,
        },
    )
    twin: Any = object.__new__(class_)
    object.__setattr__(twin, "__dict__", vars(module))
    # In the class, which is the twin's alone: its attributes are the module's, too, and stay when the twin goes.
    class_._ingot_twin, class_._ingot_states = twin, _States(twin)
    return twin


def _explain_twin(twin: Any) -> str:
    """What became of the module's `forward` so far, as a compiled function's `explain` tells it."""
    return twin.forward.explain()


def _inspect_twin(twin: Any, stage: str) -> str:
    """The text of a stage of the module's `forward`, as a compiled function's `inspect` gives it."""
    return twin.forward.inspect(stage)


class _OfForward:
    """An attribute of a twin's compiled `forward`. What the module stores under its name goes before it."""

    def __init__(self, name: str):
        self._name = name

    def __get__(self, twin: Any, owner: type | None = None) -> Any:
        return self if twin is None else getattr(twin.forward, self._name)


def _statistics_of_twin(twin: Any) -> FunctionStatistics:
    """What calls of the module's `forward` have cost, as a compiled function's `stats` tells it."""
    return twin.forward.stats()


def _report_twin(twin: Any, path: str | os.PathLike[str]) -> None:
    """Write a report of the module's `forward`, as a compiled function's `report` does."""
    twin.forward.report(path)


def _notebook_cell_of_twin(twin: Any) -> str:
    return twin.forward._repr_html_()


_OF_TWINS = {
    "explain": _explain_twin,
    "inspect": _inspect_twin,
    "stats": _statistics_of_twin,
    "report": _report_twin,
    "_repr_html_": _notebook_cell_of_twin,
    "tier": _OfForward("tier"),
    "recordings": _OfForward("recordings"),
}
"""What twins have besides what their modules have."""


def _eager_twin(twin: Any) -> torch.nn.Module:
    """The module that a compiled twin was made of, or one that is as good."""
    module = object.__new__(type(twin)._ingot_original)
    object.__setattr__(module, "__dict__", vars(twin))
    return module


def _reduce_twin(twin: Any, protocol: Any) -> Any:
    return _compile, (_eager_twin(twin), type(twin)._ingot_options)


def _copy_twin(twin: Any, memo: dict[int, Any]) -> Any:
    return _compile(copy.deepcopy(_eager_twin(twin), memo), type(twin)._ingot_options)


def _resolve(module: str | None, qualified_name: str) -> Any:
    """The object that a module holds under a name; None if there is none."""
    try:
        found: Any = importlib.import_module(module or "")
        for part in qualified_name.split("."):
            found = getattr(found, part)
        return found
    except (ImportError, AttributeError, ValueError):
        return None
