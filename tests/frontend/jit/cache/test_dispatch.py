"""Calls of jitted functions that machine code answers: for equal arguments, and no others."""

import sys
from collections import OrderedDict

import pytest
import torch

from tests.frontend.jit.comparing import same
from tests.frontend.jit.records import ENOUGH, expect_python, expect_record, jit, multiply_add, three, warm


def test_equal_calls_are_answered_by_a_record_and_counted():
    function = warm(jit(multiply_add), *three())
    calls = function._compiled.calls
    for _ in range(5):
        expect_record(function, multiply_add, *three())
    assert function._compiled.calls == calls + 5
    (kind,) = function._compiled.specialisations.values()
    assert function._compiled.calls_of(kind) == calls + 5 - 1
    assert f"{calls + 5} calls" in function.explain()


# --- arguments --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "other",
    [
        lambda: [tensor.double() for tensor in three()],
        lambda: three(4, 7),
        lambda: three(2, 4, 6),
        lambda: [tensor.t() for tensor in three(6, 4)],
        lambda: [*three()[:2], torch.randn(4, 12)[:, ::2]],
        lambda: [*three()[:2], torch.randn(6)],
        lambda: [*three()[:2], 1.5],
        lambda: [three()[0]] * 3,
        lambda: [torch.zeros(0, 6)] * 2 + [torch.zeros(0, 6)],
    ],
    ids=["dtype", "size", "rank", "strides", "stride", "broadcast", "number", "same", "empty"],
)
def test_other_tensors_take_the_way_through_python(other):
    function = warm(jit(multiply_add), *three())
    expect_python(function, multiply_add, *other())
    expect_record(function, multiply_add, *three())


def test_a_stride_that_no_place_of_an_element_depends_on_is_compared():
    function = warm(jit(lambda x: x * 2), torch.randn(1, 6))
    expect_python(function, lambda x: x * 2, torch.randn(1, 6).as_strided((1, 6), (100, 1)))


def test_kinds_of_tensors_that_are_not_plain():
    function = warm(jit(lambda x: x * 2), torch.randn(4))
    complex_ = torch.randn(4, dtype=torch.complex64)
    negative = torch._neg_view(torch.randn(4))
    expect_python(function, lambda x: x * 2, negative)
    expect_python(function, lambda x: x * 2, complex_)
    expect_record(function, lambda x: x * 2, torch.randn(4))


def test_a_tensor_in_the_place_of_another_argument():
    def scale(x, factor=None):
        return x * 2 if factor is None else x * factor

    function = warm(jit(scale), torch.randn(4), None)
    expect_python(function, scale, torch.randn(4), torch.randn(4))
    expect_python(function, scale, torch.randn(4))
    expect_record(function, scale, torch.randn(4), None)


@pytest.mark.parametrize(
    "first, other",
    [(2.0, 3.0), (0.0, -0.0), (2, 3), (2, 2.0), (1, True), (True, False), (1 << 70, 1 << 71), ("abc", "abd")],
)
def test_values_of_other_arguments(first, other):
    def pick(x, what):
        return x * (len(what) if isinstance(what, str) else 1) + (float(what) if not isinstance(what, str) else 0.0)

    function = warm(jit(pick), torch.randn(4), first)
    expect_python(function, pick, torch.randn(4), other)
    expect_record(function, pick, torch.randn(4), first)


def test_equal_numbers_need_not_be_the_same_objects_but_texts_must():
    def pick(x, text, number, whole):
        return x * number + len(text) + whole

    function = warm(jit(pick), torch.randn(4), "first", 2.5, 12345678)
    expect_record(function, pick, torch.randn(4), "first", float("2.5"), int("12345678"))
    expect_python(function, pick, torch.randn(4), "".join(["fi", "rst"]), 2.5, 12345678)


