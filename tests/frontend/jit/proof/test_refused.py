"""Code that must not be proven: it has effects, reads what no guard sees, or decides by values."""

from __future__ import annotations

import abc
import collections
import contextlib
import contextvars
import copy
import datetime
import functools
import gc
import io
import itertools
import logging
import os
import pathlib
import queue
import random
import re
import sys
import tempfile
import threading
import time
import types
import uuid
import warnings
import weakref
from typing import Any

import numpy
import pytest
import torch
from torch import nn

from ingot.frontend.jit.proof import Refusal, prove
from tests.frontend.jit.proof.cases import Case, Cases, check_refused, tensor

refused = Cases()
SEEN: list[Any] = []
SCALE = 2.0
COUNTS = {"calls": 0}
MEMBERS: set[int] = set()
COUNTER = 0
LOCAL = threading.local()
LOCAL.scale = 2.0
VARIABLE: contextvars.ContextVar[float] = contextvars.ContextVar("scale", default=2.0)
ARRAY = numpy.ones(4, dtype=numpy.float32)
GENERATOR = random.Random(0)
DRAWS = torch.Generator()
QUEUE: queue.Queue[int] = queue.Queue()
COUNTING = itertools.count()
LOGGER = logging.getLogger(__name__)
STREAM = io.StringIO()
LOCK = threading.Lock()
DEFAULTS: collections.defaultdict[str, float] = collections.defaultdict(float)
DEQUE: collections.deque[int] = collections.deque([1, 2])


class Shown: ...


class Holder:
    def __init__(self) -> None:
        self.scale = 2.0
        self.calls = 0

    def __del__(self) -> None:
        pass


HOLDER = Holder()
WEAK = weakref.ref(HOLDER)
PROXY = weakref.proxy(HOLDER)
NAMESPACE = types.MappingProxyType({"scale": 2.0})


@refused(reason="has changed since")
def shown_attributes(x):
    holder: Any = Shown()
    shown = holder.__dict__
    holder.added = 5
    return x * SCALE if "added" in shown else x


@refused(reason="has changed since")
def shown_entries(x):
    entries = {"scale": 1.0}
    shown = types.MappingProxyType(entries)
    entries["scale"] = 5.0
    return x * SCALE if shown["scale"] > 3 else x


@refused(reason="variable 'COUNTER'")
def counts_in_a_global(x):
    global COUNTER
    COUNTER += 1
    return x * 2


@refused(reason="changes a container")
def appends_to_a_global(x):
    SEEN.append(x)
    return x * 2


@refused(reason="sets an item")
def counts_in_a_dictionary(x):
    COUNTS["calls"] += 1
    return x * 2


@refused(reason="changes a container")
def adds_to_a_set(x):
    MEMBERS.add(x.dim())
    return x * 2


@refused(reason="sets the attribute 'calls'")
def counts_in_an_object(x):
    HOLDER.calls += 1
    return x * 2


@refused(reason="sets the attribute")
def hangs_on_a_function(x):
    hangs_on_a_function.last = x
    return x * 2


@refused(reason="changes a container")
def appends_to_a_default(x, seen=[]):  # noqa: B006
    seen.append(1)
    return x * len(seen)


@refused([tensor(2)], reason="changes a container")
def appends_to_an_argument(xs):
    xs.append(xs[0])
    return xs[0]


@refused({"a": tensor(2)}, reason="sets an item")
def sets_an_entry_of_an_argument(tree):
    tree["b"] = tree["a"]
    return tree["a"]


@refused(reason="print")
def prints(x):
    print(x.shape)
    return x * 2


@refused(reason="write")
def writes_to_a_stream(x):
    STREAM.write("called")
    return x * 2


@refused()
def warns(x):
    warnings.warn("called", UserWarning, stacklevel=2)
    return x * 2


@refused()
def logs(x):
    LOGGER.info("called with %s", x.shape)
    return x * 2


@refused()
def asks_for_the_log_level(x):
    return x * 2 if LOGGER.isEnabledFor(logging.DEBUG) else x


@refused(reason="time")
def reads_a_clock(x):
    return x * time.time()


@refused()
def reads_the_date(x):
    return x * datetime.datetime.now().hour


@refused()
def reads_the_local_time(x):
    return x * time.localtime().tm_hour


@refused(reason="random")
def draws_from_python(x):
    return x * random.random()


@refused()
def draws_from_a_generator(x):
    return x * GENERATOR.uniform(0, 1)


