"""What ingot says of functions that it does not compile, where it says it, and that tools which read code can."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import ingot
from ingot.base.environment_variables import environment
from ingot.base.errors import CaptureError
from ingot.frontend.jit.autotune import eager_comparison
from ingot.frontend.jit.cache.specialisation import Specialisation
from ingot.frontend.jit.follow import follower

jit: Any = ingot.jit


class Box:
    """Something that ingot does not look into."""

    __slots__ = ("content",)


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.linear(x)) + 1.0


def double(x: torch.Tensor) -> torch.Tensor:
    return torch.tanh(x) * 2.0


def warnings_of(call: Callable[[], Any]) -> list[warnings.WarningMessage]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    return [one for one in caught if issubclass(one.category, ingot.IngotWarning)]


# --- warnings ---------------------------------------------------------------------------------------------------------


def test_functions_that_are_followed_are_not_warned_of():
    class Module(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * float(x.sum())

    function = jit(lambda x, box: x * 2.0)
    assert not warnings_of(lambda: [function(torch.ones(3), Box()) for _ in range(3)])
    assert not warnings_of(lambda: [jit(Module())(torch.ones(3)) for _ in range(3)])


@pytest.fixture
def no_trap(monkeypatch: pytest.MonkeyPatch):
    """A version of PyTorch in which nothing can be followed."""
    monkeypatch.setattr(follower, "_armed", lambda: None)


@pytest.mark.usefixtures("no_trap")
def test_warnings_point_at_the_call():
    refused = jit(lambda x, box: x * 2.0)
    prints = jit(lambda x: x * float(x.sum()))

    class Module(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * float(x.sum())

    for call in (
        lambda: refused(torch.ones(3), Box()),
        lambda: prints(torch.ones(3)),
        lambda: jit(Module())(torch.ones(3)),
        lambda: jit(Module)()(torch.ones(3)),
        lambda: nn.Sequential(jit(Module()))(torch.ones(3)),
        lambda: jit(nn.Sequential(Module()))(torch.ones(3)),
    ):
        (found,) = warnings_of(call)
        assert (found.filename, found.lineno) == (__file__, call.__code__.co_firstlineno)


@pytest.mark.usefixtures("no_trap")
def test_each_is_given_once_per_place_unless_asked_otherwise():
    function = jit(lambda x, box: x * 2.0)
    assert len(warnings_of(lambda: [function(torch.ones(3), Box()) for _ in range(3)])) == 1


@pytest.mark.usefixtures("no_trap")
def test_warnings_can_be_filtered_by_their_class():
    assert issubclass(ingot.IngotWarning, UserWarning)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ingot.IngotWarning)
        with pytest.raises(ingot.IngotWarning, match="an argument is a Box"):
            jit(lambda x, box: x * 2.0)(torch.ones(3), Box())


@pytest.mark.usefixtures("no_trap")
def test_explain_agrees_with_the_warning():
    function = jit(lambda x, box: x * 2.0, name="boxed")
    (found,) = warnings_of(lambda: [function(torch.ones(3), Box()) for _ in range(3)])
    reason = str(found.message).removeprefix("boxed runs eagerly: ")
    assert function.tier == "eager"
    assert "not following: this version of PyTorch does not allow it" in function.explain()
    assert f"3 calls ran eagerly: {reason}" in function.explain()
    ingot.reset()
    assert "not called yet" in function.explain()


def test_programs_that_cannot_be_compiled_are_warned_of(monkeypatch: pytest.MonkeyPatch):
    def fail(*_: Any) -> Any:
        raise CaptureError("no program today")

    monkeypatch.setattr(Specialisation, "prepare", fail)
    function = jit(double, name="this")
    (found,) = warnings_of(lambda: [function(torch.ones(3)) for _ in range(4)])
    assert str(found.message) == "this runs eagerly: CaptureError: no program today"
    assert function.tier == "eager" and "not following: CaptureError: no program today" in function.explain()


@pytest.mark.parametrize("call", [lambda f: f(torch.ones(3), Box()), lambda f: f(torch.ones(3), 1.0)])
def test_with_fullgraph_the_reason_is_an_error(call: Callable[[Any], Any]):
    with pytest.raises(CaptureError, match=r"an argument is a Box|turns a tensor's value .*test_messages\.py:\d+"):
        call(jit(lambda x, box: x * float(x.sum()), fullgraph=True))


# --- explain ----------------------------------------------------------------------------------------------------------


def test_explain_tells_of_gradients():
    function = jit(lambda x: torch.tanh(x).exp(), name="this")
    function(torch.ones(3, requires_grad=True))
    assert function.explain().splitlines() == [
        "this: skipping, 1 call, 1 recording",
        "",
        "  kind 1, 0 calls after the recording: float32[3]",
        "    with gradients; recorded with its backward pass once that comes, and compiled at the next call like it",
    ]
    for _ in range(3):
        function(torch.ones(3, requires_grad=True)).sum().backward()
    text = function.explain()
    assert "keeps 12 bytes for the backward pass, 50% of the 24 bytes that eager keeps" in text
    assert "computed again in the backward pass: " in text
    assert text.index("forward:") < text.index("tanh") < text.index("backward:")


def test_explain_tells_why_gradients_are_eagers():
    function = jit(lambda x: (x, x * 2), name="this")
    for _ in range(3):
        function(torch.ones(3, requires_grad=True))
    assert function.tier == "eager"
    reason = "its result needs gradients, and it returns an argument, a tensor around it, or a view of one"
    assert f"not following: {reason}" in function.explain()


@pytest.mark.usefixtures("no_eager_comparison")
def test_twins_explain_themselves():
    twin = jit(Layer())
    with torch.no_grad():
        for _ in range(3):
            twin(torch.ones(2, 4))
    assert twin.explain() == twin.forward.explain() and "kernel" in twin.explain()
    assert (twin.tier, twin.recordings) == (twin.forward.tier, twin.forward.recordings) == ("skipping", 1)
    assert twin.inspect("kernels") == twin.forward.inspect("kernels") != ""


def test_twins_keep_what_their_modules_have_under_these_names():
    class Explaining(Layer):
        def explain(self) -> str:
            return "the module's own"

    module = Explaining()
    module.inspect = nn.Identity()
    twin = jit(module)
    assert twin.explain() == "the module's own" and twin.inspect is module.inspect
    twin.tier = "the module's own"
    assert twin.tier == module.tier == "the module's own"


# --- texts ------------------------------------------------------------------------------------------------------------


def test_a_mistyped_option_is_named_with_what_was_meant():
    message = r"^ingot\.jit\(\) got an unexpected option 'dynamc'; did you mean 'dynamic'\?$"
    with pytest.raises(TypeError, match=message):
        jit(double, dynamc=True)
    with pytest.raises(TypeError, match=message):
        jit(dynamc=True)
    with pytest.raises(TypeError, match=r"unexpected option 'zzzz'; there are .*fullgraph"):
        jit(zzzz=1)


def test_no_reason_holds_the_identity_of_an_object():
    function = jit(lambda x, activation, part: activation(x[part]))
    for _ in range(3):
        function(torch.ones(4), nn.ReLU(), slice(0, 3))
    function(torch.ones(4), nn.ReLU(), slice(0, 2))
    text = function.explain()
    assert "activation: is another ReLU" in text and "slice(0, 3, None) became slice(0, 2, None)" in text
    assert not re.search(r"\d{8}|0x", text)


@pytest.fixture
def logged(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.setenv("INGOT_LOGS", "fallbacks")
    environment.cache_clear()
    yield lambda: capsys.readouterr().err.splitlines()
    environment.cache_clear()


def _and_double(x):
    return x, x * 2


def test_fallbacks_are_logged_once(logged: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch):
    weight = torch.ones(3, requires_grad=True)
    for function, x in (
        (_and_double, torch.ones(3, requires_grad=True)),
        (lambda x: (x * weight, weight), torch.ones(3)),
    ):
        compiled = jit(function, name="this")
        for _ in range(4):
            compiled(x)
        (line,) = logged()
        assert line.startswith(("ingot fallbacks: this runs eagerly: its ", "ingot fallbacks: this is followed: its "))
        assert "gradients" in line
    monkeypatch.setattr(eager_comparison, "ROUNDS", 2)
    monkeypatch.setattr(eager_comparison, "CLEARLY", 1e9)
    compiled = jit(double, name="this")
    for _ in range(30):
        compiled(torch.ones(3))
    (line,) = logged()
    assert line.startswith("ingot fallbacks: this runs eagerly: eager PyTorch is quicker here")


def test_following_is_logged_once_with_the_reason_and_the_line(logged: Callable[[], list[str]]):
    function = jit(lambda x: x * float(x.sum()), name="this")
    for _ in range(5):
        function(torch.ones(3))
    (line,) = logged()
    number = function.__wrapped__.__code__.co_firstlineno
    assert line.startswith("ingot fallbacks: this is followed: ") and line.endswith(f"({__file__}:{number})")


# --- tools that read code ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("compiled", [lambda: jit(Layer()), lambda: jit(type("Layer", (Layer,), {}))()])
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")
def test_compiled_modules_can_be_exported(compiled: Callable[[], Any], strict: bool):
    module = compiled().eval()
    x = torch.randn(2, 4)
    program = torch.export.export(module, (x,), strict=strict)
    torch.testing.assert_close(program.module()(x), Layer.forward(module, x))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "make",
    [
        lambda x: torch.jit.trace(Layer().eval(), (x,)),
        lambda x: torch.jit.script(Layer().eval()),
        lambda x: torch.jit.trace(double, (x,)),
        lambda x: torch.jit.script(double),
    ],
)
def test_what_torchscript_made_can_be_given(make: Callable[[torch.Tensor], Any]):
    x = torch.randn(2, 4)
    scripted = make(x)
    compiled = jit(scripted)
    with torch.no_grad():
        for _ in range(5):
            torch.testing.assert_close(compiled(x), scripted(x))
    assert "call" in compiled.explain()


def test_what_functions_do_not_have_compiled_ones_do_not_have():
    compiled = jit(double)
    assert compiled.__code__ is double.__code__ and compiled.__globals__ is double.__globals__
    assert not hasattr(compiled, "__nothing__") and not hasattr(jit(torch.tanh), "__code__")


def test_functions_that_are_quicker_eagerly_say_why_they_are_not_skipped():
    log: list[int] = []

    def noted(x):
        log.append(1)
        return x + 1

    function = jit(noted)
    for _ in range(3):
        function(torch.ones(3))
    function._compiled.follower.verdict.text = "eager PyTorch is quicker here"
    assert function.tier == "eager"
    first, second = function.explain().splitlines()[1:3]
    assert first == "  not following: eager PyTorch is quicker here"
    assert second.startswith("  not skipping: ") and "log" in second
