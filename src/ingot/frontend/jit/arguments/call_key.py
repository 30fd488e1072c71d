"""Arguments of a call: taken apart, and described by what must be equal for two calls to be alike.

In: positional and keyword arguments. Out: the tensors among them, the objects that are not plain values, and a key. Two
calls with equal keys do the same operations, as far as their arguments decide that: tensors count by type, sizes,
strides and device, plain values by value, all other objects by identity.
"""

from __future__ import annotations

import time
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import torch

from ingot.frontend.jit.arguments.given_objects import GivenObjects, Unsuitable
from ingot.frontend.jit.arguments.structure import LEAF, Shape, take_apart
from ingot.frontend.jit.arguments.supported_tensors import refused_tensor

_PLAIN = (bool, int, float, complex, str, bytes, type(None), type(Ellipsis))
_VALUES = (torch.dtype, torch.device, torch.layout, torch.memory_format, torch.Size, Enum, slice, range, type)


@dataclass(slots=True)
class CallKey:
    """What is known of a call's arguments."""

    key: Hashable
    tensors: list[torch.Tensor]
    objects: list[tuple[str, Any]]
    """Modules and other objects, by the name of the argument."""
    refused: str | None = None
    """Why such a call is left to PyTorch, if it is."""
    needs_gradients: bool = False
    shape: Shape = LEAF
    """How the arguments are nested."""
    leaves: list[Any] = field(default_factory=list)
    parts: Sequence[Any] = ()
    """What the key says of each leaf."""
    given: GivenObjects | None = None
    """Ordinary objects with state among the arguments, taken apart; None where there are none."""
    started: float = field(default_factory=time.perf_counter)
    """When the call began, by the clock."""


@dataclass(frozen=True, slots=True)
class KeyedCall:
    """A call, and what recordings of calls like it are found by."""

    key: tuple[Hashable, Hashable]
    """The key of its arguments, and torch's settings."""
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    described: CallKey


def describe(args: Sequence[Any], kwargs: Mapping[str, Any], takes_objects: bool = False) -> CallKey:
    """What a call with these arguments is like. Where it `takes_objects`, ordinary objects with state are taken apart;
    otherwise, and where they cannot be, such calls are refused."""
    objects = GivenObjects() if takes_objects else None
    try:
        return _describe(args, kwargs, objects)
    except Unsuitable as error:
        return CallKey(None, [], [], refused=str(error))


def _describe(args: Sequence[Any], kwargs: Mapping[str, Any], objects: GivenObjects | None) -> CallKey:
    leaves: list[Any] = []
    given = (tuple(args), dict(kwargs))
    shape = take_apart(given, leaves, None if objects is None else objects.expand)
    found = CallKey(None, [], [], shape=shape, leaves=leaves)
    if objects is not None and objects.held:
        found.given = objects
        objects.finish(given)
    grad_mode = torch.is_grad_enabled()
    keys: list[Hashable] = []
    identities: dict[int, int] = {}
    for position, leaf in enumerate(leaves):
        if type(leaf) in _PLAIN:
            keys.append(plain_key(leaf))
        elif isinstance(leaf, torch.Tensor):
            found.refused = found.refused or refused_tensor(leaf)
            if found.refused:
                return found
            needs_gradients = grad_mode and leaf.requires_grad
            found.needs_gradients |= needs_gradients
            first = identities.setdefault(id(leaf), len(found.tensors))
            found.tensors.append(leaf)
            is_inference = leaf.is_inference()  # operations outside inference mode may not overwrite such a tensor
            has_attributes = bool(vars(leaf))  # of its own, which code may look for
            state = is_inference, has_attributes, needs_gradients
            keys.append((leaf.dtype, leaf.shape, leaf.stride(), leaf.device, type(leaf), state, first))
        elif isinstance(leaf, _VALUES):
            if isinstance(leaf, slice) and not all(type(part) in _PLAIN for part in _parts_of(leaf)):
                found.refused = "an argument is a slice of other objects than plain values"
                return found
            keys.append(_hashable(leaf))
        elif is_guardable(leaf):
            found.objects.append((f"argument {position}", leaf))
            keys.append((type(leaf), id(leaf)))
        else:
            found.refused = f"an argument is a {type(leaf).__name__}, which may change without ingot seeing it"
            return found
    if found.given is not None and found.needs_gradients:
        raise Unsuitable("an argument is an object with state, and gradients are needed")
    found.parts = keys
    found.key = (shape, *keys)
    return found


def plain_key(value: Any) -> Hashable:
    """What two plain values must have in common: 1, 1.0 and True are three. Texts count by identity as well, for `is`
    tells two that are equal apart."""
    if isinstance(value, str):
        return (type(value), value, id(value))
    return (type(value), repr(value) if isinstance(value, float | complex) else value)


def counts_by_identity(kind: type) -> bool:
    """Whether a key holds the identity of objects of a type, and not their value."""
    return not issubclass(kind, (*_PLAIN, *_VALUES))


def is_guardable(value: Any) -> bool:
    """Whether an object is one whose attributes can be looked at again: a module, a function, an ordinary object."""
    return isinstance(value, torch.nn.Module) or callable(value) or type(value) is object


class ByIdentity:
    """An object in a key that equals itself alone, whatever its class says of equality; the key holds it."""

    __slots__ = ("value",)

    def __init__(self, value: Any):
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ByIdentity) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)

    def __str__(self) -> str:
        return str(self.value)


def _hashable(value: Any) -> Hashable:
    if isinstance(value, slice | range):  # range(0, 3, 2) equals range(0, 4, 2), and slice(1) equals slice(1.0)
        parts = _parts_of(value)
        return (type(value), *parts, *map(plain_key, parts))
    if isinstance(value, Enum | type):
        return (type(value), ByIdentity(value))
    return (type(value), value)


def _parts_of(value: slice | range) -> tuple[Any, Any, Any]:
    return value.start, value.stop, value.step
