"""Calls of jitted functions that machine code answers: when it does, and that every change leads to Python instead."""

import gc
import threading
import tracemalloc
import weakref
from contextlib import nullcontext
from typing import Any

import pytest
import torch

import ingot
from ingot.frontend.jit.dispatch import MOST_ATTEMPTS
from ingot.frontend.jit.function import IngotWarning
from ingot.frontend.jit.switch import EVERYTHING
from ingot.runtime.native.call_records import CallFunction
from ingot.runtime.native.matching import MOST_RECORDS
from tests.frontend.jit.comparing import same

_ENOUGH = 30
"""More calls than it takes until a record answers."""
jit: Any = ingot.jit
"""Without the type of what it is given, for tests look inside of what it gives."""


def _native(function):
    """How many calls of a function were answered by records."""
    return function._compiled.native.total


def _warm(function, *args, **kwargs):
    """Call a function until a record answers."""
    before = _native(function)
    for _ in range(_ENOUGH):
        function(*args, **kwargs)
        if _native(function) > before:
            return function
    raise AssertionError("no record answers")


def _elsewhere(function, eager, *args, **kwargs):
    """See that a call is not answered by a record, and that its result is right."""
    before = _native(function)
    same(function(*args, **kwargs), eager(*args, **kwargs))
    assert _native(function) == before


def _here(function, eager, *args, **kwargs):
    """See that a call is answered by a record, and that its result is right."""
    before = _native(function)
    same(function(*args, **kwargs), eager(*args, **kwargs))
    assert _native(function) == before + 1


def _fma(a, b, c):
    return a * b + c


def _three(*shape):
    return [torch.randn(*shape or (4, 6)) for _ in range(3)]


def test_equal_calls_are_answered_by_a_record_and_counted():
    function = _warm(jit(_fma), *_three())
    calls = function._compiled.calls
    for _ in range(5):
        _here(function, _fma, *_three())
    assert function._compiled.calls == calls + 5
    (kind,) = function._compiled.specialisations.values()
    assert function._compiled.calls_of(kind) == calls + 5 - 1
    assert f"{calls + 5} calls" in function.explain()


# --- arguments --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "other",
    [
        lambda: [tensor.double() for tensor in _three()],
        lambda: _three(4, 7),
        lambda: _three(2, 4, 6),
        lambda: [tensor.t() for tensor in _three(6, 4)],
        lambda: [*_three()[:2], torch.randn(4, 12)[:, ::2]],
        lambda: [*_three()[:2], torch.randn(6)],
        lambda: [*_three()[:2], 1.5],
        lambda: [_three()[0]] * 3,
        lambda: [torch.zeros(0, 6)] * 2 + [torch.zeros(0, 6)],
    ],
    ids=["dtype", "size", "rank", "strides", "stride", "broadcast", "number", "same", "empty"],
)
def test_other_tensors_take_the_way_through_python(other):
    function = _warm(jit(_fma), *_three())
    _elsewhere(function, _fma, *other())
    _here(function, _fma, *_three())


def test_a_stride_that_no_element_lies_elsewhere_by_counts():
    function = _warm(jit(lambda x: x * 2), torch.randn(1, 6))
    _elsewhere(function, lambda x: x * 2, torch.randn(1, 6).as_strided((1, 6), (100, 1)))


def test_kinds_of_tensors_that_are_not_plain():
    function = _warm(jit(lambda x: x * 2), torch.randn(4))
    complex_ = torch.randn(4, dtype=torch.complex64)
    negative = torch._neg_view(torch.randn(4))
    with pytest.warns(IngotWarning):
        _elsewhere(function, lambda x: x * 2, negative)
    _elsewhere(function, lambda x: x * 2, complex_)
    _here(function, lambda x: x * 2, torch.randn(4))


def test_a_tensor_in_the_place_of_another_argument():
    def scale(x, factor=None):
        return x * 2 if factor is None else x * factor

    function = _warm(jit(scale), torch.randn(4), None)
    _elsewhere(function, scale, torch.randn(4), torch.randn(4))
    _elsewhere(function, scale, torch.randn(4))
    _here(function, scale, torch.randn(4), None)


@pytest.mark.parametrize(
    "first, other",
    [(2.0, 3.0), (0.0, -0.0), (2, 3), (2, 2.0), (1, True), (True, False), (1 << 70, 1 << 71), ("abc", "abd")],
)
def test_values_of_other_arguments(first, other):
    def pick(x, what):
        return x * (len(what) if isinstance(what, str) else 1) + (float(what) if not isinstance(what, str) else 0.0)

    function = _warm(jit(pick), torch.randn(4), first)
    _elsewhere(function, pick, torch.randn(4), other)
    _here(function, pick, torch.randn(4), first)


