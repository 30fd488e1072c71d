"""Native functions that are known to do nothing but compute.

In: a native function. Out: how to walk a call of it, or None: then it is refused. What always holds: nothing is in this
table that reads or changes anything besides its arguments.
"""

from __future__ import annotations

import abc
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

from ingot.frontend.jit.proof import attributes, containers, methods, operations, operators, tables
from ingot.frontend.jit.proof.guards import ContextValue, Subclass, Switch, is_plain
from ingot.frontend.jit.proof.values import (
    MIXED,
    NONE,
    Bound,
    Closure,
    Determined,
    Fresh,
    Iterator,
    Known,
    Raised,
    Super,
    Tensor,
    Tuple,
    Union,
    Value,
    computed,
    is_tensor,
    is_undetermined,
    known,
    plain,
    tuple_of,
)

if TYPE_CHECKING:
    from ingot.frontend.jit.proof.walker import Walker

Arguments = dict[str, Value]
Handler = Callable[[Any, list[Value], Arguments], Value]


def handler_of(called: Any) -> Handler | None:
    entry = _HANDLERS.get(id(called))
    if entry is not None:
        return entry[1]
    if isinstance(called, types.MethodDescriptorType | types.WrapperDescriptorType | types.ClassMethodDescriptorType):
        return methods.handler_of(called)
    if isinstance(called, types.BuiltinMethodType) and is_plain(called.__self__) and called.__self__ is not None:
        return _pure(called)  # such as "{}".format
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


def _pure(function: Callable[..., Any], cls: type | None = None) -> Handler:
    """A function of plain values."""

    def handle(walker: Walker, args: list[Value], kwargs: Arguments) -> Value:
        values = [*args, *kwargs.values()]
        if all(map(plain, values)):
            real = {name: value.value for name, value in kwargs.items()}  # type: ignore[attr-defined]
            result = computed(lambda *given: function(*given, **real), *(value.value for value in args))  # type: ignore[attr-defined]
            return containers.made_of(walker, result)
        for value in values:
            if isinstance(value, Fresh):
                value = tuple_of(containers.iterate(walker, value))
            if not plain(value) and not is_undetermined(value):
                walker.refuse(f"calls {getattr(function, '__name__', function)} with an object that is not understood")
        return walker.determined(cls)

    return handle


# --- classes and attributes -------------------------------------------------------------------------------------------


def _classes(walker: Walker, value: Value) -> list[type]:
    if isinstance(value, Tuple):
        return [cls for item in value.items for cls in _classes(walker, item)]
    if isinstance(value, Known):
        if isinstance(value.value, tuple):
            return [cls for item in value.value for cls in _classes(walker, known(item))]
        if isinstance(value.value, types.UnionType):
            return [cls for item in value.value.__args__ for cls in _classes(walker, known(item))]
        if isinstance(value.value, type):
            return [value.value]
    return walker.refuse("asks for a class that is not known")


def _isinstance(walker: Walker, args: list[Value], kwargs: Arguments) -> Value:
    value, classes = args[0], _classes(walker, args[1])
    if isinstance(value, Union):
        return walker.each(value, lambda one: _isinstance(walker, [one, args[1]], {}))
    cls = types.MethodType if isinstance(value, Bound) else walker.class_of(value)
    if cls is None:
        return walker.determined(bool) if isinstance(value, Determined) else walker.refuse("asks for an unknown class")
    attributes.guard_class(walker, value, cls)
    return Known(any(_is_instance(walker, value, cls, one) for one in classes))


def _is_instance(walker: Walker, value: Value, cls: type, of: type) -> bool:
    if of in (torch.nn.Parameter, torch.nn.Buffer) and of not in cls.__mro__ and issubclass(cls, torch.Tensor):
        # A tensor may say that it is one by an attribute.
        if isinstance(value, Known):
            flag = attributes.instance_entry(walker, value, "_is_param" if of is torch.nn.Parameter else "_is_buffer")
            return flag is not None and bool(walker.truth(flag))
        if not (isinstance(value, Tensor) and value.is_new):
            walker.refuse(f"asks whether a tensor is a {of.__name__}")
        return False
    return _is_subclass(walker, cls, of)


