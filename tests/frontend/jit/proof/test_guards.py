"""What a proof depends on: each change below has to break a guard, and the proof has to hold again without it."""

from __future__ import annotations

import abc
import builtins
import contextlib
import contextvars
import enum
import math
import os
import sys
import types
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from ingot.frontend.jit.proof import Proof, prove
from ingot.frontend.jit.proof.domain.place_guards import is_same
from tests.frontend.jit.proof.cases import Case, Cases, tensor
from tests.frontend.jit.proof.changes import Change, attribute, entry

stateful = Cases()
changes: dict[str, list[Callable[[], Any]]] = {}
SCALE: Any = 3.0
SIZES: list[Any] = [1, 2, 3]
TABLE: dict[Any, Any] = {"a": 1.0, "nested": {"rate": [0.1, 0.2]}}
MEMBERS = {"a"}
WEIGHT = tensor(4)
MODULE = types.ModuleType("settings_of_a_test")
MODULE.scale = 2.0  # type: ignore[attr-defined]
NAMESPACE = types.SimpleNamespace(scale=2.0)
VARIABLE: contextvars.ContextVar[float] = contextvars.ContextVar("scale")
VARIABLE.set(2.0)
SENTINEL = object()
HELD: Any = SENTINEL


class Level(enum.Enum):
    LOW = 1.0
    HIGH = 2.0


class Abstract(abc.ABC):  # noqa: B024
    pass


class Settings:
    scale = 2.0

    def __init__(self) -> None:
        self.rate = 0.5

    @property
    def twice(self) -> float:
        return self.rate * 2

    def apply(self, x: Any) -> Any:
        return x * self.rate

    def __mul__(self, x: Any) -> Any:
        return x * self.scale

    def __len__(self) -> int:
        return 2


class Derived(Settings):
    def apply(self, x: Any) -> Any:
        return super().apply(x) + 1


class Slotted:
    __slots__ = ("rate",)

    def __init__(self) -> None:
        self.rate = 2.0


class Entries(dict):  # type: ignore[type-arg]
    pass


class Vector(NamedTuple):
    x: float
    y: float

    def __add__(self, other: Any) -> Any:
        return Vector(self.x + other.x * SCALE, self.y)

    def __mul__(self, other: Any) -> Any:
        return Vector(self.x * other * SCALE, self.y)

    def __eq__(self, other: object) -> bool:
        return SCALE == 3.0

    def __bool__(self) -> bool:
        return SCALE == 3.0

    __hash__ = None  # type: ignore[assignment]


class Doubted(dict):  # type: ignore[type-arg]
    def __bool__(self) -> bool:
        return SCALE == 3.0


class Formatted:
    def __format__(self, layout: str) -> str:
        return "a" if SCALE == 3.0 else "other"

    def __str__(self) -> str:
        return "b"

    def __iter__(self) -> Any:
        return iter([1.0])

    def __reversed__(self) -> Any:
        return iter([SCALE])


VECTOR, FORMATTED = Vector(3.0, 4.0), Formatted()
SETTINGS, DERIVED, SLOTTED, ENTRIES = Settings(), Derived(), Slotted(), Entries(a=2.0)
NETWORK = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.BatchNorm1d(4), nn.Dropout(0.5)).eval()
OPTIMIZER = torch.optim.SGD([nn.Parameter(torch.zeros(2))], lr=0.1)


def deleted(name: str) -> Change:
    @contextlib.contextmanager
    def change():
        before = globals().pop(name)
        yield
        globals()[name] = before

    return change


@contextlib.contextmanager
def _reordered():
    TABLE["a"] = TABLE.pop("a")
    yield
    TABLE.update({key: TABLE.pop(key) for key in list(TABLE) if key != "a"})


@contextlib.contextmanager
def _setting():
    token = VARIABLE.set(3.0)
    yield
    VARIABLE.reset(token)


@contextlib.contextmanager
def _switching():
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


@contextlib.contextmanager
def _registered():
    Abstract.register(Settings)
    yield


def with_changes(*args: Any, **named: Change) -> Callable[[Any], Any]:
    """Registers a function with things that can be changed about it."""

    def add(function: Any) -> Any:
        stateful(*args)(function)
        changes[function.__name__] = list(named.values())
        return function

    return add