def test_equal_texts_and_numbers_need_not_be_the_same_objects():
    def pick(x, text, number, whole):
        return x * number + len(text) + whole

    function = _warm(jit(pick), torch.randn(4), "first", 2.5, 12345678)
    _here(function, pick, torch.randn(4), "".join(["fi", "rst"]), float("2.5"), int("12345678"))


def test_keywords_by_name_and_order():
    function = _warm(jit(_fma), *_three()[:1], b=torch.randn(4, 6), c=torch.randn(4, 6))
    a, b, c = _three()
    _here(function, _fma, a, b=b, c=c)
    _elsewhere(function, _fma, a, c=c, b=b)
    _elsewhere(function, _fma, a, b, c)
    given = {"b": b, "c": c}
    _here(function, _fma, a, **given)
    with pytest.raises(TypeError):
        function(a, b=b, d=c)
    _elsewhere(function, _fma, c=c, a=a, b=b)


def test_numbers_that_stay_open_are_passed_on():
    def scale(x, factor):
        return x * factor

    function = jit(scale)
    for factor in range(_ENOUGH):
        function(torch.randn(4), factor + 0.5)
    for factor in (5.5, -0.0, float("inf"), 1e-310):
        _here(function, scale, torch.ones(4), factor)
    _elsewhere(function, scale, torch.ones(4), 3)


def test_objects_count_by_identity():
    def apply(function, x):
        return function(x) + 1

    function = _warm(jit(apply), torch.sin, torch.randn(4))
    _elsewhere(function, apply, torch.cos, torch.randn(4))
    _here(function, apply, torch.sin, torch.randn(4))


def test_nested_arguments_take_the_way_through_python():
    function = jit(lambda pair: pair[0] * pair[1] + 1)
    for _ in range(_ENOUGH):
        _elsewhere(function, lambda pair: pair[0] * pair[1] + 1, (torch.randn(4), torch.randn(4)))


def test_many_arguments_take_the_way_through_python():
    function = jit(lambda *given: given[0] * 2 + given[-1])
    for _ in range(_ENOUGH):
        _elsewhere(function, lambda *given: given[0] * 2 + given[-1], *([torch.ones(2)] * 300))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x * 2 + 1,
        lambda x: (x * 2 + 1,),
        lambda x: (x * 2, x + 1),
        lambda x: [x * 2, x + 1],
        lambda x: {"a": x * 2, "b": [x + 1, 3]},
        lambda x: (x * 2, x),
        lambda x: (x * 2, None),
        lambda x: (x * 2).t(),
        lambda x: torch.mm(x, x) * 2,
    ],
    ids=["bare", "single", "tuple", "list", "nested", "argument", "value", "view", "call"],
)
def test_results_of_every_shape(function):
    jitted = _warm(jit(function), torch.randn(4, 4))
    _here(jitted, function, torch.randn(4, 4))


def test_arguments_that_are_written_into():
    def add(x, y):
        x += 1
        return x * y

    function = _warm(jit(add), torch.randn(4), torch.randn(4))
    x, y = torch.randn(4), torch.randn(4)
    twin = x.clone()
    _here(function, lambda *_: add(twin, y), x, y)
    same(x, twin)
    x = torch.randn(8)
    twin = x.clone()
    _elsewhere(function, lambda *_: add(twin[:4], twin[2:6]), x[:4], x[2:6])
    same(x, twin)


# --- settings ---------------------------------------------------------------------------------------------------------


def test_grad_mode_and_gradients():
    function = _warm(jit(_fma), *_three())
    a, b, c = _three()
    with torch.no_grad():
        _elsewhere(function, _fma, a, b, c)
        _warm(function, a, b, c)
        _here(function, _fma, a.requires_grad_(), b, c)
    before = _native(function)
    result = function(a, b, c)
    assert result.requires_grad and _native(function) == before
    _here(function, _fma, *_three())


def test_autocast_default_dtype_and_inference_mode():
    def multiply(x, y):
        return torch.mm(x, y) + 0.5

    x, y = torch.randn(4, 4), torch.randn(4, 4)
    function = _warm(jit(multiply), x, y)
    with torch.autocast("cpu"):
        _elsewhere(function, multiply, x, y)
    with torch.autocast("cpu", dtype=torch.float16):
        _elsewhere(function, multiply, x, y)
    with torch.inference_mode():
        _elsewhere(function, multiply, x, y)
    torch.set_default_dtype(torch.float64)
    try:
        _elsewhere(function, multiply, x, y)
    finally:
        torch.set_default_dtype(torch.float32)
    _here(function, multiply, x, y)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch.jit.trace
