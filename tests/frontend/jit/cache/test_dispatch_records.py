"""Records of calls that machine code answers: how many there are, how long they live, and who may use them."""

import gc
import threading
import tracemalloc
import weakref
from typing import Any

import pytest
import torch

import ingot
from ingot.frontend.jit.cache.native_calls import MOST_ATTEMPTS, _Attempts
from ingot.runtime.native.dispatch.call_records import CallFunction
from ingot.runtime.native.launch.record_structs import MOST_RECORDS
from tests.frontend.jit.comparing import same
from tests.frontend.jit.records import (
    ENOUGH,
    Block,
    answered,
    expect_python,
    expect_record,
    jit,
    multiply_add,
    three,
    warm,
)


def test_records_are_bounded_and_the_last_used_stay():
    function = jit(lambda x: x * 2 + 1, dynamic=False)
    for size in range(1, MOST_RECORDS + 9):
        warm(function, torch.randn(size))
    assert len(function._dispatch_owner[1]) == MOST_RECORDS
    expect_record(function, lambda x: x * 2 + 1, torch.randn(MOST_RECORDS + 8))
    expect_python(function, lambda x: x * 2 + 1, torch.randn(1))


def test_new_objects_at_every_call_do_not_make_new_records_for_ever():
    function = jit(lambda x, size: x.reshape(size) * 2)
    made = lambda: torch.Size([2, 2])
    for _ in range(ENOUGH):
        expect_python(function, lambda x, size: x.reshape(size) * 2, torch.randn(4), made())
    (answered,) = function._compiled.native._answered.values()
    assert sum(one.made for one in answered.attempts.values()) == MOST_ATTEMPTS


def test_reset_forgets_records():
    function = warm(jit(multiply_add), *three())
    ingot.reset()
    assert function._compiled.calls == answered(function) == len(function._dispatch_owner[1]) == 0
    expect_python(function, multiply_add, *three())
    warm(function, *three())


def test_records_go_with_what_they_are_for():
    module = Block().eval()
    twin = jit(module)
    warm(twin.forward, torch.randn(4, 6))
    gone = weakref.ref(twin.forward), weakref.ref(module.scale)
    del module, twin
    gc.collect()
    assert gone[0]() is None and gone[1]() is None


def test_threads_share_a_function():
    function = jit(multiply_add)
    errors = []

    def work(number):
        try:
            for turn in range(300):
                given = three(number % 3 + 2, turn % 5 + 2)
                assert torch.equal(function(*given), multiply_add(*given))
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

    function = warm(jit(forget), torch.randn(4, 4))
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
    a, b, c = three()
    single, several = warm(jit(multiply_add), a, b, c), warm(jit(lambda a: torch.mm(a, a) + 1), a[:, :4])
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
        return x * x.sum().item() if x.sum() > 0 else y

    function = warm(jit(branch), torch.ones(4), y=3)
    assert function.tier == "following"
    expect_record(function, branch, torch.randn(4), y=3)
    assert function(-torch.ones(4), y=3) == 3
    with pytest.raises(TypeError):
        function(torch.ones(4), z=3)
    expect_python(function, branch, torch.ones(5), y=3)


def test_what_means_not_implemented_is_a_result_like_others():
    def refuse(x):
        x += 1
        return x if x.sum() > 1000 else NotImplemented

    function = warm(jit(refuse), torch.zeros(4))
    x = torch.zeros(4)
    assert function(x) is NotImplemented
    assert x.tolist() == [1, 1, 1, 1]


def test_exceptions_of_a_program_are_raised():
    def fail(x):
        return torch.linalg.cholesky(x) * 2

    good = torch.eye(3)
    function = warm(jit(fail), good)
    before = answered(function)
    with pytest.raises(torch.linalg.LinAlgError):
        function(-good)
    assert answered(function) == before + 1
    expect_record(function, fail, good)


def test_classes_that_change_all_the_time_do_not_keep_calls_from_records():
    """As torch's own compiler does, which counts its calls in attributes of a class that modules reach."""

    class Counting:
        scale = 2.0
        count = 0

    settings = Counting()

    def scaled(x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x) * settings.scale

    function, x = jit(scaled), torch.randn(8)
    for _ in range(20):
        Counting.count += 1
        same(function(x), scaled(x))
    before = answered(function)
    for _ in range(20):
        Counting.count += 1
        same(function(x), scaled(x))
    assert answered(function) > before + 15
    Counting.scale = 3.0
    same(function(x), torch.tanh(x) * 3.0)


def test_kinds_of_calls_whose_records_did_not_last_get_another_chance():
    attempts = _Attempts()
    tries = [number for number in range(1000) if attempts.may_try()]
    assert tries[:MOST_ATTEMPTS] == list(range(MOST_ATTEMPTS)) and 2 <= len(tries) - MOST_ATTEMPTS <= 3
    attempts.give_up()
    assert not any(attempts.may_try() for _ in range(10_000))