def test_keywords_by_name_and_order():
    function = warm(jit(multiply_add), *three()[:1], b=torch.randn(4, 6), c=torch.randn(4, 6))
    a, b, c = three()
    expect_record(function, multiply_add, a, b=b, c=c)
    expect_python(function, multiply_add, a, c=c, b=b)
    expect_python(function, multiply_add, a, b, c)
    given = {"b": b, "c": c}
    expect_record(function, multiply_add, a, **given)
    with pytest.raises(TypeError):
        function(a, b=b, d=c)
    expect_python(function, multiply_add, c=c, a=a, b=b)


def test_numbers_that_stay_open_are_passed_on():
    def scale(x, factor):
        return x * factor

    function = jit(scale)
    for factor in range(ENOUGH):
        function(torch.randn(4), factor + 0.5)
    for factor in (5.5, -0.0, float("inf"), 1e-310):
        expect_record(function, scale, torch.ones(4), factor)
    expect_python(function, scale, torch.ones(4), 3)


def test_objects_count_by_identity():
    def apply(function, x):
        return function(x) + 1

    function = warm(jit(apply), torch.sin, torch.randn(4))
    expect_python(function, apply, torch.cos, torch.randn(4))
    expect_record(function, apply, torch.sin, torch.randn(4))


def test_deeply_nested_arguments_take_the_way_through_python():
    function = jit(lambda pair: pair[0][0] * pair[1] + 1)
    for _ in range(ENOUGH):
        expect_python(function, lambda pair: pair[0][0] * pair[1] + 1, ([torch.randn(4)], torch.randn(4)))


def total(first, rest, *, scale):
    result = first * scale[0]
    for one in rest:
        result = result * 0.5 + one
    return result


@pytest.mark.parametrize("count", [1, 3, 40])
def test_lists_and_tuples_of_tensors(count):
    def made(size=4):
        return [torch.randn(size) for _ in range(count)]

    function = warm(jit(total), torch.randn(4), made(), scale=(2.0, torch.ones(4)))
    expect_record(function, total, torch.randn(4), made(), scale=(2.0, torch.zeros(4)))
    expect_python(function, total, torch.randn(4), tuple(made()), scale=(2.0, torch.ones(4)))
    expect_python(function, total, torch.randn(4), made(), scale=[2.0, torch.ones(4)])
    expect_python(function, total, torch.randn(4), [*made(), torch.randn(4)], scale=(2.0, torch.ones(4)))
    expect_python(function, total, torch.randn(4), made()[1:], scale=(2.0, torch.ones(4)))
    expect_python(function, total, torch.randn(4), [*made()[1:], torch.randn(1)], scale=(2.0, torch.ones(4)))
    expect_python(function, total, torch.randn(4), [*made()[1:], torch.randn(4).double()], scale=(2.0, torch.ones(4)))
    expect_python(function, total, torch.randn(4), made(), scale=(3.0, torch.ones(4)))
    expect_python(function, total, (x := torch.randn(4)), [*made()[1:], x], scale=(2.0, torch.ones(4)))
    expect_record(function, total, torch.randn(4), made(), scale=(2.0, torch.ones(4)))


def test_dictionaries_of_tensors():
    def scored(before, batch, *, more):
        result = before + batch["words"] * batch["scale"]
        for name, one in more.items():
            result = result * len(name) + one
        return result

    def batch(size=4, scale=2.0):
        return {"words": torch.randn(size), "scale": scale}

    def more(*names, size=4):
        return {name: torch.randn(size) for name in names}

    x = torch.randn(4)
    function = warm(jit(scored), x, batch(), more=more("a", "bc"))
    expect_record(function, scored, x, batch(), more=more("a", "bc"))
    expect_record(function, scored, x, {**batch()}, more=dict(more("a", "bc")))
    for other in (more("bc", "a"), more("a", "b"), more("a"), more("a", "bc", "d"), more(), more("a", "bc", size=1)):
        expect_python(function, scored, x, batch(), more=other)
    expect_python(function, scored, x, batch(), more=OrderedDict(more("a", "bc")))
    expect_python(function, scored, x, batch(scale=3.0), more=more("a", "bc"))
    expect_python(function, scored, x, {"scale": 2.0, "words": torch.randn(4)}, more=more("a", "bc"))
    expect_python(function, scored, x, {**batch(), "words": x}, more=more("a", "bc"))
    expect_record(function, scored, x, batch(), more=more("a", "bc"))