def global_is(name: str, value: Any) -> Change:
    return attribute(sys.modules[__name__], name, value)


@with_changes(
    value=global_is("SCALE", 4.0),
    kind=global_is("SCALE", 3),
    deleted=deleted("SCALE"),
)
def reads_a_global(x):
    return x * SCALE


@with_changes(
    item=entry(SIZES, 1, 5),
    kind=entry(SIZES, 0, True),
    whole=global_is("SIZES", [1, 2, 3, 4]),
)
def reads_a_list(x):
    return x * SIZES[0] * SIZES[1]


@with_changes(
    entry=entry(TABLE, "a", 2.0),
    added=entry(TABLE, "b", 2.0),
    inside=entry(TABLE["nested"]["rate"], 0, 0.5),
)
def reads_dictionaries(x):
    return x * TABLE["a"] * TABLE.get("b", 1.0) * TABLE["nested"]["rate"][0]


@with_changes(added=entry(TABLE, "b", 2.0), order=_reordered)
def iterates_over_a_dictionary(x):
    return x * len(",".join(TABLE))


@with_changes(added=global_is("MEMBERS", {"a", "b"}))
def reads_a_set(x):
    return x * 2 if "b" in MEMBERS else x


@with_changes(
    rate=attribute(SETTINGS, "rate", 0.25),
    scale=attribute(Settings, "scale", 3.0),
    shadowed=attribute(SETTINGS, "scale", 3.0),
    method=attribute(Settings, "apply", lambda self, x: x),
    own_method=attribute(SETTINGS, "apply", lambda x: x),
    getter=attribute(Settings, "twice", property(lambda self: 1.0)),
    lookup=attribute(Settings, "__getattribute__", lambda self, name: object.__getattribute__(self, name)),
    cls=attribute(SETTINGS, "__class__", Derived),
    dictionary=attribute(SETTINGS, "__dict__", {"rate": 0.5}),
    code=attribute(Settings.apply, "__code__", (lambda self, x: x).__code__),
    operator=attribute(Settings, "__mul__", lambda self, x: x),
    length=attribute(Settings, "__len__", lambda self: 3),
)
def reads_an_object(x):
    return (SETTINGS * SETTINGS.apply(x)) * SETTINGS.twice * len(SETTINGS)


@with_changes(
    base=attribute(Settings, "apply", lambda self, x: x),
    derived=attribute(Derived, "apply", lambda self, x: x),
)
def calls_super(x):
    return DERIVED.apply(x)


@with_changes(slot=attribute(SLOTTED, "rate", 3.0))
def reads_a_slot(x):
    return x * SLOTTED.rate


@with_changes(entry=entry(ENTRIES, "a", 3.0))
def reads_a_subclass_of_dict(x):
    return x * ENTRIES["a"]


@with_changes(attribute=attribute(NAMESPACE, "scale", 3.0))
def reads_a_namespace(x):
    return x * NAMESPACE.scale


@with_changes(attribute=attribute(MODULE, "scale", 3.0))
def reads_a_module(x):
    return x * MODULE.scale


@with_changes(
    attribute=attribute(math, "pi", 3.0),
    hidden=entry(globals(), "len", lambda value: 1),
)
def imports_inside(x):
    import math as mathematics

    return x * mathematics.pi * len(SIZES)


@with_changes(
    relu=attribute(F, "relu", torch.tanh),
    inner=attribute(torch, "relu", torch.tanh),
    method=attribute(torch.Tensor, "sum", torch.Tensor.mean),
    operator=attribute(torch.Tensor, "__add__", torch.Tensor.__sub__),
    index=attribute(torch.Tensor, "__getitem__", lambda self, key: self),
)
def calls_functions_of_pytorch(x):
    return (F.relu(x) + x[0]).sum()


@with_changes(
    code=attribute(lambda: _helper, "__code__", (lambda x, scale=1.0, *, shift=0: x).__code__),
    defaults=attribute(lambda: _helper, "__defaults__", (2.0,)),
    keywords=attribute(lambda: _helper, "__kwdefaults__", {"shift": 2.0}),
    hung=attribute(lambda: _helper, "scale", 7.0),
    whole=attribute(sys.modules[__name__], "_helper", lambda x: x),
)
def calls_a_function(x):
    return _helper(x) * getattr(_helper, "scale")  # noqa: B009


