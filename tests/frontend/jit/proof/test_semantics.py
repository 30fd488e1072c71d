"""The walk computes what Python computes: functions of plain values are walked and called, and have to agree."""

from __future__ import annotations

import collections
import functools
import itertools
import math
from typing import Any

import pytest

from ingot.frontend.jit.proof.domain.abstract_values import AbstractValue, Fresh, Known, Raised, Tuple, View, known
from ingot.frontend.jit.proof.walk.walker import Walker
from tests.frontend.jit.proof.cases import Case, Cases
from tests.frontend.jit.proof.examples import Backwards, Bag, Base, Both, Color, Frozen, Left, Point, Record, Right

program = Cases()
TABLE = {"b": 2, "a": 1, "c": [3, 4]}
LETTERS = ["x", "y", "z"]


BOTH: Any = Both(3)
BASE: Any = Base(4)


@program(10)
def loops(n):
    found = []
    for i in range(n):
        if i % 2:
            continue
        if i > 6:
            break
        found.append(i)
    else:
        found.append("never")
    for _ in ():
        pass
    else:
        found.append("else")
    while True:
        n -= 3
        if n < 0:
            break
    return found, n


@program(3)
def closures(n):
    functions = [lambda: i for i in range(n)]  # noqa: B023
    others = [lambda i=i: i for i in range(n)]
    total = 0

    def add(k):
        nonlocal total
        total += k
        return total

    return [f() for f in functions], [f() for f in others], add(1), add(2), total


@program(2, 3, 4, key=5, other=6)
def arguments(a, /, b, *rest, key, default=9, **more):
    def inner(x, y=b, *args, z=a):
        return x, y, args, z

    return a, b, rest, key, default, more, inner(1), inner(*[1, 2, 3], z=0)


@program()
def exceptions():
    log = []

    def attempt(action):
        try:
            log.append("try")
            action()
        except KeyError as error:
            log.append("key")
            return type(error).__name__
        except (IndexError, AttributeError):
            log.append("index")
        else:
            log.append("else")
            return "done"
        finally:
            log.append("finally")
        return "after"

    results = [
        attempt(lambda: {}["a"]),
        attempt(lambda: [][1]),
        attempt(lambda: BASE.missing),
        attempt(lambda: 1),
    ]
    try:
        try:
            raise ValueError("inner")
        finally:
            log.append("cleanup")
    except ValueError:
        log.append("outer")
    return log, results


@program()
def finally_overrides():
    for i in range(3):
        try:
            if i == 1:
                return "returned"
        finally:
            i += 10
    return None


@program()
def classes():
    made: Any = Both.make(2)
    made.double = 20
    return made.name(), made.double, len(made), made.anything, hasattr(made, "nope"), Left(1).name(), Base.add(1, 2)


@program()
def special_methods():
    return (
        BASE + 2,
        10 + BASE,
        BASE[1:2],
        BASE["k"],
        4 in BASE,
        5 in BASE,
        BASE(1, b=2, a=3),
        Base(4) == BASE,
        bool(Base(0)),
    )


@program()
def class_attributes():
    made = Base()
    made.count = 7
    return (
        made.count,
        Base.count,
        type(made).__name__,
        isinstance(BOTH, Right),
        issubclass(Both, Left),
        Both.__mro__[1].__name__,
    )


@program()
def records():
    first, second = Record(1), Record(2, [9])
    return first.a, first.b, second.b, second.c, Frozen(5).b, Frozen(5, ()).a, Point(1).y, Point(x=3, y=4)[1]


@program()
def enumerations():
    return Color.RED.value, Color.BLUE.name, Color.RED is Color.RED, Color.RED == Color.BLUE, {Color.RED: 1}[Color.RED]


@program()
def dictionaries():
    held = {"b": 1, **TABLE, "z": 0}
    held["new"] = held.pop("b")
    held.setdefault("new", 100)
    held.update({"a": 5}, q=6)
    del held["z"]
    return (
        list(held),
        list(held.items()),
        held.get("none"),
        held.get("none", 3),
        "a" in held,
        len(held),
        list(reversed(list(held))),
    )