def test_equal_keys_that_are_other_objects_are_answered_from_their_second_call_on():
    def doubled(batch):
        return batch["words"] * 2 + 1

    function = warm(jit(doubled), {"words": torch.randn(4)})
    key = "".join(["wo", "rds"])
    expect_python(function, doubled, {key: torch.randn(4)})
    expect_record(function, doubled, {key: torch.randn(4)})


def test_dictionaries_with_other_keys_than_texts_take_the_way_through_python():
    function = jit(lambda batch: batch[0] * 2 + batch[1])
    for _ in range(ENOUGH):
        expect_python(function, lambda batch: batch[0] * 2 + batch[1], {0: torch.randn(4), 1: torch.randn(4)})


def test_dictionaries_that_are_changed_or_returned_are_the_callers_own():
    def noted(batch):
        batch["sum"] = batch["words"] * 2 + 1
        return batch

    function = jit(noted)
    for _ in range(ENOUGH):
        batch = {"words": torch.randn(4)}
        assert function(batch) is batch
        assert torch.equal(batch["sum"], batch["words"] * 2 + 1)


def test_entries_of_dictionaries_keep_no_references():
    function = warm(jit(lambda batch: batch["words"] * 2 + 1), {"words": torch.randn(4)})
    batch = {"words": torch.randn(4), "".join(["mo", "re"]): torch.randn(4)}
    function(batch)
    watched = [*batch, *batch.values()]
    before = [sys.getrefcount(one) for one in watched]
    for _ in range(50):
        function({"words": batch["words"]})
        function(batch)
    after = [sys.getrefcount(one) for one in watched]
    assert max(now - then for now, then in zip(after, before, strict=True)) < 10


def test_one_tensor_in_several_places_of_a_list():
    def joined(tensors):
        return tensors[0] * 2 + tensors[7] * 3 + tensors[-1]

    def given(*same_as_first):
        tensors = [torch.randn(4) for _ in range(20)]
        for place in same_as_first:
            tensors[place] = tensors[0]
        return tensors

    function = warm(jit(joined), given(7, 19))
    expect_record(function, joined, given(7, 19))
    for others in ((), (7,), (19,), (7, 18), (6, 7, 19)):
        expect_python(function, joined, given(*others))


def test_lists_that_change_within_a_call_keep_no_references():
    tensors = [torch.randn(4) for _ in range(12)]
    function = warm(jit(lambda tensors: tensors[0] + tensors[-1]), tensors)
    before = [sys.getrefcount(tensor) for tensor in tensors]
    for _ in range(ENOUGH):
        function(tensors)
    assert [sys.getrefcount(tensor) for tensor in tensors] == before
    expect_python(function, lambda tensors: tensors[0] + tensors[-1], [*tensors, torch.randn(4)])
    expect_python(function, lambda tensors: tensors[0] + tensors[-1], [*tensors[:-1], torch.randn(1)])
    assert [sys.getrefcount(tensor) for tensor in tensors] == before


def test_many_arguments_take_the_way_through_python():
    function = jit(lambda *given: given[0] * 2 + given[-1])
    for _ in range(ENOUGH):
        expect_python(function, lambda *given: given[0] * 2 + given[-1], *([torch.ones(2)] * 1100))


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
    jitted = warm(jit(function), torch.randn(4, 4))
    expect_record(jitted, function, torch.randn(4, 4))


def test_arguments_that_are_written_into():
    def add(x, y):
        x += 1
        return x * y

    function = warm(jit(add), torch.randn(4), torch.randn(4))
    x, y = torch.randn(4), torch.randn(4)
    twin = x.clone()
    expect_record(function, lambda *_: add(twin, y), x, y)
    same(x, twin)
    x = torch.randn(8)
    twin = x.clone()
    expect_python(function, lambda *_: add(twin[:4], twin[2:6]), x[:4], x[2:6])
    same(x, twin)
