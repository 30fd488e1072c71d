"""Ordinary PyTorch code that the proof has to understand."""

from __future__ import annotations

import collections
import enum
import functools
import itertools
import math
import operator
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
import torch

from tests.frontend.jit.proof.cases import Case, Cases, check_proven, isinstance_chains, tensor

provable = Cases()
SCALE = 3.0
SIZES = [1, 2, 3]
TABLE = {"a": 1.0, "b": 2.0}
WEIGHT = tensor(4)


class Mode(enum.Enum):
    FAST = "fast"
    SLOW = "slow"


class Pair(NamedTuple):
    left: Any
    right: Any


@dataclass
class Settings:
    rate: float = 0.5
    steps: int = 2

    @property
    def total(self) -> float:
        return self.rate * self.steps

    def scaled(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.rate


class Named(collections.OrderedDict[str, Any]):
    """Drops an entry when it is made, as results of models do, and counts entries that it gives."""

    def __init__(self, **entries: Any) -> None:
        super().__init__(**entries)
        super().__delitem__("unwanted")

    def __delitem__(self, key: str) -> None:
        super().__delitem__(key)
        self["dropped"] = key


class Doubling(collections.OrderedDict[str, Any]):
    """Looks up entries in its own way."""

    def __getitem__(self, key: str) -> Any:
        return 2 * super().__getitem__(key)


FACTORS = Doubling(half=0.5)


class Slotted:
    __slots__ = ("rate",)

    def __init__(self) -> None:
        self.rate = 2.0


class Affine:
    shift = 1.0

    def __init__(self, scale: float):
        self.__scale = scale

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return self.apply(x) + self.shift

    def apply(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.__scale

    @staticmethod
    def double(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @classmethod
    def shifted(cls, x: torch.Tensor) -> torch.Tensor:
        return x + cls.shift


class Shifted(Affine):
    def apply(self, x: torch.Tensor) -> torch.Tensor:
        return super().apply(x) - 1


SETTINGS, AFFINE, SHIFTED, SLOTTED, MODE = Settings(), Affine(2.0), Shifted(3.0), Slotted(), Mode.FAST


@provable()
def gives_entries_other_values_while_it_iterates(x):
    table = {"a": 1, "b": 2}
    for key in table:
        table[key] = table[key] + 1
        x = x * table[key]
    return x


@provable()
def consumes_iterators_in_comprehensions(x):
    items = enumerate([3, 4])
    return x * sum(len(pair) for pair in [(1, 2), (3,)]) + [index for index, _ in items][1] + len(list(items))


@provable()
def drops_entries_of_an_ordered_dictionary(x):
    made = Named(kept=x, unwanted=x, other=x * 2)
    del made["other"]
    return made["kept"] * len(made["dropped"])


@provable()
def takes_an_entry_by_a_method_of_its_own(x):
    return x * FACTORS["half"]


@provable()
def arithmetic(x):
    return -x * 2 + 1 / (x + 3) - x**2 % 2


@provable(tensor(3, 4), tensor(4, 3))
def products(x, y):
    return (x @ y).T, torch.mm(x, y)


@provable()
def reads_a_global(x):
    return x * SCALE


@provable()
def reads_lists_and_dictionaries(x):
    return x * SIZES[1] * TABLE["a"] * TABLE.get("c", 4) * len(SIZES)


@provable()
def reads_attributes(x):
    return SETTINGS.scaled(x) * SETTINGS.total + SLOTTED.rate


@provable()
def calls_objects(x):
    return AFFINE(x) + SHIFTED(x) + Affine.double(x) + Affine.shifted(x)


@provable()
def branches_on_shapes(x):
    if x.shape[0] > 2 and x.dim() == 2:
        return x.sum(0)
    return x


@provable()
def branches_on_shapes_of_results(x):
    y = x[:, ::2].reshape(-1)
    return y * 2 if y.numel() == 6 else y


@provable()
def branches_on_dtypes(x):
    return x.to(torch.float64) if x.dtype == torch.float32 else x


@provable()
def branches_on_switches(x):
    y = x - 1
    if torch.is_grad_enabled():
        y = x + 1
    return y * 2


@provable()
def returns_in_either_branch(x):
    if x.is_contiguous():
        return x * 2
    return x.contiguous() * 2


@provable()
def loops(x):
    for index in range(3):
        if index == 1:
            continue
        x = x + index
    else:
        x = x * 2
    while x.dim() < 4:
        x = x.unsqueeze(0)
    return x


@provable()
def builds_lists(x):
    rows = []
    for row in x:
        rows.append(row * 2)
    rows += [x[0]]
    rows[0] = rows[1]
    return torch.stack(rows)


@provable()
def comprehensions(x):
    parts = [x * k for k in SIZES if k > 1]
    named = {f"part{i}": part for i, part in enumerate(parts)}
    return sum(named[name] for name in sorted(named))


@provable()
def unpacks(x):
    first, *rest = x.unbind(0)
    (a, b), c = (first, rest[0]), rest[-1]
    return a + b * c


@provable()
def results_with_names(x):
    found = torch.max(x, dim=1)
    return found.values + found.indices, found[0]


@provable(tensor(3, 4), tensor(3, 4), scale=2.0)
def keywords(x, /, y, *more, scale, shift=1.0, **others):
    return x * scale + y + shift + len(more) + len(others)


@provable()
def star_arguments(x):
    def inner(a, b, *, c=1, **rest):
        return a * b + c + rest.get("d", 0)

    return inner(*(x, 2), c=3, d=4)


@provable()
def closures(x):
    factor = 2

    def inner(y):
        nonlocal factor
        factor = factor + 1
        return y * factor

    return inner(x) + inner(x)


@provable()
def lambdas_and_map(x):
    return sum(map(lambda k: x * k, [1, 2])) + functools.reduce(operator.add, [x, x])  # noqa: C417


@provable()
def partial_functions(x):
    return functools.partial(torch.add, alpha=2)(x, x)


@provable()
def formatted_text(x):
    name = f"{'a'}{x.shape[0]:02d}"
    return x * len(name) if name == "a03" else x


@provable()
def dataclasses_made_inside(x):
    settings = Settings(rate=0.25)
    return settings.scaled(x)


@provable()
def named_tuples(x):
    pair = Pair(x, x * 2)
    return pair.left + pair[1]


@provable()
def enumerations(x):
    return x * 2 if MODE is Mode.FAST and MODE.value == "fast" else x


provable()(isinstance_chains)


@provable(None, tensor(3))
def optional_arguments(mask, x):
    return x if mask is None else x * mask


@provable([tensor(2), tensor(2)])
def lists_as_arguments(xs):
    return torch.cat(xs) * len(xs)


@provable({"a": tensor(2), "b": (tensor(2), 3.0)})
def dictionaries_as_arguments(tree):
    return dict.fromkeys(tree, tree["a"] * tree["b"][1])


@provable()
def chained_comparisons(x):
    return x * 2 if 0 < x.shape[0] <= 3 != x.shape[1] else x


@provable()
def assigned_expressions(x):
    if (count := x.shape[0]) > 1:
        x = x / count
    return x


@provable()
def errors_that_are_not_raised(x):
    if x.dim() != 2:
        raise ValueError(f"expected a matrix, got {x}")
    return x.softmax(-1)


@provable()
def errors_that_are_caught(x):
    try:
        scale = TABLE["missing"]
    except KeyError:
        scale = 0.5
    return x * scale


@provable()
def tries_with_finally(x):
    try:
        return x * 2
    finally:
        x = x + 1


@provable()
def mathematics(x):
    return x * math.sqrt(x.shape[-1]) + math.prod(x.shape) // 2 + max(x.shape) - min(1, 2) + abs(-1) + round(0.6)


@provable()
def texts(x):
    words = ["a", "b", "c"]
    return x * len(",".join(words).upper().replace("A", "zz"))


@provable()
def zips(x):
    for index, (scale, row) in enumerate(zip(SIZES, x, strict=True)):
        x = x + row * scale * index
    return x


@provable()
def chained_iterators(x):
    for scale in itertools.chain(SIZES, reversed(SIZES), (1,)):
        x = x * scale
    iterator = iter(SIZES)
    return x * next(iterator) + next(iterator) + next(iter([]), 1)


@provable()
def generators_that_are_kept(x):
    later = (x * k for k in SIZES)
    return torch.stack([*later])


@provable()
def sets_and_membership(x):
    names = {"a", "b"} | {"c"} if "a" in TABLE else set()
    return x * len(names) if "c" in names and 2 in SIZES else x


@provable()
def ordered_dictionaries(x):
    held = collections.OrderedDict(a=x)
    held.update(b=x * 2)
    held["c"] = held.pop("a")
    return list(held.values())[1] + held.setdefault("d", x)


@provable()
def getattr_with_names(x):
    return getattr(torch, "tanh")(x) * getattr(SETTINGS, "missing", 2.0) * hasattr(SETTINGS, "rate")  # noqa: B009


@provable()
def imports_inside(x):
    import math as mathematics

    from torch.nn.functional import relu

    return relu(x) * mathematics.pi


@provable()
def global_tensors(x):
    return x * WEIGHT + WEIGHT.shape[0]


@provable()
def recursion(x, depth: int = 3):
    return x if depth == 0 else recursion(x * 2, depth - 1)


@provable()
def operators_of_classes(x):
    class_free = _Vector(x) + _Vector(x * 2)
    return class_free.x


class _Vector:
    def __init__(self, x: Any):
        self.x = x

    def __add__(self, other: _Vector) -> _Vector:
        return _Vector(self.x + other.x)


@provable()
def context_managers_of_classes(x):
    with _Holding(x) as held:
        return held * 2


class _Holding:
    def __init__(self, x: Any):
        self.x = x

    def __enter__(self) -> Any:
        return self.x

    def __exit__(self, *args: Any) -> None:
        return None


@provable()
def slices_by_sizes(x):
    half = x.shape[-1] // 2
    return torch.cat((-x[..., half:], x[..., :half]), dim=-1)


@provable()
def deletes_names(x):
    y = x * 2
    del x
    return y


@provable()
def restores_what_it_sets(x):
    before = SETTINGS.rate
    SETTINGS.rate = 0.25
    try:
        y = SETTINGS.scaled(x)
    finally:
        SETTINGS.rate = before
    return y


@provable()
def splits_and_chunks(x):
    a, b = x.chunk(2, 1)
    c, d = torch.split(x, 2, 1)
    return a + b + c + d + x.size(0) + x.stride(0)


@provable()
def conditional_expressions(x):
    y = None if x.is_contiguous() else x
    return x if y is None else y + 1


provable(tensor(3, 4))(lambda x: x * 2 + SCALE)
provable(tensor(2, 4))(AFFINE.apply)
provable(tensor(2, 4))(AFFINE)
provable(tensor(2, 4))(functools.partial(keywords, tensor(2, 4), scale=2.0))


@pytest.mark.parametrize("case", provable, ids=str)
def test_ordinary_code_is_proven(case: Case):
    check_proven(case)
