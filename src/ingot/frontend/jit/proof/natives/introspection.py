"""Native functions about classes, attributes and objects.

In: arguments of a call of isinstance, getattr, super, functools.partial ... Out: what it gives. What always holds: what
they read is guarded as an attribute that code reads itself.
"""

from __future__ import annotations

import abc
import functools
import inspect
import types
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from ingot.frontend.jit.proof.domain.abstract_values import (
    NONE,
    AbstractTensor,
    AbstractValue,
    Bound,
    Closure,
    Determined,
    Iterator,
    Known,
    Raised,
    Super,
    Tuple,
    Union,
    known,
    tuple_of,
)
from ingot.frontend.jit.proof.domain.place_guards import Subclass
from ingot.frontend.jit.proof.semantics import attribute_lookup, containers, operations

if TYPE_CHECKING:
    from ingot.frontend.jit.proof.walk.walker import Walker

Arguments = dict[str, AbstractValue]
Handler = Callable[[Any, list[AbstractValue], Arguments], AbstractValue]
_NO_HOOK = object.__dict__["__subclasshook__"]


def classes_of(walker: Walker, value: AbstractValue) -> list[type]:
    if isinstance(value, Tuple):
        return [cls for item in value.items for cls in classes_of(walker, item)]
    if isinstance(value, Known):
        if isinstance(value.value, tuple):
            return [cls for item in value.value for cls in classes_of(walker, known(item))]
        if isinstance(value.value, types.UnionType):
            return [cls for item in value.value.__args__ for cls in classes_of(walker, known(item))]
        if isinstance(value.value, type):
            return [value.value]
    return walker.refuse("asks for a class that is not known")


def isinstance_(walker: Walker, args: list[AbstractValue], kwargs: Arguments) -> AbstractValue:
    value, classes = args[0], classes_of(walker, args[1])
    if isinstance(value, Union):
        return walker.each(value, lambda one: isinstance_(walker, [one, args[1]], {}))
    cls = types.MethodType if isinstance(value, Bound) else walker.class_of(value)
    if cls is None:
        return walker.determined(bool) if isinstance(value, Determined) else walker.refuse("asks for an unknown class")
    attribute_lookup.guard_class(walker, value, cls)
    outcome = any(is_instance(walker, value, cls, one) for one in classes)
    if not outcome and cls.__flags__ & attribute_lookup.HEAP_TYPE:
        # An object may say by its attribute `__class__` that it is one of these as well.
        own = walker.type_attribute(cls, "__class__") is object.__dict__["__class__"]
        if not own or isinstance(walker.type_attribute(cls, "__getattribute__"), types.FunctionType):
            walker.refuse(f"asks for the class of a {cls.__qualname__}, which answers in its own way")
    return Known(outcome)


def is_instance(walker: Walker, value: AbstractValue, cls: type, of: type) -> bool:
    if of in (torch.nn.Parameter, torch.nn.Buffer) and of not in cls.__mro__ and issubclass(cls, torch.Tensor):
        # A tensor may say that it is one by an attribute.
        if isinstance(value, Known):
            flag = attribute_lookup.instance_entry(
                walker, value, "_is_param" if of is torch.nn.Parameter else "_is_buffer"
            )
            return flag is not None and bool(walker.truth(flag))
        if not (isinstance(value, AbstractTensor) and value.is_new):
            walker.refuse(f"asks whether a tensor is a {of.__name__}")
        return False
    return is_subclass(walker, cls, of)


def is_subclass(walker: Walker, cls: type, of: type) -> bool:
    attribute_lookup.guard_order(walker, cls)
    if of is cls:
        return True
    check = walker.type_attribute(type(of), "__instancecheck__")
    if check is type.__instancecheck__ or of in (torch.nn.Parameter, torch.nn.Buffer, torch.Tensor):
        return of in cls.__mro__
    hook = walker.type_attribute(of, "__subclasshook__")
    own = of.__module__ in ("collections.abc", "typing", "numbers", "abc")
    if check is not abc.ABCMeta.__instancecheck__ or not (own or hook is _NO_HOOK):
        walker.refuse(f"asks for the class {of.__qualname__}, which answers in its own way")
    if of in cls.__mro__ and hook is _NO_HOOK:
        return True
    found = issubclass(cls, of)
    walker.guard((Subclass, cls, of), lambda: Subclass(cls, of, found, f"{of.__qualname__} of {cls.__qualname__}"))
    return found