@program()
def dictionary_keys():
    held: dict[Any, str] = {1: "int"}
    held[True] = "bool"
    held[1.0] = "float"
    held[(1, 2)] = "tuple"
    return held, list(map(type, held)) == [int, tuple]


@program()
def lists():
    held = [3, 1, 2]
    alias = held
    held += [4]
    held.insert(0, 9)
    held.extend(x for x in (7, 8))
    popped = held.pop(), held.pop(0)
    held[1], held[0] = held[0], held[1]
    held.reverse()
    copied = held.copy()
    copied.append(0)
    del copied[0]
    return (
        held,
        alias is held,
        popped,
        copied,
        held[::-1],
        held[1:3],
        sorted(held),
        sorted(held, key=lambda v: -v),
        held.index(2),
        held * 2,
    )


@program()
def sets():
    held = {1, 2} | {3}
    held.add(4)
    held.discard(1)
    return sorted(held), 2 in held, sorted({1, 2, 3} & held), sorted(held - {2}), len(set("abca")), {1}.issubset(held)


@program()
def texts():
    name = "Abc"
    return (
        f"{name!r:>8}|{3.14159:.2f}|{5:03d}|{name}|{[1, 'a']!s}"
        if False
        else f"{name!r:>8}|{3.14159:.2f}|{5:03d}|{name}",
        "%s-%d" % (name, 3),  # noqa: UP031
        "{}-{k}".format(1, k=2),  # noqa: UP032
        name.lower().replace("a", "x").split("b"),
        "-".join(LETTERS),
        "b" in name,
        name[::-1],
        str(3.0) + repr("q"),
    )


@program()
def iterators():
    iterator = iter([1, 2, 3, 4])
    first = next(iterator)
    rest = list(iterator)
    pairs = list(zip(LETTERS, itertools.chain((1, 2), [3]), strict=True))
    return (
        first,
        rest,
        next(iterator, "end"),
        pairs,
        list(enumerate(LETTERS, 1)),
        list(map(len, ["a", "bb"])),
        list(filter(None, [0, 1])),
        list(itertools.repeat(1, 3)),
        sum([1, 2], 10),
    )


@program()
def loops_over_iterators():
    iterator, found = iter(range(6)), []
    for value in iterator:
        found.append((value, next(iterator)))
    return found


@program()
def unpacking():
    a, (b, *c), d = 1, (2, 3, 4), [5]
    *e, f = "xyz"
    (g,) = d
    h = i = [0]
    h.append(1)
    return a, b, c, d, e, f, g, i


@program(5)
def conditions(n):
    return (
        1 < n < 10 > 3,
        1 < n > 10 < 3,
        (n and "yes") or "no",
        0 or [] or n - n or "last",
        not n,
        None is None,
        n if n > 9 else -n,
        (m := n + 1, m * 2),
        n not in [1, 2],
        all(v > 0 for v in (1, 2)),
        any([]),
    )


@program(7)
def numbers(n):
    return (
        n // 2,
        n % 3,
        -n // 2,
        n**2,
        n / 2,
        n << 1,
        n & 3,
        n ^ 1,
        ~n,
        +n,
        divmod(n, 4),
        round(2.567, 1),
        math.floor(2.5),
        max(1, n, 3),
        min([4, 2]),
        abs(-n),
        int("12"),
        float("1.5"),
        bool(0),
    )


@program()
def comprehensions():
    n = "outer"
    squares = [n * n for n in range(3)]
    nested = [(a, b) for a in range(3) for b in range(a) if a != b]
    mapping = {k: v for k, v in TABLE.items() if k != "c"}
    last = [seen := v for v in (1, 2, 3)]
    return n, squares, nested, mapping, last, seen, {v % 2 for v in range(4)}


