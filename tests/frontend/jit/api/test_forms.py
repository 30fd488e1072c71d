"""The seven forms of `ingot.jit`, and that what comes back is still what went in: name, signature, pickles, copies."""

from __future__ import annotations

import asyncio
import copy
import functools
import gc
import inspect
import io
import pickle
import weakref
from typing import Any

import pytest
import torch
from torch import nn

import ingot
from ingot.base.errors import CaptureError, ConfigError
from ingot.frontend.jit.api.forms import Jitted
from tests.frontend.jit.comparing import check, is_compiled, same

jit: Any = ingot.jit  # what it gives has more than what it was given


@jit
def gate(x: torch.Tensor, y: torch.Tensor, *, scale: float = 2.0) -> torch.Tensor:
    """A gate."""
    return torch.sigmoid(x) * y * scale


def plain_gate(x: torch.Tensor, y: torch.Tensor, *, scale: float = 2.0) -> torch.Tensor:
    return torch.sigmoid(x) * y * scale


class Plain(nn.Module):
    """A module."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.norm = nn.BatchNorm1d(4)
        self.dropout = nn.Dropout(0.5)

    def forward(self, x: torch.Tensor, shift: float = 1.0) -> torch.Tensor:
        return self.dropout(torch.relu(self.norm(self.linear(x)))) + shift

    def embed(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.linear(x)) * 2


@jit
class Net(Plain):
    """A decorated class."""

    def __init__(self) -> None:
        super(Net, self).__init__()  # noqa: UP008

    def forward(self, x: torch.Tensor, shift: float = 1.0) -> torch.Tensor:
        return torch.relu(self.norm(self.linear(x))) + shift


class Deeper(Net):
    def forward(self, x: torch.Tensor, shift: float = 1.0) -> torch.Tensor:
        return super().forward(x, shift) * 2


class WithMethod(Plain):
    @jit
    def embed(self, x: torch.Tensor) -> torch.Tensor:
        """Embeds."""
        return torch.tanh(self.linear(x)) * 2

    @jit
    @staticmethod
    def doubled(x: torch.Tensor) -> torch.Tensor:
        return x * 2 + 1

    @staticmethod
    @jit
    def tripled(x: torch.Tensor) -> torch.Tensor:
        return x * 3 + 1

    @jit
    @classmethod
    def scaled(cls, x: torch.Tensor) -> torch.Tensor:
        return x * len(cls.__name__) + 1

    @classmethod
    @jit
    def moved(cls, x: torch.Tensor) -> torch.Tensor:
        return x + len(cls.__name__) * 2


@pytest.fixture(autouse=True)
def _without_gradients() -> Any:
    with torch.no_grad():
        yield


def _calls(compiled: Any, eager: Any, make: Any) -> None:
    """Three calls of both, of modules that hold the same numbers and have memory of their own."""
    for call in range(3):
        x = make()
        torch.manual_seed(call)
        expected = eager(x)
        torch.manual_seed(call)
        same(compiled(x), expected)


def _x() -> torch.Tensor:
    return torch.randn(5, 4)


def test_decorated_function() -> None:
    check(gate.__wrapped__, lambda: [torch.randn(3, 4), torch.randn(4)], compiled=gate)
    assert is_compiled(gate)
    x = torch.randn(3, 4)
    same(gate(y=x, x=x, scale=3.0), plain_gate(x, x, scale=3.0))


def test_wrapped_function() -> None:
    assert is_compiled(check(plain_gate, lambda: [torch.randn(3, 4), torch.randn(4)]))


def test_decorated_method_of_a_module() -> None:
    model = WithMethod().eval()
    _calls(model.embed, functools.partial(Plain.embed, model), _x)
    assert is_compiled(model.embed)
    assert model.embed.__self__ is model and model.embed.__doc__ == "Embeds."
    other = WithMethod().eval()
    assert other.embed is not model.embed
    _calls(other.embed, functools.partial(Plain.embed, other), _x)


def test_decorated_class() -> None:
    assert isinstance(Net, type) and Net.__name__ == "Net" and Net.__qualname__ == "Net"
    model = Net().eval()
    assert type(model) is Net
    _calls(model, lambda x: Net.forward.__wrapped__(model, x), _x)
    assert is_compiled(model.forward)


def test_wrapped_class() -> None:
    class Inner(Plain):
        pass

    wrapped = jit(Inner)
    assert wrapped is Inner
    model = wrapped().eval()
    _calls(model, lambda x: Plain.forward(model, x), _x)
    assert is_compiled(model.forward)
    assert not isinstance(Plain.forward, Jitted)


def test_wrapped_bound_method() -> None:
    model: Any = Plain().eval()
    model.embed = jit(model.embed)
    _calls(model.embed, functools.partial(Plain.embed, model), _x)
    assert is_compiled(model.embed)
    model.linear.weight.mul_(2)
    _calls(model.embed, functools.partial(Plain.embed, model), _x)


def test_wrapped_instance() -> None:
    model = Plain().eval()
    compiled = jit(model)
    assert isinstance(compiled, Plain) and type(compiled).__name__ == "Plain" and "Plain(" in repr(compiled)
    _calls(compiled, model, _x)
    assert is_compiled(compiled.forward) and not isinstance(model.forward, Jitted)
    assert list(compiled.state_dict()) == list(model.state_dict())
    assert all(one is other for one, other in zip(compiled.parameters(), model.parameters(), strict=True))
    compiled.train()
    assert model.training  # one state, two ways to call it
    assert [name for name, _ in compiled.named_modules()] == [name for name, _ in model.named_modules()]


def test_wrapped_instance_whose_forward_was_replaced() -> None:
    model: Any = Plain().eval()
    model.forward = lambda x: torch.tanh(model.linear(x)) + 1
    compiled = jit(model)
    _calls(compiled, lambda x: torch.tanh(model.linear(x)) + 1, _x)


def test_subclass_of_a_decorated_class_calls_its_super() -> None:
    model = Deeper().eval()
    _calls(model, lambda x: Net.forward.__wrapped__(model, x) * 2, _x)
    jitted = jit(model, python="skip")
    _calls(jitted, lambda x: Net.forward.__wrapped__(model, x) * 2, _x)
    assert is_compiled(jitted.forward)


def test_static_and_class_methods() -> None:
    x = _x()
    for owner in (WithMethod, WithMethod()):
        for _ in range(3):
            same(owner.doubled(x), x * 2 + 1)
            same(owner.tripled(x), x * 3 + 1)
            same(owner.scaled(x), x * 10 + 1)
            same(owner.moved(x), x + 20)


def test_objects_with_call_and_partials() -> None:
    class Scale:
        def __init__(self, factor: float):
            self.factor = factor

        def __call__(self, x: torch.Tensor) -> torch.Tensor:
            return torch.relu(x) * self.factor

    scale = Scale(3.0)
    compiled = check(scale, lambda: [_x()])
    assert is_compiled(compiled)
    scale.factor = 5.0
    check(scale, lambda: [_x()], compiled=compiled)
    assert is_compiled(check(functools.partial(plain_gate, scale=4.0), lambda: [_x(), _x()]))
    partial = functools.partial(gate, scale=4.0)
    same(partial(_ := _x(), _), plain_gate(_, _, scale=4.0))


def test_name_documentation_and_signature_stay() -> None:
    assert gate.__name__ == "gate" and gate.__doc__ == "A gate." and gate.__module__ == __name__
    assert inspect.signature(gate) == inspect.signature(plain_gate)
    assert inspect.signature(Net().forward) == inspect.signature(Plain().forward)
    assert Net.__doc__ == "A decorated class." and "gate" in repr(gate)
    assert inspect.signature(jit(Plain()).forward) == inspect.signature(Plain().forward)


@pytest.mark.parametrize("made", [Net, Deeper, WithMethod, lambda: jit(Plain()), lambda: jit(Net())])
def test_modules_pickle_and_copy(made: Any) -> None:
    model = made().eval()
    x = _x()
    expected = [model(x) for _ in range(3)][-1]
    buffer = io.BytesIO()
    torch.save(model, buffer)
    buffer.seek(0)
    saved = torch.load(buffer, weights_only=False)
    for again in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model), copy.copy(model), saved):
        assert type(again).__name__ == type(model).__name__
        assert list(again.state_dict()) == list(model.state_dict())
        for _ in range(3):
            same(again(x), expected)
    again = copy.deepcopy(model)
    again.linear.weight.zero_()
    same(model(x), expected)
    assert isinstance(copy.deepcopy(model).forward, Jitted) == isinstance(model.forward, Jitted)


def test_functions_pickle_and_copy() -> None:
    assert pickle.loads(pickle.dumps(gate)) is gate
    assert copy.copy(gate) is gate and copy.deepcopy(gate) is gate
    wrapped = pickle.loads(pickle.dumps(jit(plain_gate, name="other")))
    check(plain_gate, lambda: [_x(), _x()], compiled=wrapped)
    with pytest.raises((pickle.PicklingError, AttributeError)):
        pickle.dumps(jit(lambda x: x))


def test_bound_methods_copy_with_their_object() -> None:
    model: Any = Plain().eval()
    model.embed = jit(model.embed)
    again = copy.deepcopy(model)
    again.linear.weight.zero_()
    again.linear.bias.zero_()
    x = _x()
    same(again.embed(x), torch.zeros(5, 4))
    same(model.embed(x), Plain.embed(model, x))


@pytest.mark.parametrize("made", [Net, lambda: jit(Plain())])
def test_state_training_and_types_change(made: Any) -> None:
    torch.manual_seed(0)
    model = made()
    eager = Plain()
    is_net = isinstance(model, Net)
    eager.load_state_dict(model.state_dict())
    if is_net:
        eager.dropout.p = 0.0
    for change in ("train", "eval", "double", "eval", "train", "bfloat16", "eval", "float", "train"):
        getattr(model, change)()
        getattr(eager, change)()
        dtype = next(eager.parameters()).dtype
        _calls(model, eager, lambda dtype=dtype: _x().to(dtype))
        same(model.norm.running_mean, eager.norm.running_mean)
        same(model.norm.num_batches_tracked, eager.norm.num_batches_tracked)
    eager.eval()
    model.eval()
    fresh = Plain().state_dict()
    eager.load_state_dict(fresh)
    model.load_state_dict(fresh)
    _calls(model, eager, _x)
    assert model.to(torch.float64) is model


def test_dropped_modules_are_freed() -> None:
    for made in (Net, lambda: jit(Plain()), WithMethod):
        model = made().eval()
        for _ in range(3):
            model(_x())
        if isinstance(model, WithMethod):
            model.embed(_x())
            model.embed(_x())
        gone = weakref.ref(model), weakref.ref(model.linear.weight)
        del model
        gc.collect()
        assert gone[0]() is None and gone[1]() is None


def test_functions_calling_compiled_functions_and_recursion() -> None:
    @jit
    def inner(x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x) * 2

    def outer(x: torch.Tensor) -> torch.Tensor:
        return inner(x) + inner(x + 1)

    check(outer, lambda: [_x()])
    assert is_compiled(check(outer, lambda: [_x()], python="skip"))

    @jit
    def power(x: torch.Tensor, times: int) -> torch.Tensor:
        return x if times == 0 else power(x, times - 1) * x + 1

    for times in (3, 3, 3, 2, 3):
        x = _x()
        expected = x
        for _ in range(times):
            expected = expected * x + 1
        same(power(x, times), expected)


def test_jit_of_jit() -> None:
    check(plain_gate, lambda: [_x(), _x()], compiled=jit(jit(plain_gate)))
    model = Plain().eval()
    _calls(jit(jit(model)), model, _x)


def generator(x: torch.Tensor) -> Any:
    for factor in (2.0, 3.0):
        yield x * factor


async def coroutine(x: torch.Tensor) -> Any:
    await asyncio.sleep(0)
    return x * 2.0


async def asynchronous(x: torch.Tensor) -> Any:
    yield x * 2.0


class Generating:
    def __call__(self, x: torch.Tensor) -> Any:
        yield from generator(x)

    def values(self, x: torch.Tensor) -> Any:
        yield from generator(x)


async def first_of(values: Any) -> Any:
    return await anext(values)


@pytest.mark.parametrize("python", ["auto", "run", "skip"])
@pytest.mark.parametrize(
    "function, run, word",
    [
        (generator, list, "a generator"),
        (functools.partial(generator), list, "a generator"),
        (Generating(), list, "a generator"),
        (Generating().values, list, "a generator"),
        (coroutine, asyncio.run, "a coroutine"),
        (asynchronous, lambda values: asyncio.run(first_of(values)), "an asynchronous generator"),
    ],
)
def test_generators_and_coroutines_run_as_they_are(function: Any, run: Any, word: str, python: str) -> None:
    compiled = jit(function, python=python)
    assert compiled.tier == "new"
    for _ in range(3):
        x = _x()
        same(run(compiled(x)), run(function(x)))
    assert compiled.tier == "eager" and compiled.recordings == 0
    assert compiled.explain().splitlines()[1].startswith(f"  not following: it is {word}")
    ingot.reset()
    assert compiled.tier == "new"
    with pytest.raises(CaptureError, match=word):
        jit(function, fullgraph=True)


def test_what_cannot_be_called_is_refused() -> None:
    with pytest.raises(CaptureError, match="takes a function"):
        jit(3)


def test_functions_that_return_generators_are_followed() -> None:
    check(lambda x: tuple(generator(x)), lambda: [_x()])
    compiled = jit(lambda x: generator(x))
    for _ in range(3):
        x = _x()
        same(list(compiled(x)), list(generator(x)))


def test_options_are_checked() -> None:
    with pytest.raises(ValueError, match="tune=False"):
        jit(plain_gate, tune=False, tuning_steps=5)
    for wrong in ({"tuning_steps": 0}, {"tuning_steps": "5"}, {"tune": 3}, {"fullgraph": "yes"}, {"dynamic": 3}):
        with pytest.raises(ConfigError):
            jit(plain_gate, **wrong)
    with pytest.raises(ConfigError):
        jit(plain_gate, config=[("a", 1)])
    with pytest.raises(ConfigError):
        jit(plain_gate, name=5)
    with pytest.raises(TypeError):
        jit(plain_gate, steps=5)
    message = r"python must be one of 'auto', 'run', 'skip', not 'skipp'; did you mean 'skip'\?"
    with pytest.raises(ConfigError, match=message):
        jit(plain_gate, python="skipp")
    with pytest.raises(ConfigError, match=r"python must be one of 'auto', 'run', 'skip', not True$"):
        jit(plain_gate, python=True)
    with pytest.raises(ConfigError, match=r"did you mean 'reduce-overhead'\?"):
        jit(plain_gate, mode="reduce_overhead")
    with pytest.raises(ConfigError, match=r'fullgraph=True .* python="run" .* leave one of them out'):
        jit(plain_gate, fullgraph=True, python="run")
    with pytest.raises(TypeError, match=r"unexpected option 'pyton'; did you mean 'python'\?"):
        jit(plain_gate, pyton="run")


def test_options_are_kept() -> None:
    given = {"kernel_fusion_level": 2}
    compiled = jit(tuning_steps=7, config=given, name="mine")(plain_gate)
    assert given == {"kernel_fusion_level": 2}
    options = compiled._options
    assert options.tune and options.tuning_steps == 7 and options.config["kernel_fusion_level"] == 2
    assert not jit(plain_gate)._options.tune
    assert jit(plain_gate, config=ingot.Config(given))._options.config == ingot.Config(given)
    check(plain_gate, lambda: [_x(), _x()], compiled=compiled)


def test_functions_of_torch_are_compiled():
    add = ingot.jit(torch.add)
    for _ in range(3):
        x, y = torch.randn(3), torch.randn(3)
        torch.testing.assert_close(add(x, y, alpha=2), x + 2 * y)


def test_explain_calls_with_copies_and_tells_what_became_of_it():
    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x.add_(1)) * 2

    x = torch.zeros(3)
    text = ingot.explain(function, x)
    assert x.sum() == 0
    assert "3 operations became 1 kernel and 0 calls of PyTorch's" in text
    module = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())
    with torch.no_grad():
        assert "aten.linear.default" in ingot.explain(module, torch.randn(2, 4))
    text = ingot.explain(lambda x: torch.tanh(x) * x.sum().item(), x)
    assert "turns a tensor's value into a Python value" in text and "t1 = torch.tanh(t0)" in text