@refused()
def draws_from_numpy(x):
    return x * float(numpy.random.default_rng().random())


@refused()
def draws_bytes(x):
    return x * os.urandom(1)[0]


@refused()
def draws_identifiers(x):
    return x * uuid.uuid4().int


@refused(reason="a generator")
def draws_from_a_generator_of_pytorch(x):
    return x * torch.rand(4, generator=DRAWS)


@refused()
def seeds(x):
    torch.manual_seed(0)
    return x * 2


@refused()
def reads_the_seed(x):
    return x * torch.initial_seed()


@refused()
def reads_a_file(x):
    with open(__file__) as file:
        return x * len(file.readline())


@refused()
def asks_for_a_file(x):
    return x * pathlib.Path(__file__).exists()


@refused()
def makes_a_file(x):
    with tempfile.TemporaryFile():
        return x * 2


@refused(reason="_local")
def reads_a_thread_local(x):
    return x * LOCAL.scale


@refused()
def asks_for_the_thread(x):
    return x * len(threading.current_thread().name)


@refused(reason="context variable")
def sets_a_context_variable(x):
    VARIABLE.set(3.0)
    return x * VARIABLE.get()


@refused()
def reads_a_queue(x):
    return x * QUEUE.qsize()


@refused()
def takes_from_a_counter(x):
    return x * next(COUNTING)


@refused()
def holds_a_lock(x):
    with LOCK:
        return x * 2


@refused()
def follows_a_weak_reference(x):
    return x * WEAK().scale  # type: ignore[union-attr]


@refused()
def reads_by_a_proxy(x):
    return x * PROXY.scale


@refused()
def reads_a_mapping_proxy(x):
    return x * NAMESPACE["scale"]


@refused()
def reads_a_deque(x):
    return x * DEQUE[0]


@refused(reason="missing")
def reads_a_default_dictionary(x):
    return x * DEFAULTS["missing"]


@functools.lru_cache
def _cached() -> object:
    return object()


@refused(reason="lru_cache")
def reads_a_cache(x):
    return x * 2 if _cached() else x


@refused(reason="generator")
def calls_a_generator(x):
    return sum(_generate(x))


def _generate(x: Any) -> Any:
    yield x
    yield x * 2


@refused(iter([1, 2]))
def takes_from_an_iterator(numbers):
    return tensor(2) * next(numbers)


@refused(reason="'try'")
def catches_what_operations_raise(x):
    try:
        return torch.linalg.cholesky(x @ x.T)
    except RuntimeError:
        return x


@refused()
def suppresses(x):
    with contextlib.suppress(RuntimeError):
        return torch.linalg.inv(x @ x.T)
    return x


@refused()
def changes_a_switch(x):
    torch.set_default_dtype(torch.float32)
    return x * 2


@refused()
def sets_gradients_off_for_good(x):
    torch.set_grad_enabled(False)
    torch.set_grad_enabled(True)
    return x * 2


@refused()
def collects_garbage(x):
    gc.collect()
    return x * 2


@refused()
def looks_at_the_stack(x):
    return x * sys._getframe().f_lineno


@refused()
def counts_references(x):
    return x * sys.getrefcount(HOLDER)


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


NAN = float("nan")
"""Containers take the object for equal to itself, and to no other NaN."""
NANS, NAN_TABLE = [NAN, 1.0], {NAN: 2.0}


@refused(reason="NaN")
def finds_nan_in_a_list(x):
    return x * 2 if NAN in NANS else x


@refused(reason="NaN")
def finds_nan_in_a_tuple(x):
    return x * 2 if NAN in (1.0, NAN) else x


@refused(reason="NaN")
def compares_tuples_of_nan(x):
    return x * 2 if (NAN, 1.0) == (NAN, 1.0) else x


@refused(reason="NaN")
def compares_lists_of_nan(x):
    return x * 2 if [NAN, 1.0] == NANS else x


@refused(reason="NaN")
def counts_nan(x):
    return x * (NAN, 2.0).count(NAN)


@refused(reason="NaN")
def finds_where_nan_is(x):
    return x * [2.0, NAN].index(NAN)


@refused(reason="NaN")
def looks_nan_up(x):
    return x * NAN_TABLE.get(NAN, 3.0)


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
def starts_a_thread(x):
    threading.Thread(target=lambda: None).start()
    return x * 2


