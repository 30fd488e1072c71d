"""Attributes, looked up as Python does: class first for data descriptors, then the instance, then the class.

In: a value and a name. Out: the attribute. What always holds: each place that the lookup passes is guarded, those that
hold nothing included; properties and `__getattr__` of the user's are walked as code.
"""

from __future__ import annotations

import dataclasses
import functools
import types
from collections import OrderedDict, defaultdict
from contextvars import ContextVar
from enum import Enum, EnumMeta
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._pytree import SUPPORTED_NODES

from ingot.frontend.jit.proof.domain.abstract_values import (
    MIXED,
    AbstractTensor,
    AbstractValue,
    Bound,
    Closure,
    Determined,
    Fresh,
    Known,
    Raised,
    Super,
    Tuple,
    Union,
    View,
    is_tensor,
    known,
    plain,
)
from ingot.frontend.jit.proof.domain.place_guards import (
    ABSENT,
    ClassName,
    InstanceDict,
    ObjectClass,
    SlotContents,
    is_plain,
    type_lookup,
)
from ingot.frontend.jit.proof.semantics import operations

if TYPE_CHECKING:
    from ingot.frontend.jit.proof.walk.walker import Walker

_METHODS = (types.MethodDescriptorType, types.WrapperDescriptorType, types.ClassMethodDescriptorType)
_ORDINARY = frozenset(
    [object, dict, list, tuple, set, frozenset, str, bytes, int, float, complex, range, slice, property, BaseException]
    + [types.FunctionType, types.ModuleType, types.CodeType, types.SimpleNamespace, type(None), type(...)]
    + [ContextVar, OrderedDict, torch._C.TensorBase, torch.finfo, torch.iinfo, torch.dtype, functools.partial]
)
"""Classes written in C that look attributes up as `object` does."""
HEAP_TYPE = 1 << 9
_DELETED = Known(ABSENT)


def attribute(walker: Walker, value: AbstractValue, name: str) -> AbstractValue:
    match value:
        case Union():
            return walker.each(value, lambda one: attribute(walker, one, name))
        case Super():
            return _of_super(walker, value, name)
        case Known() if isinstance(value.value, type):
            return _of_class(walker, value, name)
        case Known() if isinstance(value.value, types.MethodType):
            return _of_method(walker, Bound(known(value.value.__func__), known(value.value.__self__)), name)
        case Bound():
            return _of_method(walker, value, name)
        case View():
            walker.refuse(f"reads {name!r} of a view of a dictionary")
    cls = walker.class_of(value)
    if cls is None:
        walker.refuse(f"reads the attribute {name!r} of an object that is not known")
    guard_class(walker, value, cls)
    lookup = walker.type_attribute(cls, "__getattribute__")
    try:
        if isinstance(lookup, types.FunctionType):
            return walker.call(known(lookup), [value, Known(name)])
        if not (isinstance(lookup, types.WrapperDescriptorType) and lookup.__objclass__ in _ORDINARY):
            walker.refuse(f"reads an attribute of an object of the class {cls.__qualname__}")
        return of_instance(walker, value, name)
    except Raised as raised:
        if raised.cls is not AttributeError:
            raise
    return _missing(walker, value, cls, name)


def guard_class(walker: Walker, value: AbstractValue, cls: type) -> None:
    if isinstance(value, Known) and cls.__flags__ & HEAP_TYPE:
        held = value.value
        walker.guard((ObjectClass, id(held)), lambda: ObjectClass(held, cls, f"{value.name}.__class__"))


def guard_order(walker: Walker, cls: type) -> None:
    """Guards the method resolution order of a class, which assigning to `__bases__` changes."""
    if cls.__flags__ & HEAP_TYPE:
        order, text = cls.__mro__, f"{cls.__qualname__}.__mro__"
        walker.guard((ClassName, cls, "__mro__"), lambda: ClassName(cls, "__mro__", order, text))


