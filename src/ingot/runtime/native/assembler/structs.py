"""Structs: memory that Python and native routines share, each declared once, as a class with named fields.

In: a class with a line for each field, in the order in which they lie in memory. Out: of the class, `Step.entry` is the
distance of a field from the beginning, which native routines load and store by; of an object, `step.entry` is what its
memory holds. Objects are made with all their fields, by name: `Step(entry=..., is_parallel=...)`.

    class Step(Struct):
        entry: Field
        is_parallel: Field

What always holds: everything is in 64-bit words. A field that is missing, unknown or no word is an error at once, for
the type checker too. No order but that of the declaration means anything. A struct that continues another begins with
all its fields.
"""

from __future__ import annotations

import ctypes
import inspect
from collections.abc import Iterable
from enum import IntEnum
from typing import (
    Any,
    ClassVar,
    Generic,
    Literal,
    Self,
    TypeVar,
    dataclass_transform,
    get_args,
    get_origin,
    overload,
)

WORD_BYTES = 8
_LOWEST, _HIGHEST = -(1 << 63), (1 << 64) - 1
"""A word holds a signed or an unsigned number."""


class Code(IntEnum):
    """Numbers with names, from 0 on, that a word may hold."""

    @staticmethod
    def _generate_next_value_(name: str, start: int, count: int, last_values: list[int]) -> int:
        return count


class Field(int):
    """A word of a struct."""

    name: str

    @overload
    def __get__(self, instance: None, owner: type[Struct]) -> Field: ...
    @overload
    def __get__(self, instance: Struct, owner: type[Struct]) -> int: ...
    def __get__(self, instance: Struct | None, owner: type[Struct]) -> Field | int:
        return self if instance is None else instance.memory[self]

    def __set__(self, instance: Struct, value: int) -> None:
        if type(value) is not int or not _LOWEST <= value <= _HIGHEST:
            value = _checked(type(instance), self.name, value)
        instance.memory[self] = value


class Row(int):
    """Words side by side, which are 0 at first."""

    name: str
    length: int

    @overload
    def __get__(self, instance: None, owner: type[Struct]) -> Row: ...
    @overload
    def __get__(self, instance: Struct, owner: type[Struct]) -> list[int]: ...
    def __get__(self, instance: Struct | None, owner: type[Struct]) -> Row | list[int]:
        return self if instance is None else instance.memory[self : self + self.length]

    def __set__(self, instance: Struct, value: Iterable[int]) -> None:
        words = [_checked(type(instance), self.name, word) for word in value]
        if len(words) != self.length:
            raise TypeError(f"{type(instance).__name__}.{self.name} has {self.length} words, not {len(words)}")
        instance.memory[self : self + self.length] = words


def row(length: int, *, init: Literal[False] = False) -> Any:
    """The declaration of a row of so many words."""
    return _Length(length)


class _Length(int):
    """How long a row is to be."""


Part = TypeVar("Part", bound="Struct")


class Inline(int, Generic[Part]):
    """A struct inside another."""

    name: str
    struct: type[Part]

    @overload
    def __get__(self, instance: None, owner: type[Struct]) -> Inline[Part]: ...
    @overload
    def __get__(self, instance: Struct, owner: type[Struct]) -> Part: ...
    def __get__(self, instance: Struct | None, owner: type[Struct]) -> Inline[Part] | Part:
        return self if instance is None else _inside(instance, self.struct, self)

    def __set__(self, instance: Struct, value: Part) -> None:
        if not isinstance(value, self.struct):
            raise TypeError(f"{type(instance).__name__}.{self.name} is a {self.struct.__name__}, not {value!r}")
        instance.memory[self : self + self.struct.words()] = list(value.memory)


class Rows(int, Generic[Part]):
    """Structs side by side inside another, whose words are 0 at first."""

    name: str
    struct: type[Part]
    length: int

    @overload
    def __get__(self, instance: None, owner: type[Struct]) -> Rows[Part]: ...
    @overload
    def __get__(self, instance: Struct, owner: type[Struct]) -> tuple[Part, ...]: ...
    def __get__(self, instance: Struct | None, owner: type[Struct]) -> Rows[Part] | tuple[Part, ...]:
        if instance is None:
            return self
        size = self.struct.words()
        return tuple(_inside(instance, self.struct, self + index * size) for index in range(self.length))

    def __set__(self, instance: Struct, value: Any) -> None:
        raise AttributeError(f"{type(instance).__name__}.{self.name} is written struct by struct")


def rows(length: int, *, init: Literal[False] = False) -> Any:
    """The declaration of so many structs side by side."""
    return _Length(length)