def _is_subclass(walker: Walker, cls: type, of: type) -> bool:
    if of in cls.__mro__:
        return True
    check = walker.type_attribute(type(of), "__instancecheck__")
    if check is type.__instancecheck__:
        return False
    if of in (torch.nn.Parameter, torch.nn.Buffer, torch.Tensor):
        return False
    hook = walker.type_attribute(of, "__subclasshook__")
    own = of.__module__ in ("collections.abc", "typing", "numbers", "abc")
    if check is not abc.ABCMeta.__instancecheck__ or not (own or hook is object.__dict__["__subclasshook__"]):
        walker.refuse(f"asks for the class {of.__qualname__}, which answers in its own way")
    found = issubclass(cls, of)
    walker.guard((Subclass, cls, of), lambda: Subclass(cls, of, found, f"{of.__qualname__} of {cls.__qualname__}"))
    return found


def _issubclass(walker: Walker, args: list[Value], kwargs: Arguments) -> Value:
    if not isinstance(args[0], Known) or not isinstance(args[0].value, type):
        walker.refuse("asks whether something is a subclass that is not a known class")
    cls = args[0].value
    return Known(any(_is_subclass(walker, cls, one) for one in _classes(walker, args[1])))


def _type(walker: Walker, args: list[Value], kwargs: Arguments) -> Value:
    cls = walker.class_of(args[0])
    if len(args) != 1 or cls is None or cls is Iterator:
        walker.refuse("asks for the class of an object that is not known")
    attributes.guard_class(walker, args[0], cls)
    return known(cls)


def _getattr(walker: Walker, args: list[Value], kwargs: Arguments) -> Value:
    name = args[1]
    if not isinstance(name, Known):
        walker.refuse("reads an attribute whose name is not known")
    try:
        return walker.attribute(args[0], name.value)
    except Raised as raised:
        if len(args) < 3 or raised.cls is not AttributeError:
            raise
        return args[2]


def _hasattr(walker: Walker, args: list[Value], kwargs: Arguments) -> Value:
    name = args[1]
    if not isinstance(name, Known):
        walker.refuse("asks for an attribute whose name is not known")
    try:
        walker.attribute(args[0], name.value)
    except Raised as raised:
        if raised.cls is not AttributeError:
            raise
        return Known(False)
    return Known(True)


def _setattr(walker: Walker, args: list[Value], kwargs: Arguments) -> Value:
    if not isinstance(args[1], Known):
        walker.refuse("sets an attribute whose name is not known")
    attributes.store(walker, args[0], args[1].value, args[2])
    return NONE


def _super(walker: Walker, args: list[Value], kwargs: Arguments) -> Value:
    if not args:
        frame = walker.frame
        while frame.parent is not None and "__class__" not in frame.cells:
            frame = frame.parent
        cell = frame.cells.get("__class__")
        if cell is None or walker.frame.first is None:
            walker.refuse("calls super() where it is not understood")
        args = [known(cell.cell_contents), walker.frame.first]
    if len(args) != 2 or not isinstance(args[0], Known):
        walker.refuse("calls super() in a way that is not understood")
    return Super(args[0].value, args[1])


def _callable(walker: Walker, args: list[Value], kwargs: Arguments) -> Value:
    if isinstance(args[0], Closure | Bound):
        return Known(True)
    return Known(walker.method(args[0], "__call__") is not None)


# --- numbers and sequences --------------------------------------------------------------------------------------------


def _len(walker: Walker, args: list[Value], kwargs: Arguments) -> Value:
    value = args[0]
    if is_tensor(value):
        shape = walker.attribute(value, "shape")
        return containers.item(walker, shape, Known(0))
    size = containers.size(walker, value)
    if size is not None:
        return Known(size)
    if isinstance(value, Determined):
        return walker.determined(int)
    method = walker.method(value, "__len__")
    if method is None:
        walker.refuse("asks for the length of an object that is not understood")
    return walker.call(method, [])


def _convert(cls: type) -> Handler:
    """int(), float(), str() and the like."""

    def handle(walker: Walker, args: list[Value], kwargs: Arguments) -> Value:
        if len(args) == 1 and not kwargs:
            if cls is bool:
                outcome = walker.truth(args[0])
                return walker.determined(bool) if outcome is None else Known(outcome)
            if cls is str:
                return operators.text_of(walker, args[0])
            constant = operations.constant_of(walker, args[0])
            if constant is not None and constant.numel() == 1:
                return computed(cls, constant.item())
            if is_tensor(args[0]):
                walker.refuse("reads the value of a tensor")
        return _pure(cls, cls)(walker, args, kwargs)

    return handle


def _repr(walker: Walker, args: list[Value], kwargs: Arguments) -> Value:
    return operators.text_of(walker, args[0], is_repr=True)