def test_modes_transforms_and_switches():
    function = _warm(jit(_fma), *_three())
    a, b, c = _three()
    with torch.device("cpu"):
        _elsewhere(function, _fma, a, b, c)
    with ingot.disable():
        _elsewhere(function, _fma, a, b, c)
    before = _native(function)
    torch.vmap(lambda x: function(a, b, c) + x)(torch.randn(2))
    torch.func.grad(lambda x: (function(a, b, c) * x).sum())(torch.randn(4, 6))
    with torch.autograd.forward_ad.dual_level():
        function(torch.autograd.forward_ad.make_dual(a, b), b, c)
    torch.jit.trace(function, (a, b, c), check_trace=False)
    assert _native(function) == before
    _here(function, _fma, a, b, c)


def test_graphs_of_dynamo_are_answered_by_records():
    compiled = torch.compile(_fma, backend="ingot")
    made = set(EVERYTHING)
    for _ in range(_ENOUGH):
        compiled(*_three())
    (graph,) = set(EVERYTHING) - made
    before = graph.native.total
    given = _three()
    same(compiled(*given), _fma(*given))
    assert graph.native.total == before + 1


def test_what_dynamo_reads_is_the_python_function():
    function = _warm(jit(_fma), *_three())
    compiled = torch.compile(lambda *given: function(*given) * 2, backend="eager", fullgraph=True)
    given = _three()
    before = _native(function)
    same(compiled(*given), _fma(*given) * 2)
    assert _native(function) == before
    _here(function, _fma, *given)


# --- surroundings -----------------------------------------------------------------------------------------------------


class _Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.randn(6), requires_grad=False)
        self.register_buffer("shift", torch.randn(6))
        self.drop = torch.nn.Dropout(0.5)
        self.extra = 1.0
        self.steps = [1.0, 2.0]

    def forward(self, x):
        return self.drop(x * self.scale + self.shift) + self.extra + sum(self.steps)


def _replace(module):
    module.scale = torch.nn.Parameter(torch.randn(6), requires_grad=False)


def _other_dtype(module):
    module.scale.data = torch.randn(6).double()


def _other_shape(module):
    module.scale.data = torch.randn(1)


def _swap(module):
    other = torch.nn.Parameter(torch.randn(6).double(), requires_grad=False)
    torch.utils.swap_tensors(module.scale, other)


@pytest.mark.parametrize(
    "change",
    [
        _replace,
        _other_dtype,
        _other_shape,
        _swap,
        lambda module: module.scale.requires_grad_(),
        lambda module: setattr(module, "extra", 2.0),
        lambda module: module.steps.append(3.0),
        lambda module: module.steps.__setitem__(0, 5.0),
        lambda module: setattr(module, "more", 1),
        lambda module: setattr(module, "drop", torch.nn.Identity()),
        lambda module: module.drop.register_forward_hook(lambda *_: None),
        lambda module: module.register_buffer("shift", torch.randn(6)),
    ],
    ids=[
        "parameter",
        "dtype",
        "shape",
        "swap",
        "gradients",
        "attribute",
        "length",
        "item",
        "attributes",
        "submodule",
        "hook",
        "buffer",
    ],
)
def test_changes_of_a_module(change):
    module = _Block().eval()
    function = _warm(jit(module).forward, torch.randn(4, 6))
    change(module)
    is_hooked = len(module.drop._forward_hooks) > 0
    before = _native(function)
    x = torch.randn(4, 6)
    with pytest.warns(IngotWarning, match="hooks") if is_hooked else nullcontext():
        same(function(x).detach(), module(x).detach())
    assert _native(function) == before


def test_values_of_weights_are_read_at_every_call():
    module = _Block().eval()
    function = _warm(jit(module).forward, torch.randn(4, 6))
    module.scale.mul_(2)
    module.scale.data = torch.randn(6)
    _here(function, module, torch.randn(4, 6))


def test_the_training_flag():
    module = _Block().eval()
    function = _warm(jit(module).forward, torch.randn(4, 6))
    module.train()
    before = _native(function)
    torch.manual_seed(0)
    x = torch.randn(4, 6)
    torch.manual_seed(1)
    found = function(x)
    torch.manual_seed(1)
    same(found, module(x))
    assert _native(function) == before
    module.eval()
    same(function(x), module(x))


_FACTOR = 2.0


def test_globals_and_cells():
    global _FACTOR
    shift = 1.0

    def scale(x):
        return x * _FACTOR + shift

    function = _warm(jit(scale), torch.randn(4))
    _FACTOR = 3.0
    _elsewhere(function, scale, torch.randn(4))
    _warm(function, torch.randn(4))
    shift = 5.0
    _elsewhere(function, scale, torch.randn(4))
    _FACTOR = 2.0


