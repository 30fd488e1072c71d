"""Native functions about PyTorch's state, and context variables.

In: arguments of a call. Out: what it gives. What always holds: what belongs to the call key is the same at each call;
other switches and context variables are guarded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from ingot.frontend.jit.proof.domain import open_sizes
from ingot.frontend.jit.proof.domain.abstract_values import (
    MIXED,
    NONE,
    AbstractValue,
    Determined,
    Fresh,
    Known,
    Raised,
    is_tensor,
    known,
    plain,
)
from ingot.frontend.jit.proof.domain.place_guards import ContextValue, Switch
from ingot.frontend.jit.proof.semantics import containers, operations

if TYPE_CHECKING:
    from ingot.frontend.jit.proof.walk.walker import Walker

Arguments = dict[str, AbstractValue]
Handler = Callable[[Any, list[AbstractValue], Arguments], AbstractValue]


def has_torch_function(walker: Walker, args: list[AbstractValue], kwargs: Arguments) -> AbstractValue:
    """Tensors are of PyTorch's own classes, or refused; and whether modes are active is part of the call key.
    A mode that is active would get the call here."""
    walker.frame.is_dispatched = True
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


def switch(function: Callable[[], Any]) -> Handler:
    def handle(walker: Walker, args: list[AbstractValue], kwargs: Arguments) -> AbstractValue:
        found = function()
        walker.guard((Switch, id(function)), lambda: Switch(function, found, function.__name__))
        return known(found)

    return handle


def setting(function: Callable[[], bool]) -> Handler:
    """A setting that belongs to the call key: what it is when a call begins is the same at each call."""

    def handle(walker: Walker, args: list[AbstractValue], kwargs: Arguments) -> AbstractValue:
        return walker.determined(bool) if walker.changes_settings else known(function())

    return handle


def autocast(walker: Walker, args: list[AbstractValue], kwargs: Arguments) -> AbstractValue:
    """`torch.is_autocast_enabled`: that of the CPU belongs to the call key, that of GPUs only once one is in use."""
    device = args[0] if len(args) == 1 and not kwargs else None
    if walker.changes_settings:
        return walker.determined(bool)
    if not args and not kwargs:
        return switch(torch.is_autocast_enabled)(walker, [], {})
    if isinstance(device, Known) and device.value == "cpu":
        return known(torch.is_autocast_enabled("cpu"))
    return walker.refuse("asks whether autocast is enabled for other devices than CPUs")


def constant(value: Any) -> Handler:
    return lambda walker, args, kwargs: known(value)


def make_setting(cls: type) -> Handler:
    def handle(walker: Walker, args: list[AbstractValue], kwargs: Arguments) -> AbstractValue:
        for value in (*args, *kwargs.values()):
            if not plain(value) and not isinstance(value, Determined):
                walker.refuse(f"calls {cls.__name__} with an object that is not understood")
        walker.changes_settings = True
        open_sizes.pin(walker, *args, *kwargs.values())
        return walker.new(cls, attributes={})

    return handle


def context_get(walker: Walker, args: list[AbstractValue], kwargs: Arguments) -> AbstractValue:
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


def context_set(walker: Walker, args: list[AbstractValue], kwargs: Arguments) -> AbstractValue:
    """A context variable may be set for a while: the token says what it held before."""
    if not isinstance(args[0], Known):
        walker.refuse("sets a context variable that is not known")
    variable = args[0].value
    before = walker.state.written.get((id(variable), None))
    walker.write(variable, None, args[1])
    token = walker.new(_ContextToken, attributes={})
    walker.tokens[token.identity] = (variable, before)
    return token


def context_reset(walker: Walker, args: list[AbstractValue], kwargs: Arguments) -> AbstractValue:
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


class _ContextToken:
    """The class of what setting a context variable gives."""