def _missing(walker: Walker, value: AbstractValue, cls: type, name: str) -> AbstractValue:
    """What `__getattr__` gives for an attribute that was not found."""
    getter = walker.type_attribute(cls, "__getattr__")
    if getter is torch.nn.Module.__getattr__ and isinstance(value, Known):
        return _of_module(walker, value, name)
    if isinstance(value, Known) and isinstance(value.value, types.ModuleType) and getter is ABSENT:
        getter = walker.entry(vars(value.value), "__getattr__", ABSENT, f"{value.name}.__getattr__")
        if isinstance(getter, types.FunctionType):
            return walker.call(known(getter), [Known(name)])
    if isinstance(getter, types.FunctionType):
        return walker.call(known(getter), [value, Known(name)])
    if getter is not ABSENT:
        walker.refuse(f"reads the attribute {name!r} of an object of the class {cls.__qualname__}")
    raise Raised(AttributeError, f"{cls.__qualname__} has no attribute {name!r}")


def _of_module(walker: Walker, value: Known, name: str) -> AbstractValue:
    found = _registered(walker, value, name)
    if found is None:
        raise Raised(AttributeError, f"{type(value.value).__qualname__} has no attribute {name!r}")
    return found


def _registered(walker: Walker, value: Known, name: str) -> AbstractValue | None:
    """A parameter, buffer or child, which torch.nn.Module keeps in dictionaries of their own; None if there is none."""
    for part in ("_parameters", "_buffers", "_modules"):
        table = instance_entry(walker, value, part)
        if not isinstance(table, Known) or type(table.value) not in (dict, OrderedDict):
            continue
        found = walker.entry(table.value, name, ABSENT, f"{value.name}.{name}")
        if found is not ABSENT:
            return known(found, f"{value.name}.{name}")
    return None


# --- instances --------------------------------------------------------------------------------------------------------


def of_instance(walker: Walker, value: AbstractValue, name: str) -> AbstractValue:
    """What `object.__getattribute__` does."""
    cls = walker.class_of(value)
    assert cls is not None
    found = walker.type_attribute(cls, name)
    if found is not ABSENT and _is_data(walker, found):
        return bind(walker, found, value, cls, name)
    held = instance_entry(walker, value, name)
    if held is not None:
        return held
    if found is not ABSENT:
        return bind(walker, found, value, cls, name)
    if isinstance(value, AbstractTensor) and not value.is_new:
        if value.path is None or name in value.attributes:
            walker.refuse(f"reads the attribute {name!r} of a tensor")
        walker.absent[value.path, name] = None
    if isinstance(value, Known) and isinstance(value.value, Enum) and name in ("value", "name"):
        return instance_entry(walker, value, f"_{name}_") or walker.refuse(f"reads {name!r} of an enumeration")
    raise Raised(AttributeError, f"{cls.__qualname__} has no attribute {name!r}")


def _is_data(walker: Walker, found: Any) -> bool:
    cls = type(found)
    return any(walker.type_attribute(cls, name) is not ABSENT for name in ("__set__", "__delete__"))


def instance_entry(walker: Walker, value: AbstractValue, name: str) -> AbstractValue | None:
    if isinstance(value, Fresh):
        held = walker.state.attributes.get(value.identity)
        if held is MIXED:
            walker.refuse("reads an object whose attributes depend on something that is not known here")
        return None if held is None else held.get(name)
    if not isinstance(value, Known):
        return None
    written = walker.state.written.get((id(value.value), name))
    if written is not None:
        if written[1] is MIXED:
            walker.refuse("reads an attribute that depends on something that is not known here")
        return None if written[1] is _DELETED else written[1]
    held = value.value
    if id(held) in walker.told_by_parts and not _is_told(held, name):
        walker.refuse(f"reads the attribute {name!r} of an argument, which may be otherwise at the next call")
    if type_lookup(type(held), "__dict__") is ABSENT and not isinstance(held, types.FunctionType | types.ModuleType):
        return None
    try:
        names = object.__getattribute__(held, "__dict__")
    except AttributeError:
        return None
    if type(names) is not dict:
        walker.refuse(f"reads the attribute {name!r} of an object without a plain dictionary")
    if not isinstance(held, types.ModuleType):
        walker.guard((InstanceDict, id(held)), lambda: InstanceDict(held, names, f"{value.name}.__dict__"))
    text = f"{value.name}.{name}"
    found = walker.entry(names, name, ABSENT, text)
    return None if found is ABSENT else known(found, text)