def _inside(whole: Struct, struct: type[Part], word: int) -> Part:
    """The struct that begins at a word of another one."""
    part = struct.at(whole.address + word * WORD_BYTES)
    part.owner = whole  # the struct that owns the memory
    return part


class _Declaring(type):
    """What makes classes of structs: their objects have no attributes but the fields."""

    def __new__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **options: Any) -> _Declaring:
        return super().__new__(cls, name, bases, {"__slots__": (), **namespace}, **options)


@dataclass_transform(kw_only_default=True, field_specifiers=(row, rows))
class Struct(metaclass=_Declaring):
    """An object whose words lie in memory, as its class declares them."""

    _size: ClassVar[int] = 0
    _array: ClassVar[type[ctypes.Array[ctypes.c_int64]]] = ctypes.c_int64 * 0
    _given: ClassVar[frozenset[str]] = frozenset()
    """The fields that an object is made with."""
    __slots__ = ("memory", "owner")

    memory: ctypes.Array[ctypes.c_int64]
    owner: Struct

    def __init_subclass__(cls, like: type[Struct] | None = None) -> None:
        """A struct that is `like` another is as long: both can lie in one array. What it does not declare is 0."""
        given = set(cls._given)
        for name, declared in inspect.get_annotations(cls, eval_str=True).items():
            if any(hasattr(base, name) for base in cls.__bases__):
                raise TypeError(f"{cls.__name__}.{name} has another meaning already")
            field, length = _declared(cls, name, declared)
            if not isinstance(field, Row | Rows):
                given.add(name)
            field.name = name
            setattr(cls, name, field)
            cls._size += length
        if like is not None:
            if cls._size > like.words():
                raise TypeError(f"{cls.__name__} is longer than {like.__name__}")
            cls._size = like.words()
        cls._given, cls._array = frozenset(given), ctypes.c_int64 * cls._size

    def __init__(self, **values: Any):
        if values.keys() != self._given:
            self.check(values)
        self.memory = self._array()
        for name, value in values.items():
            setattr(self, name, value)

    @property
    def address(self) -> int:
        """Where its words are."""
        return ctypes.addressof(self.memory)

    def become(self, other: Self) -> None:
        """Hold what another holds: all words at once, as long as other threads wait for the GIL."""
        self.memory[:] = list(other.memory)

    @classmethod
    def words(cls) -> int:
        """How many words the struct has."""
        return cls._size

    @classmethod
    def check(cls, names: Iterable[str]) -> None:
        """Refuse names unless they are those of all fields that an object is made with."""
        given = frozenset(names)
        if missing := sorted(cls._given - given):
            raise TypeError(f"{cls.__name__} needs {', '.join(missing)}")
        if unknown := sorted(given - cls._given):
            raise TypeError(f"{cls.__name__} has no {', '.join(unknown)}")

    @classmethod
    def zeroed(cls) -> Self:
        """One whose words are all 0."""
        made = cls.__new__(cls)
        made.memory = cls._array()
        return made

    @classmethod
    def at(cls, address: int) -> Self:
        """The one whose words lie at an address, and stay there."""
        found = cls.__new__(cls)
        found.memory = cls._array.from_address(address)
        return found


def side_by_side(structs: Iterable[Struct]) -> ctypes.Array[ctypes.c_int64]:
    """A copy of the words of structs, one after the other."""
    words = b"".join([struct.memory for struct in structs])
    return (ctypes.c_int64 * (len(words) // WORD_BYTES)).from_buffer_copy(words)


def _declared(cls: type[Struct], name: str, declared: Any) -> tuple[Field | Row | Rows[Any] | Inline[Any], int]:
    """A field that begins where the struct has ended so far, and its length."""
    if declared is Field:
        return Field(cls.words()), 1
    length, parts = cls.__dict__.get(name), get_args(declared)
    if declared is Row and isinstance(length, _Length):
        words = Row(cls.words())
        words.length = int(length)
        return words, words.length
    if get_origin(declared) is Rows and isinstance(length, _Length):
        structs: Rows[Any] = Rows(cls.words())
        (structs.struct,), structs.length = parts, int(length)
        return structs, structs.length * structs.struct.words()
    if get_origin(declared) is Inline:
        inline: Inline[Any] = Inline(cls.words())
        (inline.struct,) = parts
        return inline, inline.struct.words()
    raise TypeError(f"{cls.__name__}.{name} is declared as {declared}, which is no field")


def _checked(struct: type[Struct], name: str, value: Any) -> int:
    if not isinstance(value, int):
        raise TypeError(f"{struct.__name__}.{name} is a word, not {value!r}")
    if not _LOWEST <= value <= _HIGHEST:
        raise OverflowError(f"{struct.__name__}.{name} has 64 bits, too few for {value}")
    return value