@program()
def generators():
    values = [1, 2, 3]
    return sum(v * 2 for v in values), tuple(v for v in values if v > 1), max(len(name) for name in LETTERS)


@program()
def partials():
    def minus(a, b, c=0):
        return a - b - c

    bound = functools.partial(minus, 10, c=1)
    return bound(2), bound(2, c=5), functools.reduce(minus, [10, 1, 2])


@program()
def subclasses_of_containers():
    bag = Bag(a=1)
    bag["b"] = 2
    return bag["a"], list(bag), bag.get("b"), len(bag), list(bag.values())


@program()
def shadowed_names():
    len = lambda value: -1
    return len([1, 2])


@program()
def deletes_and_defines_again():
    value = 1
    del value
    value = 2
    return value, 1


@program()
def attributes_of_functions():
    def inner():
        """Text."""

    return inner.__name__, texts.__name__, len(arguments.__code__.co_varnames)


@program()
def identities():
    a, b = [], []
    return a is b, a is a, a == b, None is not None, type(a) is list, LETTERS is LETTERS, Color.RED is not None


@program()
def classes_of_results():
    ordered, frozen = collections.OrderedDict(a=1), frozenset([1, 2])
    return (
        isinstance(ordered.copy(), collections.OrderedDict),
        isinstance(frozen | {3}, frozenset),
        isinstance({3} | frozen, frozenset),
        type(Point(1) + Point(2)) is tuple,
        type(Point(1) * 2) is tuple,
    )


@program()
def named_tuples_beside_tuples():
    return (
        Point(1, 2) == (1, 2),
        Point(1, 2) == (1, 2, 3),
        Point(1, 2) != (1, 3),
        Point(1, 2) == [1, 2],
        Point(1) in [(1, 7)],
    )


@program()
def texts_in_ascii():
    letter = "\u00e9"
    return f"{letter!a}", f"{letter!r:>6}", f"{3!a}"


@program()
def reversed_by_items():
    class_of = Backwards()
    return list(reversed(class_of)), list(reversed([1, 2])), list(reversed({"a": 1, "b": 2})), list(reversed("ab"))


@program()
def nested_functions():
    def outer(n):
        def inner(m):
            return 1 if m <= 1 else m * inner(m - 1)

        return inner(n)

    return outer(5), (lambda *args, **kwargs: (args, kwargs))(1, a=2)


def _concrete(walker: Walker, value: AbstractValue) -> Any:
    """What an abstract value stands for."""
    match value:
        case Known():
            return value.value
        case Tuple():
            return tuple(_concrete(walker, item) for item in value.items)
        case View():
            return _concrete(walker, value.mapping)
        case Fresh():
            held = walker.state.items[value.identity]
            if isinstance(held, tuple):
                return [_concrete(walker, item) for item in held]
            if issubclass(value.cls, set):
                return set(held)
            return {key: _concrete(walker, item) for key, item in held.items()}
    raise AssertionError(value)


@pytest.mark.parametrize("case", program, ids=str)
def test_the_walk_agrees_with_python(case: Case):
    args = case.args if case.function.__code__.co_argcount else ()
    walker = Walker()
    found = walker.call(
        known(case.function), [known(value) for value in args], {k: known(v) for k, v in case.kwargs.items()}
    )
    expected = case.function(*args, **case.kwargs)
    assert _typed(_concrete(walker, found)) == _typed(expected)


def _typed(value: Any) -> Any:
    """A value in which 1, True and 1.0 differ."""
    if isinstance(value, list | tuple):
        return [_typed(item) for item in value]
    if isinstance(value, dict):
        return [(_typed(key), _typed(item)) for key, item in value.items()]
    return type(value).__name__, value


def test_an_uncaught_exception_leaves_the_walk():
    def raises(values):
        return values["missing"]

    with pytest.raises(Raised) as raised:
        Walker().call(known(raises), [known({})])
    assert raised.value.cls is KeyError
