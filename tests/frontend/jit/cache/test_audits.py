"""Audits: calls that a recording would answer run in Python as well, now and then, and are compared with it."""

from __future__ import annotations

import operator
import sys
import threading
import types

import pytest
import torch

import ingot
from ingot.frontend.jit.api import function as api
from ingot.frontend.jit.cache import auditing, audits
from ingot.frontend.jit.proof import Proof
from tests.frontend.jit.comparing import same
from tests.frontend.jit.records import answered, jit

HIDDEN = "tests_of_audits_settings"


@pytest.fixture(autouse=True)
def with_audits(without_eager_comparison: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audits, "FIRST", 2)
    monkeypatch.setattr(audits, "PAUSE", 0)
    monkeypatch.setattr(audits, "next_due", lambda number: 1 << number.bit_length())


@pytest.fixture
def settings(monkeypatch: pytest.MonkeyPatch) -> types.SimpleNamespace:
    """Settings that no guard of python="skip" sees."""
    found = types.SimpleNamespace(factor=2.0, is_talkative=False)
    monkeypatch.setitem(sys.modules, HIDDEN, found)  # type: ignore[arg-type]
    return found


@pytest.fixture
def audited_calls(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of the calls that were due to be audited."""
    found: list[int] = []
    begin = audits.Audits.begin

    def noting(self: audits.Audits, number: int, is_possible: bool) -> bool:
        found.append(number)
        return begin(self, number, is_possible)

    monkeypatch.setattr(audits.Audits, "begin", noting)
    return found


def hidden():
    """The settings, by a way that is not understood: no proof sees what is read."""
    return operator.itemgetter(HIDDEN)(sys.modules)


def scaled(x):
    return torch.tanh(x) * hidden().factor


# --- when -------------------------------------------------------------------------------------------------------------


def test_calls_with_powers_of_two_as_numbers_are_audited(audited_calls):
    function = jit(lambda x: torch.tanh(x) * 2)
    x = torch.randn(4, 6)
    for _ in range(1 + 70):
        same(function(x), torch.tanh(x) * 2)
    assert audited_calls == [2, 4, 8, 16, 32, 64]
    assert answered(function) == 70 - 1 - 6  # the first one writes the program
    assert "70 calls after the recording, audited 6 times" in function.explain()
    assert function.tier == "skipping" and function.recordings == 1


def test_each_kind_of_call_is_counted_by_itself(audited_calls):
    function = jit(lambda x: x * 2 + 1, dynamic=False)
    for size in (3, 4):
        for _ in range(1 + 4):
            function(torch.randn(size))
    assert audited_calls == [2, 4, 2, 4]


def test_audits_that_would_take_long_are_left_out(monkeypatch, audited_calls):
    monkeypatch.setattr(audits, "PAUSE", 1e9)
    function = jit(lambda x: x * 2 + 1)
    for _ in range(1 + 40):
        function(torch.randn(5))
    assert audited_calls == [2, 4, 8, 16, 32]
    (kind,) = function._compiled.specialisations.values()
    assert kind.audits.count == 1
    (known,) = function._compiled.native._answered.values()
    made = [one.made for one in known.attempts.values()]
    assert made == [1]  # records that leave a call to Python are not made again for that


def test_calls_that_are_followed_are_not_audited(audited_calls):
    seen = []

    def noted(x):
        seen.append(1)
        return x * 2 + 1

    function = jit(noted)
    for _ in range(40):
        function(torch.randn(5))
    assert len(seen) == 40 and not audited_calls


def test_calls_are_not_audited_while_they_take_turns_with_eager_ones(monkeypatch, audited_calls):
    monkeypatch.setattr("ingot.frontend.jit.autotune.eager_comparison.ROUNDS", 3)
    monkeypatch.setattr("ingot.frontend.jit.autotune.eager_comparison._FAR_AHEAD", 1e9)
    monkeypatch.setattr("ingot.frontend.jit.autotune.eager_comparison.CLEARLY", 0.0)
    function = jit(lambda x: x * 2 + 1)
    for _ in range(1 + 20):
        function(torch.randn(5))
    assert audited_calls == [8, 16]  # the program's first run, and three calls each way


def test_nothing_is_audited_that_has_no_python(monkeypatch):
    monkeypatch.setattr(api, "audit", None)
    compiled = torch.compile(lambda x: torch.relu(x) * 2, backend="ingot")
    followed = jit(lambda x: torch.relu(x) * 2 + 1, python="run")
    for _ in range(12):
        compiled(torch.randn(5))
        followed(torch.randn(5))
    assert followed._compiled.follower.summary().segments
    torch._dynamo.reset()


def test_calls_inside_a_capture_are_not_audited(monkeypatch, audited_calls):
    function = jit(lambda x: x * 2 + 1)
    function(torch.randn(5))
    function(torch.randn(5))
    monkeypatch.setattr(api, "is_capturing", lambda: True)
    function(torch.randn(5))
    (kind,) = function._compiled.specialisations.values()
    assert audited_calls == [2] and kind.audits.count == 0


# --- differences ------------------------------------------------------------------------------------------------------


def test_a_broken_promise_is_found_and_ends_skipping(settings):
    function = jit(scaled, python="skip")
    x = torch.randn(4, 6)
    for _ in range(1 + 10):
        same(function(x), scaled(x))
    settings.factor = 3.0
    for _ in range(5):
        same(function(x), torch.tanh(x) * 2)  # what was recorded
    with pytest.warns(ingot.IngotWarning, match=r"aten\.mul\.Tensor are \(%1, 3\.0\).*test_audits\.py:\d+.*promises"):
        same(function(x), scaled(x))
    assert function.tier == "following"
    for factor in (3.0, 4.0, 5.0) * 4:
        settings.factor = factor
        same(function(x), scaled(x))
    text = function.explain()
    assert "not skipping: an audit found that" in text and "test_audits.py:" in text
    assert text.startswith("scaled: following, 29 calls")


def test_a_gap_in_a_proof_is_found_and_asks_for_a_report(monkeypatch):
    monkeypatch.setattr(api, "prove", lambda *_: Proof([], [], [], []))
    factor = 2.0
    function = jit(lambda x: torch.tanh(x) * factor)
    x = torch.randn(4, 6)
    for _ in range(1 + 3):
        function(x)
    factor = 3.0
    with pytest.warns(ingot.IngotWarning, match="please report"):
        same(function(x), torch.tanh(x) * 3)
    same(function(x), torch.tanh(x) * 3)
    assert function.tier == "following"


def test_other_kinds_of_calls_are_demoted_as_well(settings):
    function = jit(scaled, python="skip", dynamic=False)
    for size in (3, 4):
        for _ in range(1 + 6):
            function(torch.randn(size))
    settings.factor = 3.0
    with pytest.warns(ingot.IngotWarning):
        for _ in range(2):
            function(torch.randn(4))
    x = torch.randn(3)
    same(function(x), scaled(x))


def test_a_reset_begins_anew(settings):
    function = jit(scaled, python="skip")
    x = torch.randn(4)
    function(x)
    settings.factor = 3.0
    function(x)
    with pytest.warns(ingot.IngotWarning):
        function(x)
    ingot.reset()
    for _ in range(1 + 9):
        same(function(x), scaled(x))
    assert function.tier == "skipping" and answered(function) > 0


def test_with_fullgraph_a_difference_is_an_error(settings):
    function = jit(scaled, python="skip", fullgraph=True)
    x = torch.randn(4)
    function(x)
    settings.factor = 3.0
    function(x)
    for _ in range(2):
        with pytest.raises(ingot.IngotError, match="does not do what was recorded"):
            function(x)


def other_operation(x, settings):
    return torch.tanh(x) if settings.factor == 2 else torch.sigmoid(x)


def more_operations(x, settings):
    return x.tanh() if settings.factor == 2 else x.tanh().exp()


def fewer_operations(x, settings):
    return x.tanh().exp() if settings.factor == 2 else x.tanh()


def constant(x, settings):
    return x + torch.tensor([1.0, settings.factor])


def other_result(x, settings):
    return (x + 1, 2) if settings.factor == 2 else (x + 1, 3)


def nested_otherwise(x, settings):
    return (x + 1, 2) if settings.factor == 2 else [x + 1, 2]


def argument_returned(x, settings):
    made = x + 1
    return made if settings.factor == 2 else x


def reads_values(x, settings):
    if settings.factor != 2 and x.sum().item() > 1e9:
        return x - 1
    return x + 1


def prints(x, settings):
    if settings.factor != 2:
        print("changed")
    return x + 1


@pytest.mark.parametrize(
    "body",
    [
        other_operation,
        more_operations,
        fewer_operations,
        constant,
        other_result,
        nested_otherwise,
        argument_returned,
        reads_values,
        prints,
    ],
    ids=lambda body: body.__name__,
)
def test_what_counts_as_a_difference(body, settings):
    function = jit(lambda x: body(x, hidden()), python="skip")
    x = torch.randn(2)
    for _ in range(1 + 3):
        function(x)
    settings.factor = 3.0
    with pytest.warns(ingot.IngotWarning, match=r"test_audits\.py:\d+"):
        result = function(x)
    same(result, body(x, settings))
    assert type(result) is type(body(x, settings))


def test_a_difference_while_a_guard_fails_is_none(monkeypatch):
    function = jit(lambda x: x * factor)
    factor = 2.0
    x = torch.randn(4)
    function(x)
    function(x)
    audit = auditing.first_difference

    def changing(*args):
        nonlocal factor
        factor = 3.0
        return audit(*args) or auditing.Difference("another audit has found something", "")

    monkeypatch.setattr(auditing, "first_difference", changing)
    function(x)
    assert factor == 3.0
    monkeypatch.setattr(auditing, "first_difference", audit)
    same(function(x), x * 3)
    assert function.tier == "skipping"


# --- no differences ---------------------------------------------------------------------------------------------------


def test_random_numbers_are_drawn_once():
    dropout = torch.nn.Dropout(0.5)
    function, x = jit(lambda x: dropout(x * 2) + torch.rand(4)), torch.randn(4)
    torch.manual_seed(7)
    seen = [function(x) for _ in range(40)]
    torch.manual_seed(7)
    for one in seen:
        same(one, dropout(x * 2) + torch.rand(4))
    (kind,) = function._compiled.specialisations.values()
    assert kind.audits.count == 5


def test_writes_happen_once():
    norm = torch.nn.BatchNorm1d(3)
    norm.requires_grad_(False)
    assert norm.num_batches_tracked is not None
    function = jit(norm)

    @jit
    def count(counter, x):
        counter.add_(1)
        return x * counter

    counter, x = torch.zeros(1), torch.randn(5, 3)
    for number in range(1, 41):
        same(count(counter, x), x * number)
        assert counter.item() == number
        function(x)
        assert norm.num_batches_tracked.item() == number
    assert function.forward.tier == count.tier == "skipping"


def test_open_sizes_and_numbers_are_taken_from_the_call():
    def spread(x, factor):
        return (torch.tanh(x) * factor).expand(2, -1, -1).flatten(0, 1)

    function = jit(spread, dynamic=True)
    for number in range(40):
        x, factor = torch.randn(2 + number % 7, 4), 0.5 + number
        same(function(x, factor), spread(x, factor))
    kinds = list(function._compiled.specialisations.values())
    assert any(kind.audits.count > 1 and kind.trace.symbols for kind in kinds)
    assert function.tier == "skipping"


@pytest.mark.parametrize("kind", ["autocast", "inference", "no_grad"])
def test_around_calls(kind):
    module = torch.nn.Sequential(torch.nn.Linear(6, 6), torch.nn.ReLU(), torch.nn.Linear(6, 6))
    module.append(module[0])
    function, x = jit(module), torch.randn(3, 6)
    context = {
        "autocast": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
        "inference": torch.inference_mode,
        "no_grad": torch.no_grad,
    }[kind]
    with torch.no_grad(), context():
        for _ in range(20):
            expected = module(x)
            result = function(x)
            assert result.dtype is expected.dtype
            torch.testing.assert_close(result, expected, atol=2e-2 if kind == "autocast" else 1e-5, rtol=2e-2)
    assert function.forward.tier == "skipping"


def test_constants_that_are_not_numbers_are_the_same():
    function = jit(lambda x: torch.where(x > 0, torch.tensor(float("nan")), torch.tensor(-0.0)))
    for _ in range(10):
        function(torch.randn(5))
    assert function.tier == "skipping"


def test_tensors_that_share_memory_in_some_calls():
    function = jit(lambda a, b: (a[1:] + b[1:], a.view(-1)))
    memory = torch.randn(8)
    for number in range(20):
        a, b = (memory[:6], memory[2:]) if number % 3 else (torch.randn(6), torch.randn(6))
        result = function(a, b)
        same(result[0], a[1:] + b[1:])
    assert function.tier == "skipping"


def test_errors_of_an_audited_call_are_the_callers():
    function = jit(lambda x, index: x[index] * 2)
    x, fine, wrong = torch.randn(4), torch.tensor([1, 2]), torch.tensor([1, 9])
    for number in range(40):
        if number in (2, 8):
            with pytest.raises(IndexError):
                function(x, wrong)
        else:
            same(function(x, fine), x[fine] * 2)
    assert function.tier == "skipping"


def test_modules_that_change_are_recorded_again_and_not_demoted():
    module = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Dropout(0.5)).requires_grad_(False)
    function, x = jit(module), torch.randn(2, 4)
    for number in range(40):
        module.train(number % 5 == 0)
        if number % 7 == 0:
            module[0].weight = torch.nn.Parameter(torch.randn(4, 4), requires_grad=False)
        torch.manual_seed(number)
        result = function(x)
        torch.manual_seed(number)
        torch.testing.assert_close(result, module(x))
    assert function.forward._compiled.demotion is None


# --- threads ----------------------------------------------------------------------------------------------------------


def test_threads_across_a_demotion(settings, recwarn):
    function = jit(scaled, python="skip")
    x, wrong = torch.randn(64), []
    expected = {factor: torch.tanh(x) * factor for factor in (2.0, 3.0)}
    changed = threading.Barrier(3)

    def calling():
        for _ in range(100):
            function(x)
        changed.wait()
        changed.wait()
        for _ in range(2000):
            if function._compiled.demotion is not None:
                break
            function(x)
        for _ in range(200):
            if not torch.allclose(function(x), expected[3.0], atol=1e-6):
                wrong.append(1)

    threads = [threading.Thread(target=calling) for _ in range(2)]
    for thread in threads:
        thread.start()
    changed.wait()
    settings.factor = 3.0
    changed.wait()
    for thread in threads:
        thread.join()
    assert function._compiled.demotion is not None and not wrong
    assert len([one for one in recwarn if "does not do what was recorded" in str(one.message)]) == 1