@refused()
def makes_a_class(x):
    class Inner:
        scale = 2.0

    return x * Inner.scale


@refused(reason="while it iterates")
def rewrites_a_dictionary_that_it_shows(x):
    table = {"a": 1, "b": 2}
    for _, value in table.items():
        table["b"] = 10
        x = x * (SCALE if value == 10 else 2)
    return x


@refused(reason="while it iterates")
def enters_a_key_again_that_it_iterates_over(x):
    table = {"a": 1}
    for key in table:
        if len(table) > 1:
            break
        del table[key]
        table[key] = 2
        x = x + table.setdefault("b", 3)
    return x


@refused(reason="something has changed")
def rewrites_what_is_enumerated(x):
    values, table = [1, 2], {"a": 1, "b": 2}
    for _, (one, (_, other)) in enumerate(zip(values, table.items(), strict=True)):
        table["b"] = 10
        x = x * one * other
    return x


@refused(reason="something has changed")
def goes_on_with_a_list_that_has_grown(x):
    values = [1]
    items = iter(values)
    x = x * next(items)
    values.append(2)
    return x * next(items, 7)


@refused(reason="depend on something")
def takes_items_from_under_a_comprehension(x):
    items = iter([1, 2, 3])
    return x * len([(item, next(items, 5)) for item in items])


@refused(reason="while it iterates")
def shortens_a_list_in_a_comprehension(x):
    values = [1, 2, 3]
    return x * len([values.pop() for _ in values])


@refused(reason="while it iterates")
def shortens_a_list_that_is_reduced(x):
    values = [1, 2, 3]
    return x * functools.reduce(lambda total, value: total + value + values.pop(), values, 0)


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


@refused(reason="of an object that it did not make")
def sets_an_attribute_of_a_module(x):
    PLAIN.calls = 1  # type: ignore[assignment]
    return PLAIN(x)


PLAIN = nn.Linear(4, 4)


@refused()
def reads_a_variable_that_may_not_be_set(x):
    if x.is_contiguous():
        y = x * 2
    if x.is_contiguous():
        return y  # type: ignore[possibly-unbound]
    return x


@refused()
def changes_a_list_in_one_branch_alone(x):
    parts = [x]
    if torch.is_grad_enabled():
        parts.append(x)
    return torch.stack(parts)


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


@refused(HOLDER, reason="sets the attribute")
def changes_an_object_among_the_arguments(holder):
    holder.scale = 3.0
    return tensor(2) * holder.scale


class Answering:
    def __getattr__(self, name: str) -> float:
        SEEN.append(name)
        return 2.0


ANSWERING = Answering()


@refused(reason="changes a container")
def reads_by_getattr_with_effects(x):
    return x * ANSWERING.scale


class Counting:
    @property
    def scale(self) -> float:
        COUNTS["reads"] = COUNTS.get("reads", 0) + 1
        return 2.0


COUNTING_PROPERTY = Counting()


@refused(reason="sets an item")
def reads_a_property_with_effects(x):
    return x * COUNTING_PROPERTY.scale


@refused(reason="id")
def asks_for_an_identity(x):
    return x * (id(HOLDER) % 7)


@refused(reason="hash")
def hashes(x):
    return x * (hash(HOLDER) % 7)


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


ALSO_COUNTED, ALSO_HOOKED, PRETENDING, UNKNOWN = AlsoCounted(), AlsoHooked(), Pretending(), float("nan")


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


@refused(reason="NaN")
def looks_for_nan(x):
    return x * 2 if UNKNOWN in [UNKNOWN] else x


@refused(reason="NaN")
def compares_containers_with_nan(x):
    return x * 2 if [UNKNOWN, x] == [UNKNOWN, x] else x


@refused(reason="NaN")
def uses_nan_as_a_key(x):
    table = {UNKNOWN: 1}
    del table[UNKNOWN]
    return x * len(table)


@refused(reason="part of a list")
def looks_in_a_part_of_a_list(x):
    return x * [5, 7, 5].index(5, 1)


@pytest.mark.parametrize("case", refused, ids=str)
def test_is_refused(case: Case):
    check_refused(case)


def test_a_refusal_names_the_line_of_the_user():
    found = prove(prints, (tensor(2),), {})
    assert isinstance(found, Refusal)
    first = prints.__code__.co_firstlineno
    assert found.place == f"{__file__}:{first + 2}"
    assert COUNTER == 0 and COUNTS == {"calls": 0}