def _sequence(cls: type) -> Handler:
    def handle(walker: Walker, args: list[Value], kwargs: Arguments) -> Value:
        items = containers.iterate(walker, args[0]) if args else []
        if cls is list:
            return walker.new_list(items)
        return tuple_of(items) if cls is tuple else containers.new_set(walker, cls, items)

    return handle


def _dict(cls: type) -> Handler:
    def handle(walker: Walker, args: list[Value], kwargs: Arguments) -> Value:
        made = walker.new(cls, {})
        methods.update(walker, [made, *args], kwargs)
        return made

    return handle


def _range(walker: Walker, args: list[Value], kwargs: Arguments) -> Value:
    if not all(map(plain, args)):
        walker.refuse("counts to a number that is not known here")
    return computed(range, *(value.value for value in args))  # type: ignore[attr-defined]


def _iterator(function: Callable[..., Any]) -> Handler:
    """Functions that only put items in another order or into tuples: they run on the items as they are."""

    def handle(walker: Walker, args: list[Value], kwargs: Arguments) -> Value:
        options = {name: value.value for name, value in kwargs.items() if isinstance(value, Known)}
        if len(options) != len(kwargs):
            walker.refuse(f"calls {function.__name__} with options that are not known")
        given = [
            value.value if plain(value) and type(value.value) is int else containers.iterate(walker, value)
            for value in args
        ]  # type: ignore[attr-defined]
        made = []
        for found in function(*given, **options):
            if isinstance(found, tuple):
                found = tuple_of([item if not isinstance(item, int | None) else Known(item) for item in found])
            made.append(found)
        return containers.new_iterator(walker, made, sources=args)

    return handle


def _map(walker: Walker, args: list[Value], kwargs: Arguments) -> Value:
    columns = [containers.iterate(walker, value) for value in args[1:]]
    made = [walker.call(args[0], list(row)) for row in zip(*columns, strict=False)]
    return containers.new_iterator(walker, made, is_lazy=True)


def _filter(walker: Walker, args: list[Value], kwargs: Arguments) -> Value:
    made = []
    for item in containers.iterate(walker, args[1]):
        is_identity = isinstance(args[0], Known) and args[0].value is None
        outcome = walker.truth(item if is_identity else walker.call(args[0], [item]))
        if outcome is None:
            walker.refuse("filters by something that is not known here")
        made += [item] if outcome else []
    return containers.new_iterator(walker, made, is_lazy=True)


def _iter(walker: Walker, args: list[Value], kwargs: Arguments) -> Value:
    if len(args) != 1:
        walker.refuse("calls iter() with a function")
    if isinstance(args[0], Fresh) and args[0].cls is Iterator:
        return args[0]
    return containers.new_iterator(walker, containers.iterate(walker, args[0]), sources=args)


def _next(walker: Walker, args: list[Value], kwargs: Arguments) -> Value:
    if not isinstance(args[0], Fresh) or args[0].cls is not Iterator:
        walker.refuse("takes the next item of an iterator that it did not make")
    found = containers.advance(walker, args[0])
    if found is None:
        if len(args) > 1:
            return args[1]
        raise Raised(StopIteration)
    return found


def _extreme(function: Callable[..., Any]) -> Handler:
    def handle(walker: Walker, args: list[Value], kwargs: Arguments) -> Value:
        items = containers.iterate(walker, args[0]) if len(args) == 1 else args
        if any(map(is_tensor, items)) or "key" in kwargs:
            walker.refuse(f"takes the {function.__name__} of objects that are not plain")
        if not items and "default" in kwargs:
            return kwargs["default"]
        if all(map(plain, items)):
            return computed(function, [value.value for value in items])  # type: ignore[attr-defined]
        return _pure(function)(walker, items, {})

    return handle


def _sum(walker: Walker, args: list[Value], kwargs: Arguments) -> Value:
    total = args[1] if len(args) > 1 else kwargs.get("start", Known(0))
    for item in containers.iterate(walker, args[0]):
        total = operators.binary(walker, operators.NODES[operator.add], total, item)
    return total


def _reduce(walker: Walker, args: list[Value], kwargs: Arguments) -> Value:
    items = containers.iterate(walker, args[1])
    if not items and len(args) < 3:
        raise Raised(TypeError, "reduce() of empty iterable with no initial value")
    total = args[2] if len(args) > 2 else items.pop(0)
    for item in items:
        total = walker.call(args[0], [total, item])
    return total