def _is_told(held: Any, name: str) -> bool:
    """Whether the parts by which an argument is told tell what an attribute of it is, in each call."""
    kind = type(held)
    registered = SUPPORTED_NODES.get(kind)
    if registered is None or kind in (list, dict, OrderedDict, defaultdict) or dataclasses.is_dataclass(kind):
        return True  # there is nothing besides its parts
    attributes = getattr(held, "__dict__", {})
    return name in attributes and any(part is attributes[name] for part in registered.flatten_fn(held)[0])


def bind(walker: Walker, found: Any, value: AbstractValue, cls: type, name: str) -> AbstractValue:
    """What a class's attribute gives for an instance."""
    if isinstance(found, types.FunctionType):
        return Bound(known(found, name), value)
    if isinstance(found, _METHODS) or type(found) is functools._lru_cache_wrapper:
        return Bound(known(found, name), value)
    if isinstance(found, types.BuiltinFunctionType):
        return known(found, name)
    if type(found) is property:
        if found.fget is None:
            raise Raised(AttributeError, name)
        return walker.call(known(found.fget, name), [value])
    if type(found) is staticmethod:
        return known(found.__func__, name)
    if type(found) is classmethod:
        return Bound(known(found.__func__, name), known(cls))
    if isinstance(found, types.GetSetDescriptorType):
        return _of_native(walker, found, value, name)
    if isinstance(found, types.MemberDescriptorType):
        return _of_slot(walker, found, value, name)
    if isinstance(value, Known) and isinstance(value.value, Enum) and name in ("value", "name"):
        held = instance_entry(walker, value, f"_{name}_")
        if held is not None and type(found).__module__ in ("enum", "types"):
            return held
    getter = walker.type_attribute(type(found), "__get__")
    if getter is ABSENT:
        return known(found, f"{cls.__qualname__}.{name}")
    if type(found).__name__ == "_tuplegetter" and issubclass(cls, tuple):
        items = walker.sequence(value)
        assert items is not None
        return items[cls._fields.index(name)]  # type: ignore[attr-defined]
    if isinstance(getter, types.FunctionType):
        return walker.call(Bound(known(getter), known(found)), [value, known(cls)])
    return walker.refuse(f"reads the attribute {name!r} by a descriptor that is not understood")


def _of_slot(walker: Walker, found: types.MemberDescriptorType, value: AbstractValue, name: str) -> AbstractValue:
    if isinstance(value, Tuple):  # what torch.max and the like give
        index = operations.field_index(value.cls, name)
        if index is not None:
            return value.items[index]
    if isinstance(value, Fresh):
        held = instance_entry(walker, value, name)
        if held is None:
            raise Raised(AttributeError, name)
        return held
    if not isinstance(value, Known):
        walker.refuse(f"reads the attribute {name!r} of an object that is not known")
    try:
        contents = found.__get__(value.value, type(value.value))
    except AttributeError:
        contents = ABSENT
    if not is_plain(value.value):
        text = f"{value.name}.{name}"
        walker.guard((SlotContents, id(value.value), name), lambda: SlotContents(value.value, found, contents, text))
    if contents is ABSENT:
        raise Raised(AttributeError, name)
    return known(contents, f"{value.name}.{name}")


def _of_native(walker: Walker, found: Any, value: AbstractValue, name: str) -> AbstractValue:
    """An attribute that C code computes."""
    if is_tensor(value):
        return operations.metadata(walker, value, name)
    if name == "__class__":
        return known(walker.class_of(value))
    if isinstance(value, Known):
        if is_plain(value.value) or isinstance(value.value, types.CodeType):
            return known(getattr(value.value, name))
        if isinstance(value.value, types.FunctionType) and name in ("__code__", "__name__", "__qualname__"):
            walker.guard_function(value.value)
            return known(getattr(value.value, name))
        if name == "__dict__":
            if id(value.value) in walker.told_by_parts:
                walker.refuse("reads the dictionary of an argument, of which only the parts are known")
            if any(held is value.value for held, _ in walker.state.written.values()):
                walker.refuse("reads the dictionary of an object that it has changed")
            instance_entry(walker, value, name)
            return known(object.__getattribute__(value.value, "__dict__"), f"{value.name}.__dict__")
    if name == "__dict__" and isinstance(value, Fresh):
        held = walker.state.attributes.get(value.identity)
        if isinstance(held, dict):
            return walker.new_showing("attributes", value, held)
    if isinstance(value, Determined):
        return walker.determined()
    if isinstance(value, Closure) and name == "__name__":
        return known(getattr(value.node, "name", "<lambda>"))
    return walker.refuse(f"reads the attribute {name!r} by native code that is not understood")


