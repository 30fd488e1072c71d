"""Calls: functions and methods that are walked, classes that are instantiated, and everything else.

In: a callable value with its arguments. Out: what it returns. What always holds: code is walked only if its source is
found; native code is taken for what it is only if a table says so.
"""

from __future__ import annotations

import ast
import functools
import sys
import types
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from ingot.frontend.jit.proof.domain.abstract_values import (
    NONE,
    AbstractValue,
    Bound,
    Closure,
    Frame,
    Fresh,
    Known,
    Raised,
    Tuple,
    Union,
    join,
    known,
    merge,
    tuple_of,
)
from ingot.frontend.jit.proof.domain.place_guards import PartialCall
from ingot.frontend.jit.proof.natives import known_functions
from ingot.frontend.jit.proof.semantics import containers, operations
from ingot.frontend.jit.proof.walk import module_calls
from ingot.frontend.jit.proof.walk.source import Source, dataclass_initialiser, source_of

if TYPE_CHECKING:
    from ingot.frontend.jit.proof.walk.walker import Walker

Arguments = dict[str, AbstractValue]


def call(walker: Walker, function: AbstractValue, args: list[AbstractValue], kwargs: Arguments) -> AbstractValue:
    match function:
        case Bound():
            return call(walker, function.function, [function.receiver, *args], kwargs)
        case Closure():
            return _call_closure(walker, function, args, kwargs)
        case Union():
            return walker.each(function, lambda one: call(walker, one, args, kwargs))
        case Known():
            return _call_known(walker, function, args, kwargs)
        case Fresh() if function.cls is functools.partial:
            held = walker.state.attributes[function.identity]
            more = containers.mapping(walker, held["keywords"])
            return call(walker, held["func"], [*containers.iterate(walker, held["args"]), *args], {**more, **kwargs})
    method = walker.method(function, "__call__")
    if method is None:
        walker.refuse("calls an object that is not known")
    return call(walker, method, args, kwargs)


def _call_known(walker: Walker, function: Known, args: list[AbstractValue], kwargs: Arguments) -> AbstractValue:
    called = function.value
    handler = known_functions.handler_of(called)
    if handler is not None:
        return handler(walker, args, kwargs)
    if isinstance(called, types.FunctionType):
        return call_function(walker, called, args, kwargs)
    if isinstance(called, types.MethodType):
        return call(walker, known(called.__func__, function.name), [known(called.__self__), *args], kwargs)
    if isinstance(called, functools.partial) and type(called) is functools.partial:
        walker.guard((PartialCall, id(called)), lambda: PartialCall.of(called, function.name or "a partial function"))
        more = {name: known(value) for name, value in walker.entries(called.keywords, f"{function.name}.keywords")}
        return call(walker, known(called.func), [*map(known, called.args), *args], {**more, **kwargs})
    if isinstance(called, type):
        return instantiate(walker, called, args, kwargs)
    if operations.is_operation(called):
        return operations.operate(walker, called, args, kwargs, function.name or getattr(called, "__name__", "?"))
    if isinstance(called, types.BuiltinFunctionType | types.MethodDescriptorType | types.WrapperDescriptorType):
        walker.refuse(f"calls the native function {_named(called)}, which is not known to be free of effects")
    if (
        isinstance(called, torch.nn.Module)
        and walker.type_attribute(type(called), "__call__") is module_calls.MODULE_CALL
    ):
        return module_calls.call_module(walker, function, args, kwargs)
    method = walker.method(function, "__call__")
    if method is None or not isinstance(method, Bound):
        walker.refuse(f"calls an object of the class {type(called).__qualname__}, which is not understood")
    if isinstance(method.function, Known) and not isinstance(method.function.value, types.FunctionType):
        walker.refuse(f"calls an object of the class {type(called).__qualname__}, which is native code")
    return call(walker, method, args, kwargs)


def _named(called: Any) -> str:
    owner = getattr(called, "__objclass__", None) or getattr(called, "__module__", None)
    return f"{getattr(owner, '__name__', owner)}.{called.__name__}"


# --- functions --------------------------------------------------------------------------------------------------------


def call_function(
    walker: Walker, function: types.FunctionType, args: list[AbstractValue], kwargs: Arguments
) -> AbstractValue:
    walker.guard_function(function)
    if _is_of_tracing_compiler(function):
        return known(None)
    opaque = operations.opaque(walker, function, args, kwargs)
    if opaque is not None:
        return opaque
    source = source_of(function)
    if source is None and function.__name__ == "__init__" and args:
        cls = walker.class_of(args[0])
        for base in cls.__mro__ if cls is not None else ():
            source = source or dataclass_initialiser(base, function)
    if source is None:
        walker.refuse(f"calls {function.__qualname__}, whose source is not found")
    frame = walker.new_frame(
        source,
        globals=function.__globals__,
        builtins=function.__builtins__,  # type: ignore[attr-defined]
        file=function.__code__.co_filename,
        cells=dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)),
    )
    defaults = [known(value) for value in function.__defaults__ or ()]
    keyword_defaults = {name: known(value) for name, value in (function.__kwdefaults__ or {}).items()}
    names = bind_arguments(walker, source.node.args, defaults, keyword_defaults, args, kwargs)
    return _run(walker, frame, source, names)


def _is_of_tracing_compiler(function: types.FunctionType) -> bool:
    """Whether a function only notes for torch's own compiler that a module was made. It is called by every module's
    constructor once that compiler was used; nothing else sees what it notes."""
    guard = sys.modules.get("torch._dynamo.mutation_guard")
    tag = getattr(getattr(guard, "GenerationTracker", None), "tag", None)
    return function is getattr(tag, "__func__", None)