def test_an_equal_value_in_a_watched_place_gets_another_record():
    values = [1234.5]

    def scale(x):
        return x * values[0]

    function = _warm(jit(scale), torch.randn(4))
    values[0] = float("1234.5")
    _elsewhere(function, scale, torch.randn(4))
    _here(function, scale, torch.randn(4))
    assert function._compiled.recordings == 1


# --- records ----------------------------------------------------------------------------------------------------------


def test_records_are_bounded_and_the_last_used_stay():
    function = jit(lambda x: x * 2 + 1, dynamic=False)
    for size in range(1, MOST_RECORDS + 9):
        _warm(function, torch.randn(size))
    assert len(function._dispatch_owner[1]) == MOST_RECORDS
    _here(function, lambda x: x * 2 + 1, torch.randn(MOST_RECORDS + 8))
    _elsewhere(function, lambda x: x * 2 + 1, torch.randn(1))


def test_new_objects_at_every_call_do_not_make_new_records_for_ever():
    function = jit(lambda x, size: x.reshape(size) * 2)
    made = lambda: torch.Size([2, 2])
    for _ in range(_ENOUGH):
        _elsewhere(function, lambda x, size: x.reshape(size) * 2, torch.randn(4), made())
    (answered,) = function._compiled.native._answered.values()
    assert sum(answered.attempts.values()) == MOST_ATTEMPTS


def test_reset_forgets_records():
    function = _warm(jit(_fma), *_three())
    ingot.reset()
    assert function._compiled.calls == _native(function) == len(function._dispatch_owner[1]) == 0
    _elsewhere(function, _fma, *_three())
    _warm(function, *_three())


def test_records_go_with_what_they_are_for():
    module = _Block().eval()
    twin = jit(module)
    _warm(twin.forward, torch.randn(4, 6))
    gone = weakref.ref(twin.forward), weakref.ref(module.scale)
    del module, twin
    gc.collect()
    assert gone[0]() is None and gone[1]() is None


def test_threads_share_a_function():
    function = jit(_fma)
    errors = []

    def work(number):
        try:
            for turn in range(300):
                given = _three(number % 3 + 2, turn % 5 + 2)
                assert torch.equal(function(*given), _fma(*given))
                if turn % 100 == 50:
                    ingot.reset()
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors


def test_a_program_may_forget_its_own_record_while_it_runs():
    def forget(x):
        return torch.mm(x, x) + 1

    function = _warm(jit(forget), torch.randn(4, 4))
    record = next(iter(function._dispatch_owner[1]._records.values()))
    gone = weakref.ref(record)
    answer, run = next(one for one in record._kept if isinstance(one, CallFunction)), []
    del record
    table = function._dispatch_owner[1]
    code: Any = getattr(answer.function, "__closure__")  # noqa: B009
    cell = next(cell for cell in code if callable(cell.cell_contents) and cell.cell_contents.__name__ == "program")
    program = cell.cell_contents

    def resetting(*given):
        ingot.reset()
        run.append((len(table), gone() is not None))
        return program(*given)

    cell.cell_contents = resetting
    x = torch.randn(4, 4)
    same(function(x), forget(x))
    assert run == [(0, True)]


def test_calls_leave_nothing_behind():
    a, b, c = _three()
    single, several = _warm(jit(_fma), a, b, c), _warm(jit(lambda a: torch.mm(a, a) + 1), a[:, :4])
    gc.collect()
    tracemalloc.start()
    try:
        counts = []
        for _ in range(2):
            for _ in range(10_000):
                single(a, b, c)
            for _ in range(1000):
                several(a[:, :4])
            gc.collect()
            counts.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
    assert counts[1] - counts[0] < 10_000


def test_functions_that_cannot_be_compiled_are_called_by_records():
    def branch(x, y=None):
        return x * 2 if x.sum() > 0 else y

    with pytest.warns(IngotWarning):
        function = _warm(jit(branch), torch.ones(4), y=3)
    _here(function, branch, torch.randn(4), y=3)
    assert function(-torch.ones(4), y=3) == 3
    with pytest.raises(TypeError):
        function(torch.ones(4), z=3)
    _elsewhere(function, branch, torch.ones(5), y=3)


def test_what_means_not_implemented_is_a_result_like_others():
    def refuse(x):
        x += 1
        return x if x.sum() > 1000 else NotImplemented

    with pytest.warns(IngotWarning):
        function = _warm(jit(refuse), torch.zeros(4))
    x = torch.zeros(4)
    assert function(x) is NotImplemented
    assert x.tolist() == [1, 1, 1, 1]


def test_exceptions_of_a_program_are_raised():
    def fail(x):
        return torch.linalg.cholesky(x) * 2

    good = torch.eye(3)
    function = _warm(jit(fail), good)
    before = _native(function)
    with pytest.raises(torch.linalg.LinAlgError):
        function(-good)
    assert _native(function) == before + 1
    _here(function, fail, good)