def _of_method(walker: Walker, value: Bound, name: str) -> AbstractValue:
    if name == "__self__":
        return value.receiver
    if name == "__func__":
        return value.function
    return attribute(walker, value.function, name)


# --- classes ----------------------------------------------------------------------------------------------------------


def _of_class(walker: Walker, value: Known, name: str) -> AbstractValue:
    cls: type = value.value
    meta = type(cls)
    lookup = walker.type_attribute(meta, "__getattribute__")
    if lookup is not type.__getattribute__:
        walker.refuse(f"reads the attribute {name!r} of a class with an unusual metaclass")
    if isinstance(cls, EnumMeta) and name in cls._member_map_:
        member = walker.entry(cls._member_map_, name, ABSENT, f"{cls.__qualname__}.{name}")
        return known(member, f"{cls.__qualname__}.{name}")
    of_meta = type_lookup(meta, name)
    if of_meta is not ABSENT and _is_data(walker, of_meta):
        if name in ("__name__", "__qualname__", "__module__", "__mro__", "__bases__", "__class__"):
            found = getattr(cls, name)
            walker.guard((ClassName, cls, name), lambda: ClassName(cls, name, found, f"{cls.__qualname__}.{name}"))
            return known(found)
        walker.refuse(f"reads {name!r} of a class")
    found = walker.type_attribute(cls, name)
    if found is ABSENT:
        if of_meta is not ABSENT:
            return bind(walker, walker.type_attribute(meta, name), value, meta, name)
        if walker.type_attribute(meta, "__getattr__") is not ABSENT:
            walker.refuse(f"reads the attribute {name!r} of a class by __getattr__")
        raise Raised(AttributeError, f"{cls.__qualname__} has no attribute {name!r}")
    return _bind_class(walker, found, cls, name)


def _bind_class(walker: Walker, found: Any, cls: type, name: str) -> AbstractValue:
    if type(found) is staticmethod:
        return known(found.__func__, name)
    if type(found) is classmethod:
        return Bound(known(found.__func__, name), known(cls))
    if isinstance(found, types.ClassMethodDescriptorType):
        return Bound(known(found, name), known(cls))
    unchanged = (types.FunctionType, property, *_METHODS, types.GetSetDescriptorType, types.MemberDescriptorType)
    if isinstance(found, unchanged) or walker.type_attribute(type(found), "__get__") is ABSENT:
        return known(found, f"{cls.__qualname__}.{name}")
    if isinstance(found, types.BuiltinFunctionType):
        return known(found, name)
    return walker.refuse(f"reads the attribute {name!r} of a class by a descriptor")


def _of_super(walker: Walker, value: Super, name: str) -> AbstractValue:
    receiver = value.receiver
    is_class = isinstance(receiver, Known) and isinstance(receiver.value, type)
    cls = receiver.value if is_class else walker.class_of(receiver)  # type: ignore[attr-defined]
    if cls is None or value.cls not in cls.__mro__:
        walker.refuse("calls super() of an object that is not understood")
    guard_order(walker, cls)
    for base in cls.__mro__[cls.__mro__.index(value.cls) + 1 :]:
        if name in base.__dict__:
            # Along the rest of the order no class before this one has the name.
            for passed in cls.__mro__[cls.__mro__.index(value.cls) + 1 : cls.__mro__.index(base) + 1]:
                walker.type_attribute(passed, name)
            found = base.__dict__[name]
            if is_class:
                return _bind_class(walker, found, cls, name)
            return bind(walker, found, receiver, cls, name)
    raise Raised(AttributeError, f"super has no attribute {name!r}")