def _helper(x: Any, scale: float = 1.0, *, shift: float = 1.0) -> Any:
    return x * scale + shift


_helper.scale = 5.0  # type: ignore[attr-defined]


def _closing() -> Any:
    factor = 2.0

    def closes(x):
        return x * factor

    return closes


CLOSING = _closing()


@with_changes(cell=attribute(CLOSING.__closure__[0], "cell_contents", 3.0))
def reads_a_closure(x):
    return CLOSING(x)


@with_changes(
    weight=attribute(NETWORK[0], "weight", nn.Parameter(torch.zeros(4, 4))),
    bias=entry(NETWORK[0]._parameters, "bias", None),
    forward=attribute(nn.Linear, "forward", lambda self, x: x),
    own_forward=attribute(NETWORK[1], "forward", lambda x: x),
    training=attribute(NETWORK[3], "training", True),
    rate=attribute(NETWORK[2], "eps", 1.0),
    replaced=entry(NETWORK._modules, "1", nn.Tanh()),
    added=entry(NETWORK._modules, "4", nn.Tanh()),
    hook=entry(NETWORK[0]._forward_hooks, 1, lambda *args: None),
    pre_hook=entry(NETWORK[0]._forward_pre_hooks, 1, lambda *args: None),
    global_hook=entry(nn.modules.module._global_forward_hooks, 1, lambda *args: None),
    call=attribute(nn.Module, "__call__", lambda self, x: x),
    implementation=attribute(nn.Module, "_call_impl", lambda self, x: x),
    data=attribute(NETWORK[0].weight, "data", torch.zeros(4, 4, dtype=torch.float64)),
    requires_grad=attribute(NETWORK[0].weight, "requires_grad", False),
)
def calls_a_network(x):
    return NETWORK(x)


def _hooked(factor: float) -> nn.Module:
    module = nn.Linear(4, 4)
    module.register_forward_hook(lambda module, args, result: result * factor)  # pyright: ignore[reportOperatorIssue]
    module.register_forward_pre_hook(lambda module, args: (args[0] + 1,))
    return module


HOOKED: Any = _hooked(2.0)
(AFTER,), (BEFORE,) = HOOKED._forward_hooks, HOOKED._forward_pre_hooks


@with_changes(
    closure=attribute(HOOKED._forward_hooks[AFTER].__closure__[0], "cell_contents", 3.0),
    after=entry(HOOKED._forward_hooks, AFTER, lambda *_: None),
    before=entry(HOOKED._forward_pre_hooks, BEFORE, lambda *_: None),
    another=entry(HOOKED._forward_hooks, AFTER + 1_000_000, lambda *_: None),
    with_keywords=entry(HOOKED._forward_hooks_with_kwargs, AFTER, True),
    before_with_keywords=entry(HOOKED._forward_pre_hooks_with_kwargs, BEFORE, True),
    with_keywords_everywhere=entry(nn.modules.module._global_forward_hooks_with_kwargs, AFTER, True),
    always=entry(HOOKED._forward_hooks_always_called, AFTER, True),
    backward=entry(HOOKED._backward_hooks, 1, lambda *_: None),
)
def calls_a_module_with_hooks(x):
    return HOOKED(x)


@with_changes(whole=global_is("WEIGHT", torch.zeros(4)), hung=attribute(WEIGHT, "scale", 3.0))
def reads_a_tensor(x):
    return x * WEIGHT * getattr(WEIGHT, "scale", 2.0)


@with_changes(rate=entry(OPTIMIZER.param_groups[0], "lr", 0.5))
def reads_an_optimizer(x):
    return x * OPTIMIZER.param_groups[0]["lr"]


@with_changes(value=attribute(Level.HIGH, "_value_", 3.0))
def reads_an_enumeration(x):
    return x * Level.HIGH.value


@with_changes(identity=global_is("HELD", object()))
def compares_a_sentinel(x):
    return x * 2 if HELD is SENTINEL else x


