"""Native functions that are known to do nothing but compute.

In: a native function. Out: how to walk a call of it, or None: then it is refused. What always holds: nothing is in this
table that reads or changes anything besides its arguments.
"""

from __future__ import annotations

import builtins
import functools
import inspect
import itertools
import math
import operator
import types
from collections import OrderedDict
from collections.abc import Callable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import torch

from ingot.frontend.jit.proof.domain.abstract_values import (
    AbstractValue,
    Fresh,
    known,
)
from ingot.frontend.jit.proof.domain.place_guards import is_plain
from ingot.frontend.jit.proof.domain.result_caches import KeepingFunction
from ingot.frontend.jit.proof.natives import (
    builtin_functions,
    introspection,
    kept_results,
    methods,
    module_members,
    script_functions,
    state_functions,
    training_functions,
)
from ingot.frontend.jit.proof.semantics import abstract_operators, operations, torch_names

if TYPE_CHECKING:
    from ingot.frontend.jit.proof.walk.walker import Walker

Arguments = dict[str, AbstractValue]
Handler = Callable[[Any, list[AbstractValue], Arguments], AbstractValue]


def handler_of(called: Any) -> Handler | None:
    entry = _HANDLERS.get(id(called))
    if entry is not None:
        return entry[1]
    if isinstance(called, types.FunctionType):
        return training_functions.handler_of(called) or module_members.handler_of(called)
    if type(called) is KeepingFunction:
        return kept_results.handler_of(called)
    if type(called) is script_functions.ScriptFunction:
        return script_functions.handler_of(called)
    if isinstance(called, types.MethodDescriptorType | types.WrapperDescriptorType | types.ClassMethodDescriptorType):
        return methods.handler_of(called)
    if isinstance(called, types.BuiltinMethodType) and is_plain(called.__self__) and called.__self__ is not None:
        return builtin_functions.pure(called)  # such as "{}".format
    if isinstance(called, types.BuiltinMethodType) and type(called.__self__) in (list, dict, OrderedDict, set):
        inner = methods.handler_of(getattr(type(called.__self__), called.__name__))
        return inner and (lambda walker, args, kwargs: inner(walker, [known(called.__self__), *args], kwargs))
    if isinstance(called, types.MethodWrapperType):
        inner = handler_of(getattr(called.__objclass__, called.__name__, None))
        return inner and (lambda walker, args, kwargs: inner(walker, [known(called.__self__), *args], kwargs))
    return None


def make_empty(walker: Walker, cls: type, maker: Any) -> Fresh | None:
    """An object of a class before `__init__`, if `__new__` is Python's own."""
    if walker.type_attribute(cls, "__del__") is not operations.ABSENT:
        walker.refuse(f"makes an object of the class {cls.__qualname__}, which does something when it is deleted")
    if maker is object.__new__:
        return walker.new(cls, attributes={})
    if maker in (dict.__new__, OrderedDict.__new__) and issubclass(cls, dict):
        return walker.new(cls, {}, {})
    if maker is list.__new__:
        return walker.new(cls, (), {})
    return None


# --- the table --------------------------------------------------------------------------------------------------------

_TABLE: dict[Any, Handler] = {
    isinstance: introspection.isinstance_,
    issubclass: introspection.issubclass_,
    type: introspection.type_,
    getattr: introspection.getattr_,
    hasattr: introspection.hasattr_,
    setattr: introspection.setattr_,
    super: introspection.super_,
    callable: introspection.callable_,
    len: builtin_functions.len_,
    repr: builtin_functions.repr_,
    range: builtin_functions.range_,
    map: builtin_functions.map_,
    itertools.repeat: builtin_functions.repeat,
    filter: builtin_functions.filter_,
    iter: builtin_functions.iter_,
    next: builtin_functions.next_,
    reversed: builtin_functions.reversed_,
    sum: builtin_functions.sum_,
    abs: builtin_functions.absolute,
    functools.reduce: builtin_functions.reduce,
    any: builtin_functions.any_(True),
    all: builtin_functions.any_(False),
    sorted: builtin_functions.sorted_,
    min: builtin_functions.extreme(min),
    max: builtin_functions.extreme(max),
    torch._C._has_torch_function: state_functions.has_torch_function,
    torch._C._has_torch_function_unary: state_functions.has_torch_function,
    torch._C._has_torch_function_variadic: state_functions.has_torch_function,
    torch._C._get_tracing_state: state_functions.constant(None),
    torch._C._is_tracing: state_functions.constant(False),
    torch._C._log_api_usage_once: state_functions.constant(None),
    functools.partial: introspection.partial,
    inspect.signature: introspection.signature,
    types.MappingProxyType: introspection.proxy,
    object.__new__: introspection.make_object,
    torch.is_grad_enabled: state_functions.setting(torch.is_grad_enabled),
    torch.is_autocast_enabled: state_functions.autocast,
    torch.is_inference_mode_enabled: state_functions.setting(torch.is_inference_mode_enabled),
    torch.get_default_dtype: lambda walker, args, kwargs: walker.determined(torch.dtype),
    ContextVar.get: state_functions.context_get,
    ContextVar.set: state_functions.context_set,
    ContextVar.reset: state_functions.context_reset,
    **{function: state_functions.switch(function) for function in torch_names.SWITCHES},
    **{cls: builtin_functions.convert(cls) for cls in (int, float, complex, str, bool)},
    **{cls: builtin_functions.sequence(cls) for cls in (list, tuple, set, frozenset)},
    **{cls: builtin_functions.dict_(cls) for cls in (dict, OrderedDict)},
    **{cls: state_functions.make_setting(cls) for cls in torch_names.SETTINGS},
    **{function: builtin_functions.iterator(function) for function in (zip, enumerate)},
    **{
        function: builtin_functions.iterator(function)
        for function in (itertools.chain, itertools.islice, itertools.product, itertools.combinations)
        + (itertools.permutations, itertools.zip_longest, itertools.pairwise)
    },
    **{function: builtin_functions.operator_of(function) for function in abstract_operators.NODES},
    **{
        function: builtin_functions.pure(function)
        for function in [
            round,
            divmod,
            pow,
            operator.index,
            ord,
            chr,
            bin,
            hex,
            oct,
            format,
            slice,
            torch.finfo,
            torch.iinfo,
        ]
        + [torch.Size, torch.device, torch.promote_types, torch.can_cast, builtins.bytes]
        + [function for function in vars(math).values() if isinstance(function, types.BuiltinFunctionType)]
    },
}
_TABLE[torch._C._len_torch_dispatch_stack] = state_functions.constant(0)
"""No call is answered by a recording under a dispatch mode."""
if isinstance(torch._C.__dict__.get("_cuda_isCurrentStreamCapturing"), types.BuiltinFunctionType):
    _TABLE[torch._C._cuda_isCurrentStreamCapturing] = state_functions.constant(False)
_HANDLERS: dict[int, tuple[Any, Handler]] = {id(function): (function, handler) for function, handler in _TABLE.items()}
"""By identity: some of these functions compare equal to others."""
