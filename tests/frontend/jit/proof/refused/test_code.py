"""Code that must not be proven because what runs is not known: hooks, replaced functions, classes with answers of their
own, text."""

from __future__ import annotations

import abc
import collections
import copy
import functools
import re
from typing import Any

import pytest
import torch
from torch import nn

from ingot.frontend.jit.proof import Refusal, prove
from tests.frontend.jit.proof.cases import Case, Cases, Holder, check_refused, tensor

refused = Cases()
SCALE = 2.0
HOLDER = Holder()


@refused(reason="generator")
def calls_a_generator(x):
    return sum(_generate(x))


def _generate(x: Any) -> Any:
    yield x
    yield x * 2


@refused()
def evaluates_text(x):
    return eval("x * 2")


@refused()
def asks_for_locals(x):
    return x * len(locals())


@refused()
def copies_an_object(x):
    return x * copy.copy(HOLDER).scale


@refused()
def uses_regular_expressions(x):
    return x * len(re.findall("a", "banana"))


class Scaled:
    """What a program has put in place of a function of PyTorch's."""

    def __init__(self, function: Any):
        self.function = function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs) * SCALE


def scaled(function: Any) -> Any:
    @functools.wraps(function)
    def replacement(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs) * SCALE

    return replacement


@pytest.mark.parametrize("replace", [Scaled, scaled, lambda function: torch.no_grad()(scaled(function))])
@pytest.mark.parametrize(
    ("owner", "name", "function"),
    [
        (vars(torch._C)["_nn"], "nll_loss_nd", lambda x: nn.functional.nll_loss(x, torch.arange(3))),
        (torch.functional._VF, "tensordot", lambda x: torch.tensordot(x, x.T, dims=1)),
        (torch, "cat", lambda x: nn.functional.interpolate(x, scale_factor=2)),
        (torch.Tensor, "__rsub__", lambda x: 2 - x),
        (torch.Tensor, "__add__", lambda x: x + 2),
        (torch.Tensor, "dim", lambda x: nn.functional.embedding_bag(x.long(), x)),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_functions_of_pytorch_that_call_replaced_ones(
    owner: Any, name: str, function: Any, replace: Any, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(owner, name, replace(getattr(owner, name)), raising=False)
    found = prove(function, (tensor(3, 4),), {})
    assert isinstance(found, Refusal), f"what is in place of {name} may do anything"


@refused()
def makes_a_class(x):
    class Inner:
        scale = 2.0

    return x * Inner.scale


def _hooked(register: str, *args: Any, **options: Any) -> nn.Module:
    module = nn.Linear(4, 4)
    getattr(module, register)(*args, **options)
    return module


HOOKED = {
    "backward": _hooked("register_full_backward_hook", lambda *_: None),
    "with_kwargs": _hooked("register_forward_hook", lambda *_: None, with_kwargs=True),
    "before_with_kwargs": _hooked("register_forward_pre_hook", lambda *_: None, with_kwargs=True),
    "always": _hooked("register_forward_hook", lambda *_: None, always_call=True),
    "noting": _hooked("register_forward_hook", lambda *_: NOTES.append(1)),
}
NOTES: list[int] = []


@pytest.mark.parametrize("kind", HOOKED)
def test_hooks_that_are_not_understood_are_refused(kind: str):
    found = prove(lambda x: HOOKED[kind](x), (tensor(3, 4),), {})
    assert isinstance(found, Refusal) and ("hooks" in found.reason or "did not make" in found.reason), found


@refused()
def reads_a_variable_that_may_not_be_set(x):
    if x.is_contiguous():
        y = x * 2
    if x.is_contiguous():
        return y  # type: ignore[possibly-unbound]
    return x


@refused()
def generator_that_notices_a_change(x):
    scale = 2
    later = (x * scale for _ in range(2))
    scale = 3
    return sum(later)


@refused()
def calls_code_without_source(x):
    return _WRITTEN(x)


_names: dict[str, Any] = {}
exec("def written(x):\n    return x * 2", _names)
_WRITTEN = _names["written"]


class CountsInstances(type):
    def __instancecheck__(cls, instance: Any) -> bool:
        return SCALE == 2.0


class Counted(metaclass=CountsInstances): ...


class AlsoCounted(Counted): ...


class CountsClasses(type):
    def __subclasscheck__(cls, subclass: type) -> bool:
        return SCALE == 2.0


class CountedClass(metaclass=CountsClasses): ...


class WithHook(abc.ABC):  # noqa: B024
    @classmethod
    def __subclasshook__(cls, subclass: type) -> bool:
        return SCALE == 2.0


class AlsoHooked(WithHook): ...


class Pretending:
    @property
    def __class__(self) -> Any:  # type: ignore[override]
        return int if SCALE == 2.0 else float


class Initialised(collections.namedtuple("Initialised", ["value"])):
    def __init__(self, value: Any) -> None:
        self.more = SCALE


ALSO_COUNTED, ALSO_HOOKED, PRETENDING = AlsoCounted(), AlsoHooked(), Pretending()


@refused(reason="answers in its own way")
def asks_a_metaclass_about_a_subclass(x):
    return x * 2 if isinstance(ALSO_COUNTED, Counted) else x


@refused(reason="answers in its own way")
def asks_a_metaclass_about_a_class(x):
    return x * 2 if issubclass(CountedClass, CountedClass) else x


@refused(reason="answers in its own way")
def asks_a_hook_about_a_subclass(x):
    return x * 2 if isinstance(ALSO_HOOKED, WithHook) else x


@refused(reason="answers in its own way")
def asks_an_object_for_its_class(x):
    return x * 2 if isinstance(PRETENDING, int) else x


@refused(reason="not understood")
def makes_a_named_tuple_with_an_initialiser(x):
    return x * getattr(Initialised(1), "more", 1)


@pytest.mark.parametrize("case", refused, ids=str)
def test_is_refused(case: Case):
    check_refused(case)