@with_changes(variable=_setting)
def reads_a_context_variable(x):
    return x * VARIABLE.get()


@with_changes(entry=entry(os.environ, "INGOT_TEST_SCALE", "3"))
def reads_the_environment(x):
    return x * float(os.environ.get("INGOT_TEST_SCALE", "2"))


@with_changes(switch=_switching)
def reads_a_switch(x):
    return x * 2 if torch.are_deterministic_algorithms_enabled() else x


@with_changes(builtin=attribute(builtins, "len", lambda value: 7))
def calls_a_builtin(x):
    return x * len(x.shape)


@with_changes(name=attribute(Settings, "__name__", "Other"))
def reads_the_name_of_a_class(x):
    return x * len(type(SETTINGS).__name__)


@with_changes(value=attribute(sys.modules[__name__], "SCALE", 4.0))
def uses_operators_of_named_tuples(x):
    made = Vector(1.0, 2.0)
    return x * (made + VECTOR)[0] * (made * 2)[0] * (2 if made == VECTOR else 3) * (4 if VECTOR else 5)


@with_changes(value=attribute(sys.modules[__name__], "SCALE", 4.0))
def asks_dictionaries_of_classes_for_their_truth(x):
    made = Doubted()
    made["a"] = 1
    return x * 2 if made else x


@with_changes(value=attribute(sys.modules[__name__], "SCALE", 4.0))
def reverses_by_a_method(x):
    return x * next(reversed(FORMATTED))


@with_changes(value=attribute(sys.modules[__name__], "SCALE", 4.0))
def formats_by_a_method(x):
    return x * len(f"{FORMATTED}")


@with_changes(registered=_registered)
def asks_for_an_abstract_class(x):
    return x * 2 if isinstance(SETTINGS, Abstract) else x


@pytest.mark.parametrize(
    ("case", "change"),
    [pytest.param(case, change, id=f"{case}-{i}") for case in stateful for i, change in enumerate(changes[str(case)])],
)
def test_a_change_breaks_the_proof(case: Case, change: Change):
    proof = prove(case.function, case.args, case.kwargs)
    assert isinstance(proof, Proof), proof
    assert proof.broken() is None
    with change():
        broken = proof.broken()
    assert broken is not None


def test_plain_values_are_compared_by_type_and_value():
    assert is_same(1000, 10**3) and is_same("ab", "".join(["a", "b"])) and is_same((1, 2.0), (1, 2.0))
    assert not is_same(1, True) and not is_same(1, 1.0) and not is_same(0.0, -0.0)
    assert not is_same((1,), (True,)) and not is_same([1], [1])
    assert is_same(float("nan"), float("nan"))
    assert is_same(range(0, 3, 2), range(0, 3, 2)) and not is_same(range(0, 3, 2), range(0, 4, 2))


def test_objects_among_the_arguments_are_named():
    proof = prove(lambda module, x: module(x), (NETWORK, tensor(2, 4)), {})
    assert isinstance(proof, Proof)
    assert [(argument.path, argument.value) for argument in proof.arguments] == [((0,), NETWORK)]


def test_attributes_that_tensors_must_not_have_are_named():
    def asks(x):
        return x * getattr(x, "scale", 2.0)

    proof = prove(asks, (tensor(2),), {})
    assert isinstance(proof, Proof) and proof.absent == [((0,), "scale")]
    marked = tensor(2)
    marked.scale = 3.0  # type: ignore[attr-defined]
    assert not isinstance(prove(asks, (marked,), {}), Proof)


def test_objects_that_are_returned_as_they_are_are_named():
    def returns(x, xs):
        return {"x": x * 2, "table": [TABLE], "level": Level.LOW, "arguments": (xs, 1.0, None)}

    proof = prove(returns, (tensor(2), [tensor(2)]), {})
    assert isinstance(proof, Proof)
    assert len(proof.returned) == 3
    assert proof.returned[0] is TABLE and proof.returned[1] is Level.LOW and proof.returned[2] is ...
    proof = prove(reads_dictionaries, (tensor(2),), {})
    assert isinstance(proof, Proof) and proof.returned == []