def issubclass_(walker: Walker, args: list[AbstractValue], kwargs: Arguments) -> AbstractValue:
    if not isinstance(args[0], Known) or not isinstance(args[0].value, type):
        walker.refuse("asks whether something is a subclass that is not a known class")
    cls, classes = args[0].value, classes_of(walker, args[1])
    for one in classes:  # asked even about itself, unlike `isinstance`
        check = walker.type_attribute(type(one), "__subclasscheck__")
        hook = walker.type_attribute(one, "__subclasshook__")
        is_usual = check is abc.ABCMeta.__subclasscheck__ and (one is not cls or hook is _NO_HOOK)
        if check is not type.__subclasscheck__ and not is_usual:
            walker.refuse(f"asks for the class {one.__qualname__}, which answers in its own way")
    return Known(any(is_subclass(walker, cls, one) for one in classes))


def type_(walker: Walker, args: list[AbstractValue], kwargs: Arguments) -> AbstractValue:
    cls = walker.class_of(args[0])
    if len(args) != 1 or cls is None or cls is Iterator:
        walker.refuse("asks for the class of an object that is not known")
    attribute_lookup.guard_class(walker, args[0], cls)
    return known(cls)


def getattr_(walker: Walker, args: list[AbstractValue], kwargs: Arguments) -> AbstractValue:
    name = args[1]
    if not isinstance(name, Known):
        walker.refuse("reads an attribute whose name is not known")
    try:
        return walker.attribute(args[0], name.value)
    except Raised as raised:
        if len(args) < 3 or raised.cls is not AttributeError:
            raise
        return args[2]


def hasattr_(walker: Walker, args: list[AbstractValue], kwargs: Arguments) -> AbstractValue:
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


def setattr_(walker: Walker, args: list[AbstractValue], kwargs: Arguments) -> AbstractValue:
    if not isinstance(args[1], Known):
        walker.refuse("sets an attribute whose name is not known")
    attribute_lookup.store(walker, args[0], args[1].value, args[2])
    return NONE


def super_(walker: Walker, args: list[AbstractValue], kwargs: Arguments) -> AbstractValue:
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


def callable_(walker: Walker, args: list[AbstractValue], kwargs: Arguments) -> AbstractValue:
    if isinstance(args[0], Closure | Bound):
        return Known(True)
    return Known(walker.method(args[0], "__call__") is not None)


def partial(walker: Walker, args: list[AbstractValue], kwargs: Arguments) -> AbstractValue:
    parts = {"func": args[0], "args": tuple_of(args[1:]), "keywords": walker.new(dict, dict(kwargs))}
    return walker.new(functools.partial, attributes=parts)


def signature(walker: Walker, args: list[AbstractValue], kwargs: Arguments) -> AbstractValue:
    """The signature of a function that is known: what it is made of never changes, apart from what is guarded."""
    function, skipped = args[0], 0
    if isinstance(function, Bound):
        function, skipped = function.function, 1
    if not isinstance(function, Known) or not isinstance(function.value, types.FunctionType) or kwargs or len(args) > 1:
        walker.refuse("asks for the signature of an object that is not a known function")
    for name in ("__wrapped__", "__signature__"):
        if attribute_lookup.instance_entry(walker, function, name) is not None:
            walker.refuse("asks for the signature of a function that stands for another one")
    walker.guard_function(function.value)
    found = list(inspect.signature(function.value).parameters.items())[skipped:]
    parameters = walker.new(OrderedDict, {name: known(parameter) for name, parameter in found})
    return walker.new(inspect.Signature, attributes={"_parameters": parameters})


def proxy(walker: Walker, args: list[AbstractValue], kwargs: Arguments) -> AbstractValue:
    return walker.new_showing("items", args[0], containers.mapping(walker, args[0]))


def make_object(walker: Walker, args: list[AbstractValue], kwargs: Arguments) -> AbstractValue:
    """`object.__new__`, for classes that build on no other class written in C."""
    cls = args[0].value if isinstance(args[0], Known) else None
    if not isinstance(cls, type) or walker.type_attribute(cls, "__del__") is not operations.ABSENT:
        walker.refuse("makes an object of a class that is not understood")
    attribute_lookup.guard_order(walker, cls)
    if any(not base.__flags__ & attribute_lookup.HEAP_TYPE for base in cls.__mro__ if base is not object):
        walker.refuse("makes an object of a class that is not understood")
    return walker.new(cls, attributes={})