def _any(stops: bool) -> Handler:
    def handle(walker: Walker, args: list[Value], kwargs: Arguments) -> Value:
        outcomes = []
        for item in containers.iterate(walker, args[0]):
            outcomes.append(walker.truth(item))
            if outcomes[-1] is stops:
                break
        if outcomes and outcomes[-1] is stops and None not in outcomes:
            return Known(stops)
        return walker.determined(bool) if None in outcomes else Known(not stops)

    return handle


def _sorted(walker: Walker, args: list[Value], kwargs: Arguments) -> Value:
    items = containers.iterate(walker, args[0])
    keys = [walker.call(kwargs["key"], [item]) for item in items] if "key" in kwargs else items
    reverse = kwargs.get("reverse", Known(False))
    if not all(map(plain, keys)) or not plain(reverse):
        walker.refuse("sorts by something that is not known here")
    order = sorted(range(len(items)), key=lambda index: keys[index].value, reverse=bool(reverse.value))  # type: ignore[attr-defined]
    return walker.new_list([items[index] for index in order])


def _operator(function: Callable[..., Any]) -> Handler:
    node = operators.NODES[function]

    def handle(walker: Walker, args: list[Value], kwargs: Arguments) -> Value:
        action = operators.compare if function.__name__ in ("eq", "ne", "lt", "le", "gt", "ge") else operators.binary
        return action(walker, node, args[0], args[1])

    return handle


def _partial(walker: Walker, args: list[Value], kwargs: Arguments) -> Value:
    parts = {"func": args[0], "args": tuple_of(args[1:]), "keywords": walker.new(dict, dict(kwargs))}
    return walker.new(functools.partial, attributes=parts)


def _signature(walker: Walker, args: list[Value], kwargs: Arguments) -> Value:
    """The signature of a function that is known: what it is made of never changes, apart from what is guarded."""
    function, skipped = args[0], 0
    if isinstance(function, Bound):
        function, skipped = function.function, 1
    if not isinstance(function, Known) or not isinstance(function.value, types.FunctionType) or kwargs or len(args) > 1:
        walker.refuse("asks for the signature of an object that is not a known function")
    for name in ("__wrapped__", "__signature__"):
        if attributes.instance_entry(walker, function, name) is not None:
            walker.refuse("asks for the signature of a function that stands for another one")
    walker.guard_function(function.value)
    found = list(inspect.signature(function.value).parameters.items())[skipped:]
    parameters = walker.new(OrderedDict, {name: known(parameter) for name, parameter in found})
    return walker.new(inspect.Signature, attributes={"_parameters": parameters})


def _proxy(walker: Walker, args: list[Value], kwargs: Arguments) -> Value:
    copy = walker.new(dict, dict(containers.mapping(walker, args[0])))
    copy.is_callers = True
    return copy


def _make_object(walker: Walker, args: list[Value], kwargs: Arguments) -> Value:
    if not isinstance(args[0], Known) or not isinstance(args[0].value, type):
        walker.refuse("makes an object of a class that is not known")
    return walker.new(args[0].value, attributes={})


# --- PyTorch ----------------------------------------------------------------------------------------------------------


def _has_torch_function(walker: Walker, args: list[Value], kwargs: Arguments) -> Value:
    """Tensors are of PyTorch's own classes, or refused; and whether modes are active is part of the call key."""
    for value in args:
        parts = [value] if plain(value) else containers.sequence(walker, value) or [value]
        for part in parts:
            if is_tensor(part):
                operations.meta_of(walker, part)
            elif isinstance(part, Known | Fresh):
                cls = walker.class_of(part)
                if cls is not None and walker.type_attribute(cls, "__torch_function__") is not operations.ABSENT:
                    walker.refuse("handles functions of PyTorch in its own way")
    return Known(False)


def _switch(function: Callable[[], Any]) -> Handler:
    def handle(walker: Walker, args: list[Value], kwargs: Arguments) -> Value:
        found = function()
        walker.guard((Switch, id(function)), lambda: Switch(function, found, function.__name__))
        return known(found)

    return handle


def _setting(walker: Walker, args: list[Value], kwargs: Arguments) -> Value:
    return walker.determined(bool)


def _constant(value: Any) -> Handler:
    return lambda walker, args, kwargs: known(value)


def _make_setting(cls: type) -> Handler:
    def handle(walker: Walker, args: list[Value], kwargs: Arguments) -> Value:
        for value in (*args, *kwargs.values()):
            if not plain(value) and not isinstance(value, Determined):
                walker.refuse(f"calls {cls.__name__} with an object that is not understood")
        return walker.new(cls, attributes={})

    return handle