def _call_closure(walker: Walker, closure: Closure, args: list[AbstractValue], kwargs: Arguments) -> AbstractValue:
    around = closure.frame
    source = Source(closure.node, around.class_name, _has_yield(closure.node))
    frame = walker.new_frame(source, globals=around.globals, builtins=around.builtins, file=around.file, parent=around)
    names = bind_arguments(walker, closure.node.args, closure.defaults, closure.keyword_defaults, args, kwargs)
    return _run(walker, frame, source, names)


@functools.lru_cache(maxsize=10_000)
def _has_yield(node: ast.AST) -> bool:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Yield | ast.YieldFrom | ast.Await):
            return True
        if not isinstance(child, ast.FunctionDef | ast.Lambda) and _has_yield(child):
            return True
    return False


def _run(walker: Walker, frame: Frame, source: Source, names: Arguments) -> AbstractValue:
    if source.is_generator:
        walker.refuse("calls a generator or coroutine")
    frame.first = next(iter(names.values()), None)
    walker.state.frames[frame.identity] = names
    with walker.entered(frame):
        if isinstance(source.node, ast.Lambda):
            return walker.evaluate(source.node.body)
        try:
            if walker.run(source.node.body):
                frame.exits.append(("return", walker.state, NONE))
        except Raised:
            if not frame.exits:
                raise
            walker.may_raise()  # another branch returned: this one is not the one that runs
        if not frame.exits:
            raise Raised(RuntimeError, "every branch raises")
        walker.state = functools.reduce(merge, [state for _, state, _ in frame.exits])
        if not frame.is_captured:
            walker.state.frames.pop(frame.identity, None)
        return functools.reduce(join, [value for _, _, value in frame.exits])


def bind_arguments(
    walker: Walker,
    parameters: ast.arguments,
    defaults: Sequence[AbstractValue],
    keyword_defaults: Mapping[str, AbstractValue],
    args: list[AbstractValue],
    kwargs: Arguments,
) -> Arguments:
    """The variables of a function at its start."""
    positional = [one.arg for one in (*parameters.posonlyargs, *parameters.args)]
    by_name = {one.arg for one in (*parameters.args, *parameters.kwonlyargs)}
    names = dict(zip(positional, args, strict=False))
    if len(args) > len(positional) and parameters.vararg is None:
        raise Raised(TypeError, "takes fewer positional arguments")
    rest: Arguments = {}
    for name, value in kwargs.items():
        if name in by_name and name not in names:
            names[name] = value
        elif parameters.kwarg is None or name in by_name:
            raise Raised(TypeError, f"got an unexpected keyword argument {name!r}")
        else:
            rest[name] = value
    for name, value in zip(reversed(positional), reversed(defaults), strict=False):
        names.setdefault(name, value)
    for one in parameters.kwonlyargs:
        if one.arg not in names and one.arg in keyword_defaults:
            names[one.arg] = keyword_defaults[one.arg]
    if any(name not in names for name in (*positional, *(one.arg for one in parameters.kwonlyargs))):
        raise Raised(TypeError, "missing arguments")
    if parameters.vararg is not None:
        names[parameters.vararg.arg] = tuple_of(args[len(positional) :])
    if parameters.kwarg is not None:
        names[parameters.kwarg.arg] = walker.new(dict, rest)
    return names


# --- classes ----------------------------------------------------------------------------------------------------------


def instantiate(walker: Walker, cls: type, args: list[AbstractValue], kwargs: Arguments) -> AbstractValue:
    if walker.type_attribute(type(cls), "__call__") is not type.__call__:
        walker.refuse(f"makes an object of the class {cls.__qualname__}, whose metaclass makes them in its own way")
    maker = walker.type_attribute(cls, "__new__")
    maker = maker.__func__ if isinstance(maker, staticmethod) else maker
    initialise = walker.type_attribute(cls, "__init__")
    if issubclass(cls, tuple) and hasattr(cls, "_fields") and _is_named_tuple(maker):
        if initialise is not object.__init__:
            walker.refuse(f"makes an object of the class {cls.__qualname__}, which is not understood")
        return _named_tuple(walker, cls, maker, args, kwargs)
    if issubclass(cls, BaseException) and not isinstance(initialise, types.FunctionType):
        return walker.new(cls, attributes={"args": tuple_of(args)})
    made = known_functions.make_empty(walker, cls, maker)
    if made is None and isinstance(maker, types.FunctionType):
        made = call_function(walker, maker, [known(cls), *args], kwargs)
    if not isinstance(made, Fresh) or made.cls is not cls:
        walker.refuse(f"makes an object of the class {cls.__qualname__}, which is not understood")
    if isinstance(initialise, types.FunctionType):
        call_function(walker, initialise, [made, *args], kwargs)
    elif initialise is object.__init__:
        if args or kwargs:
            raise Raised(TypeError, f"{cls.__qualname__}() takes no arguments")
    else:
        call(walker, known(initialise), [made, *args], kwargs)
    return made


def _is_named_tuple(maker: Any) -> bool:
    return isinstance(maker, types.FunctionType) and maker.__code__.co_filename.startswith("<string>")


def _named_tuple(walker: Walker, cls: Any, maker: Any, args: list[AbstractValue], kwargs: Arguments) -> AbstractValue:
    walker.guard_function(maker)
    if tuple(maker.__code__.co_varnames[1:]) != cls._fields:
        walker.refuse(f"makes an object of the class {cls.__qualname__}, which is not understood")
    values = dict(zip(cls._fields, args, strict=False)) | kwargs
    defaults = maker.__defaults__ or ()
    for name, value in zip(reversed(cls._fields), reversed(defaults), strict=False):
        values.setdefault(name, known(value))
    if set(values) != set(cls._fields):
        raise Raised(TypeError, "wrong arguments")
    return Tuple([values[name] for name in cls._fields], cls)