def special_method(walker: Walker, value: AbstractValue, name: str) -> AbstractValue | None:
    """A method that Python looks up in the class alone."""
    cls = walker.class_of(value)
    if cls is None:
        walker.refuse(f"needs {name} of an object that is not known")
    guard_class(walker, value, cls)
    found = walker.type_attribute(cls, name)
    return None if found is ABSENT or found is None else bind(walker, found, value, cls, name)


# --- writing ----------------------------------------------------------------------------------------------------------


def store(walker: Walker, value: AbstractValue, name: str, new: AbstractValue) -> None:
    cls = walker.class_of(value)
    if cls is None or is_tensor(value):
        walker.refuse(f"sets the attribute {name!r} of an object that it did not make")
    setter = walker.type_attribute(cls, "__setattr__")
    if isinstance(setter, types.FunctionType):
        if isinstance(value, Known) and setter is torch.nn.Module.__setattr__:
            if not plain(new) or _registered(walker, value, name) is not None:
                walker.refuse(f"sets the attribute {name!r} of a module")
            own_store(walker, value, name, new)
            return
        walker.call(known(setter), [value, Known(name), new])
        return
    if setter is not object.__setattr__:
        walker.refuse(f"sets the attribute {name!r} of an object of the class {cls.__qualname__}")
    own_store(walker, value, name, new)


def own_store(walker: Walker, value: AbstractValue, name: str, new: AbstractValue) -> None:
    """What `object.__setattr__` does."""
    cls = walker.class_of(value)
    assert cls is not None
    found = walker.type_attribute(cls, name)
    if type(found) is property and found.fset is not None:
        walker.call(known(found.fset), [value, new])
        return
    if found is not ABSENT and _is_data(walker, found) and not isinstance(found, types.MemberDescriptorType):
        walker.refuse(f"sets the attribute {name!r} by a descriptor")
    if isinstance(value, Fresh) and walker.may_change(value):
        held = walker.state.attributes.get(value.identity, {})
        if held is MIXED:
            walker.refuse("sets an attribute of an object that depends on something that is not known here")
        walker.mutations += 1
        walker.state.attributes[value.identity] = held | {name: new}
        return
    is_free = found is ABSENT or not _is_data(walker, found)
    if isinstance(value, Known) and id(value.value) in walker.told_by_parts:
        walker.refuse(f"sets the attribute {name!r} of an argument, which may also be found around the function")
    if isinstance(value, Known) and is_free and type_lookup(cls, "__dict__") is not ABSENT:
        instance_entry(walker, value, name)  # guarded, as it has to hold the same at the end
        walker.write(value.value, name, new)
        return
    walker.refuse(f"sets the attribute {name!r} of an object that it did not make")


def delete(walker: Walker, value: AbstractValue, name: str) -> None:
    cls = walker.class_of(value)
    if cls is None or walker.type_attribute(cls, "__delattr__") is not object.__delattr__:
        walker.refuse(f"deletes the attribute {name!r} of an object that is not understood")
    if instance_entry(walker, value, name) is None:
        raise Raised(AttributeError, name)
    if isinstance(value, Fresh):
        held = walker.state.attributes[value.identity]
        walker.mutations += 1
        walker.state.attributes[value.identity] = {one: entry for one, entry in held.items() if one != name}
        return
    assert isinstance(value, Known)
    if id(value.value) in walker.told_by_parts:
        walker.refuse(f"deletes the attribute {name!r} of an argument, which may also be found around the function")
    walker.write(value.value, name, _DELETED)


def check_restored(walker: Walker) -> None:
    """Refuses if an object that was not made during the call does not hold at its end what it held before."""
    for (_, name), (held, new) in walker.state.written.items():
        walker.written_at = walker.writers[id(held), name]
        if isinstance(held, ContextVar):
            walker.refuse(f"sets the context variable {held.name!r}")
        before = object.__getattribute__(held, "__dict__").get(name, ABSENT)
        restored = isinstance(new, Known) and (new.value is before or (is_plain(before) and _same(new.value, before)))
        if not restored:
            walker.refuse(f"sets the attribute {name!r} of an object that it did not make")


def _same(one: Any, other: Any) -> bool:
    return type(one) is type(other) and repr(one) == repr(other)