def _context_get(walker: Walker, args: list[Value], kwargs: Arguments) -> Value:
    if not isinstance(args[0], Known) or len(args) > 1:
        walker.refuse("reads a context variable that is not known")
    variable = args[0].value
    written = walker.state.written.get((id(variable), None))
    if written is not None:
        return walker.refuse("reads a mixed context variable") if written[1] is MIXED else written[1]
    found = variable.get(operations.ABSENT)
    walker.guard((ContextValue, id(variable)), lambda: ContextValue(variable, found, variable.name))
    if found is operations.ABSENT:
        raise Raised(LookupError, variable.name)
    return known(found, variable.name)


def _context_set(walker: Walker, args: list[Value], kwargs: Arguments) -> Value:
    """A context variable may be set for a while: the token says what it held before."""
    if not isinstance(args[0], Known):
        walker.refuse("sets a context variable that is not known")
    variable = args[0].value
    before = walker.state.written.get((id(variable), None))
    walker.write(variable, None, args[1])
    token = walker.new(_Token, attributes={})
    walker.tokens[token.identity] = (variable, before)
    return token


def _context_reset(walker: Walker, args: list[Value], kwargs: Arguments) -> Value:
    token = args[1]
    if not isinstance(args[0], Known) or not isinstance(token, Fresh) or token.identity not in walker.tokens:
        walker.refuse("resets a context variable in a way that is not understood")
    variable, before = walker.tokens.pop(token.identity)
    if variable is not args[0].value:
        walker.refuse("resets a context variable by the token of another")
    if before is None:
        walker.state.written.pop((id(variable), None), None)
    else:
        walker.state.written[id(variable), None] = before
    return NONE


class _Token:
    """The class of what setting a context variable gives."""


# --- the table --------------------------------------------------------------------------------------------------------

_TABLE: dict[Any, Handler] = {
    isinstance: _isinstance,
    issubclass: _issubclass,
    type: _type,
    getattr: _getattr,
    hasattr: _hasattr,
    setattr: _setattr,
    super: _super,
    callable: _callable,
    len: _len,
    repr: _repr,
    range: _range,
    map: _map,
    filter: _filter,
    iter: _iter,
    next: _next,
    sum: _sum,
    functools.reduce: _reduce,
    any: _any(True),
    all: _any(False),
    sorted: _sorted,
    min: _extreme(min),
    max: _extreme(max),
    torch._C._has_torch_function: _has_torch_function,
    torch._C._has_torch_function_unary: _has_torch_function,
    torch._C._has_torch_function_variadic: _has_torch_function,
    torch._C._get_tracing_state: _constant(None),
    torch._C._is_tracing: _constant(False),
    torch._C._log_api_usage_once: _constant(None),
    functools.partial: _partial,
    inspect.signature: _signature,
    types.MappingProxyType: _proxy,
    object.__new__: _make_object,
    torch.is_grad_enabled: _setting,
    torch.is_autocast_enabled: _setting,
    torch.is_inference_mode_enabled: _setting,
    torch.get_default_dtype: lambda walker, args, kwargs: walker.determined(torch.dtype),
    ContextVar.get: _context_get,
    ContextVar.set: _context_set,
    ContextVar.reset: _context_reset,
    **{function: _switch(function) for function in tables.SWITCHES},
    **{cls: _convert(cls) for cls in (int, float, complex, str, bool)},
    **{cls: _sequence(cls) for cls in (list, tuple, set, frozenset)},
    **{cls: _dict(cls) for cls in (dict, OrderedDict)},
    **{cls: _make_setting(cls) for cls in tables.SETTINGS},
    **{function: _iterator(function) for function in (zip, enumerate, reversed)},
    **{
        function: _iterator(function)
        for function in (itertools.chain, itertools.islice, itertools.product, itertools.combinations)
        + (itertools.permutations, itertools.zip_longest, itertools.pairwise)
    },
    **{function: _operator(function) for function in operators.NODES},
    **{
        function: _pure(function)
        for function in [
            abs,
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
if isinstance(torch._C.__dict__.get("_cuda_isCurrentStreamCapturing"), types.BuiltinFunctionType):
    _TABLE[torch._C._cuda_isCurrentStreamCapturing] = _constant(False)
_HANDLERS: dict[int, tuple[Any, Handler]] = {id(function): (function, handler) for function, handler in _TABLE.items()}
"""By identity, as some of these functions are equal to others of their kind."""
