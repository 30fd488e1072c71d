"""Classes whose objects the walk handles as Python does."""

from __future__ import annotations

import collections
import dataclasses
import enum
from typing import Any, NamedTuple


class Base:
    kind = "base"
    count = 1

    def __init__(self, value: int = 1):
        self.value = value
        self.__hidden = value * 10

    def name(self) -> str:
        return f"{self.kind}:{self.value}:{self.__hidden}"

    @property
    def double(self) -> int:
        return self.value * 2

    @double.setter
    def double(self, value: int) -> None:
        self.value = value // 2

    @classmethod
    def make(cls, value: int) -> Base:
        return cls(value + cls.count)

    @staticmethod
    def add(a: int, b: int) -> int:
        return a + b

    def __len__(self) -> int:
        return self.value

    def __add__(self, other: Any) -> Any:
        return NotImplemented if isinstance(other, str) else self.value + other

    def __radd__(self, other: Any) -> Any:
        return other - self.value

    def __getitem__(self, key: Any) -> Any:
        return (self.value, key)

    def __contains__(self, key: Any) -> bool:
        return key == self.value

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return (args, sorted(kwargs))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Base) and other.value == self.value

    __hash__ = None  # type: ignore[assignment]


class Left(Base):
    kind = "left"

    def name(self) -> str:
        return "L" + super().name()


class Right(Base):
    kind = "right"
    count = 5

    def name(self) -> str:
        return "R" + super().name()


class Both(Left, Right):
    def __getattr__(self, name: str) -> str:
        if name.startswith("no"):
            raise AttributeError(name)
        return name * 2

    def name(self) -> str:
        return "B" + super().name()


class Color(enum.Enum):
    RED = 1
    BLUE = 2


class Point(NamedTuple):
    x: int
    y: int = 7


@dataclasses.dataclass
class Record:
    a: int
    b: list[int] = dataclasses.field(default_factory=list)
    c: int = 3

    def __post_init__(self) -> None:
        self.b.append(self.a)


@dataclasses.dataclass(frozen=True)
class Frozen:
    a: int
    b: tuple[int, ...] = (1, 2)


class Bag(collections.OrderedDict):  # type: ignore[type-arg]
    def __getitem__(self, key: Any) -> Any:
        return super().__getitem__(key) * 2


class Backwards:
    """Python reverses it by its items, and not by its iterator."""

    def __iter__(self) -> Any:
        return iter([5])

    def __len__(self) -> int:
        return 2

    def __getitem__(self, key: int) -> int:
        return key * 3
