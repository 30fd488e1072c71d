"""Objects as numbers in a file, and back.

    reference := ["n"] | ["a"]                      None, and what an empty place holds
               | [type, value]                      a plain value
               | ["t", references]                  a tuple
               | ["o", number]                      an object that was met before
               | ["o", number, kind, facts, parts]  an object that is met for the first time: its anatomy

In: objects of one process, in some order; then those of another in the same order. Out: references, and whether the
second objects are like the first. What always holds: a number stands for one object, and an object has one number, in
both processes: what was one object is one object, and what were two are two.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from ingot.base.errors import UnsupportedError
from ingot.frontend.jit.kept.anatomy import NotPortable, anatomy, code_digest, named
from ingot.frontend.jit.proof.domain.place_guards import ABSENT

Reference = list[Any]
_TEXTS: dict[type, str] = {
    bool: "b",
    float: "f",
    complex: "c",
    range: "r",
    type(...): "e",
    type(NotImplemented): "u",
    torch.dtype: "d",
    torch.device: "v",
    torch.layout: "l",
    torch.memory_format: "m",
    torch.finfo: "h",
    torch.iinfo: "k",
}
"""Types of plain values that are equal if their texts are, and what stands for them."""
_NAMED = ("module", "globals", "sys.modules", "class", "native class", "function")
"""Kinds of objects that can be found by their names alone."""
_DEEPEST = 40
_UNBOUND = object()


class Mismatch(UnsupportedError):
    """A place holds something else than it did in the process that has kept the recording."""


def plain_reference(value: Any) -> Reference | None:
    """A reference to a value that has no identity; None for any other object. Tuples are told by their items."""
    if value is None:
        return ["n"]
    if value is ABSENT:
        return ["a"]
    cls = type(value)
    if cls is int or cls is str:
        return ["i" if cls is int else "s", value]
    if cls is bytes:
        return ["y", value.hex()]
    if cls is torch.Size:
        return ["z", list(value)]
    text = _TEXTS.get(cls)
    return None if text is None else [text, repr(value)]


def outline(value: Any, depth: int = 2) -> list[Any]:
    """Which object something is, without what it is made of: enough to tell it from what may take its place."""
    plain = plain_reference(value)
    if plain is not None:
        return plain
    cls = type(value)
    told = [cls.__module__, cls.__qualname__]
    if isinstance(value, types.FunctionType):
        told += [value.__module__, value.__qualname__, code_digest(value.__code__), value.__globals__.get("__name__")]
        held = [*(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values()]
        held += map(_contents, value.__closure__ or ())
        return told + [outline(one, depth - 1) for one in held if depth]
    if isinstance(value, types.BuiltinFunctionType):
        return [*told, str(value.__module__), value.__qualname__]
    if isinstance(value, type):
        return [*told, *(str(type.__getattribute__(value, name)) for name in ("__module__", "__qualname__"))]
    return [*told, str(vars(value).get("__name__"))] if isinstance(value, types.ModuleType) else told


def _contents(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return ABSENT


class Numbering:
    """Numbers for the objects of this process, as they are met."""

    def __init__(self) -> None:
        self._numbers: dict[int, int] = {}
        self._held: list[Any] = []
        self._depth = 0

    def knows(self, value: Any) -> bool:
        return id(value) in self._numbers

    def number(self, value: Any) -> int:
        """The number of an object that was met before."""
        return self._numbers[id(value)]

    def reference(self, value: Any) -> Reference:
        plain = plain_reference(value)
        if plain is not None:
            return plain
        if type(value) is tuple:
            return ["t", [self.reference(one) for one in value]]
        number = self._numbers.get(id(value))
        if number is not None:
            return ["o", number]
        if self._depth > _DEEPEST:
            raise NotPortable("objects are nested too deeply")
        number = self._numbers[id(value)] = len(self._held)
        self._held.append(value)
        found = anatomy(value)
        self._depth += 1
        parts = [self.reference(part) for part in found.parts]
        self._depth -= 1
        return ["o", number, found.kind, found.facts, parts]

    @contextmanager
    def tentatively(self) -> Iterator[None]:
        """A block whose numbers are taken back where it fails: what was not written must not count as met."""
        before = len(self._held)
        try:
            yield
        except NotPortable:
            for one in self._held[before:]:
                del self._numbers[id(one)]
            del self._held[before:]
            self._depth = 0
            raise

    def name(self, value: Any) -> Reference:
        """A reference by which another process finds an object that no other object leads to."""
        found = anatomy(value)
        if found.kind not in _NAMED or find_named(found.kind, found.facts) is not value:
            raise NotPortable(f"nothing that is known leads to a {type(value).__name__}")
        return self.reference(value)


def find_named(kind: str, facts: Any) -> Any:
    """The object of this process with a name."""
    if kind == "sys.modules":
        return sys.modules
    if kind in ("class", "native class", "function"):
        return named(facts[0], facts[1])
    module = named(facts, None)
    return vars(module) if kind == "globals" and isinstance(module, types.ModuleType) else module


class ObjectBinding:
    """Objects of this process for the numbers of a file."""

    def __init__(self) -> None:
        self._objects: dict[int, Any] = {}
        self._numbers: dict[int, int] = {}

    def __getitem__(self, number: int) -> Any:
        return self._objects[number]

    def bind(self, reference: Reference, value: Any) -> None:
        """Take an object for what a file refers to; a `Mismatch` if it is something else."""
        tag = reference[0]
        if tag == "a":  # most places hold nothing
            if value is not ABSENT:
                raise Mismatch
        elif tag == "o":
            if len(reference) > 2 or self._objects.get(reference[1], _UNBOUND) is not value:
                self._bind_object(reference, value)
        elif tag == "t":
            if type(value) is not tuple or len(value) != len(reference[1]):
                raise Mismatch
            for one, other in zip(reference[1], value, strict=True):
                self.bind(one, other)
        elif plain_reference(value) != reference:
            raise Mismatch

    def _bind_object(self, reference: Reference, value: Any) -> None:
        number = reference[1]
        if number in self._objects:
            if self._objects[number] is not value:
                raise Mismatch
            return
        is_plain = type(value) in _TEXTS or plain_reference(value) is not None
        if len(reference) == 2 or id(value) in self._numbers or is_plain:
            raise Mismatch
        _, _, kind, facts, parts = reference
        try:
            found = anatomy(value)
        except NotPortable:
            raise Mismatch from None
        if found.kind != kind or found.facts != facts or len(found.parts) != len(parts):
            raise Mismatch
        self._objects[number] = value
        self._numbers[id(value)] = number
        for one, other in zip(parts, found.parts, strict=True):
            self.bind(one, other)

    def bind_named(self, reference: Reference) -> None:
        """Find an object by its name."""
        if len(reference) == 5:
            self.bind(reference, find_named(reference[2], reference[3]))

    def value(self, reference: Reference) -> Any:
        """What a reference stands for: a plain value that can be read back, or an object that is bound."""
        tag = reference[0]
        if tag == "o":
            return self._objects[reference[1]]
        if tag == "t":
            return tuple([self.value(one) for one in reference[1]])
        return read_plain(reference)


def read_plain(reference: Reference) -> Any:
    """The plain value of a reference, where its type can be read back."""
    tag = reference[0]
    if tag == "n":
        return None
    if tag in ("i", "s"):
        return reference[1]
    if tag == "y":
        return bytes.fromhex(reference[1])
    if tag == "z":
        return torch.Size(reference[1])
    if tag == "b":
        return reference[1] == "True"
    if tag == "f":
        return float(reference[1])
    if tag == "c":
        return complex(reference[1])
    if tag in ("d", "l", "m"):
        return getattr(torch, reference[1].removeprefix("torch."))
    if tag == "v":
        return _device(reference[1])
    raise NotPortable(f"a value of the kind {tag} is not read back")


def _device(text: str) -> torch.device:
    """The device of a text such as device(type='cuda', index=0)."""
    words = text.removeprefix("device(").removesuffix(")").replace("'", "").split(", ")
    parts = dict(word.split("=") for word in words)
    return torch.device(parts["type"], int(parts["index"])) if "index" in parts else torch.device(parts["type"])
