"""Modules that change between calls or while they are called: weights, flags, layers, hooks, caches."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import ingot
from ingot.base.errors import CaptureError
from tests.frontend.jit.comparing import is_compiled, same, why_followed

jit: Any = ingot.jit


class One(nn.Module):
    scale = 1.0

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.linear(x)) * self.scale + 1


class Counting(One):
    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return self.linear(x) * self.calls


class Remembering(One):
    def __init__(self) -> None:
        super().__init__()
        self.last: Any = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.last = self.linear(x)
        return self.last * 2


class Caching(One):
    def __init__(self) -> None:
        super().__init__()
        self.cache: dict[str, torch.Tensor] = {}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if "mask" not in self.cache:
            self.cache["mask"] = torch.arange(4.0)
        return self.linear(x) * self.cache["mask"]


class Growing(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 4)])
        self.functions: list[Any] = [torch.relu]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in (*self.layers, *self.functions):
            x = layer(x)
        return x


class Normalising(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.convolution, self.norm, self.dropout = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Dropout(0.3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.dropout(torch.relu(self.norm(self.convolution(x))))


def _together(
    made: Callable[[], nn.Module],
    changes: dict[int, Callable[[Any], Any]] | None = None,
    calls: int = 10,
    sizes: tuple[int, ...] = (2, 4),
    python: str = "auto",
) -> Any:
    """A module and its compiled twin, changed alike and called alike; gives the twin."""
    torch.manual_seed(0)
    eager = made()
    compiled = jit(copy.deepcopy(eager), python=python)
    with torch.no_grad():
        for call in range(calls):
            for module in (eager, compiled):
                torch.manual_seed(100 + call)
                (changes or {}).get(call, lambda module: None)(module)
            x = torch.randn(*sizes)
            torch.manual_seed(call)
            expected = eager(x)
            torch.manual_seed(call)
            same(compiled(x), expected)
            same(dict(compiled.state_dict()), dict(eager.state_dict()))
    return compiled


def test_statistics_and_training() -> None:
    changes: dict[int, Callable[[Any], Any]] = {
        call: (lambda m, call=call: m.train(call % 8 < 4)) for call in range(24)
    }
    compiled = _together(Normalising, changes, 24, (2, 3, 8, 8))
    assert is_compiled(compiled.forward)


def test_weights_are_replaced() -> None:
    def new_parameter(module: Any) -> None:
        module.linear.weight = nn.Parameter(torch.randn(4, 4))

    def new_data(module: Any) -> None:
        module.linear.weight.data = torch.randn(4, 4)

    def new_layout(module: Any) -> None:
        module.linear.weight.data = torch.randn(4, 4).t()

    def new_layer(module: Any) -> None:
        module.linear = nn.Linear(4, 4)

    def without_bias(module: Any) -> None:
        module.linear.bias = None

    changes = {2: new_parameter, 4: new_data, 6: new_layer, 8: new_layout, 10: without_bias}
    assert is_compiled(_together(One, changes, 13).forward)


def test_attributes_change_on_the_object_and_on_its_class() -> None:
    try:
        _together(One, {3: lambda m: setattr(One, "scale", 3.0), 6: lambda m: setattr(m, "scale", 5.0)})
    finally:
        One.scale = 1.0


def test_layers_are_added() -> None:
    changes = {3: lambda m: m.layers.append(nn.Linear(4, 4)), 6: lambda m: m.functions.append(torch.tanh)}
    assert is_compiled(_together(Growing, changes).forward)


def test_caches_are_filled_once() -> None:
    assert is_compiled(_together(Caching).forward)


@pytest.mark.parametrize("made", [Counting, Remembering])
def test_attributes_set_by_a_call_are_set_by_every_call(made: Any) -> None:
    compiled = _together(made)
    assert "test_modules.py:" in why_followed(compiled)
    assert getattr(compiled, "calls", 10) == 10
    with pytest.raises(CaptureError), torch.no_grad():
        jit(made(), fullgraph=True)(torch.randn(2, 4))


def test_hooks_run_at_every_call() -> None:
    calls: list[str] = []

    def add_inner(module: Any) -> None:
        module.handle = module.linear.register_forward_hook(lambda *_: calls.append("inner"))

    def add_outer(module: Any) -> None:
        module.register_forward_hook(lambda module, given, result: result * 3)
        module.register_forward_pre_hook(lambda *_: calls.append("outer"))

    changes = {3: add_inner, 6: lambda m: m.handle.remove(), 8: add_outer}
    compiled = _together(One, changes, 12)
    assert calls.count("inner") == 6 and calls.count("outer") == 8  # of both modules
    assert is_compiled(compiled.forward)


def test_hooks_that_only_compute_are_compiled() -> None:
    factors = [2.0]

    def put_another_forward(module: Any, given: Any) -> Any:
        module.kept, module.forward = module.forward, torch.relu
        return given[0] + 1

    def put_it_back(module: Any, given: Any, result: Any) -> Any:
        module.forward = module.kept
        return result * factors[0] + given[0].sum()

    for before in (lambda module, given: (given[0] + 1,), put_another_forward):
        model, x = One(), torch.randn(2, 4)
        model.linear.register_forward_pre_hook(before)
        model.linear.register_forward_hook(put_it_back if before is put_another_forward else _doubles)
        compiled = jit(model.forward)
        with torch.no_grad():
            for call in range(8):
                factors[0] = 3.0 if call > 4 else 2.0
                same(compiled(x), model(x))
        if before is not put_another_forward:
            assert is_compiled(compiled)


def _doubles(module: Any, given: Any, result: Any) -> Any:
    return result * 2 + given[0].sum()


def test_hooks_of_all_modules_and_of_the_object_of_a_method() -> None:
    class Predicting(One):
        @jit
        def predict(self, x: torch.Tensor) -> torch.Tensor:
            return self(x) + 1

    model, calls, x = Predicting(), [], torch.randn(2, 4)
    handle = model.register_forward_hook(lambda *_: calls.append(1))
    with torch.no_grad():
        for _ in range(3):
            model.predict(x)
        assert len(calls) == 3 and "the call changes calls" in why_followed(model.predict)
        handle.remove()
        for _ in range(3):
            same(model.predict(x), model(x) + 1)
        handle = nn.modules.module.register_module_forward_hook(lambda *_: calls.append(1))
        for _ in range(2):
            model.predict(x)
        handle.remove()
    assert len(calls) == 7


@pytest.mark.parametrize(
    ("made", "sizes"),
    [
        (lambda: nn.LSTM(4, 5), (3, 2, 4)),
        (lambda: nn.GRU(4, 5), (3, 2, 4)),
        (lambda: nn.TransformerEncoderLayer(8, 2), (3, 2, 8)),
        (lambda: nn.TransformerEncoderLayer(8, 2).eval(), (3, 2, 8)),
        (lambda: nn.Sequential(nn.utils.parametrizations.spectral_norm(nn.Linear(4, 4)), nn.ReLU()), (2, 4)),
        (lambda: nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(4, 4)), nn.ReLU()), (2, 4)),
        (lambda: nn.InstanceNorm2d(3, track_running_stats=True), (2, 3, 4, 4)),
        (lambda: nn.RReLU(), (3, 4)),
        (lambda: nn.Sequential(nn.ReLU(inplace=True), nn.Hardtanh(inplace=True)), (3, 4)),
    ],
)
def test_modules_of_pytorch(made: Any, sizes: tuple[int, ...]) -> None:
    assert is_compiled(_together(made, calls=4, sizes=sizes, python="skip").forward)
    _together(made, calls=4, sizes=sizes)


def test_tied_weights() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)
            self.second.weight = self.first.weight
            self.part = nn.Parameter(self.first.weight.data[1:])

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.part.data.add_(1) if self.training else None
            return self.second(torch.tanh(self.first(x))) + self.part.sum()

    model, x = Tied().eval(), torch.randn(2, 4)
    compiled = jit(model)
    with torch.no_grad():
        for _ in range(3):
            same(compiled(x), Tied.forward(model, x))
            model.first.weight.mul_(0.5)
