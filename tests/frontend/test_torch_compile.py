"""ingot as a backend of torch.compile: found by its name alone, right under graph breaks, open sizes and gradients."""

import subprocess
import sys
import textwrap
from typing import Any

import pytest
import torch
from torch import nn
from torch._dynamo.testing import CompileCounterWithBackend

from ingot.frontend import torch_compile


@pytest.fixture(autouse=True)
def forgotten():
    """What torch.compile has compiled for one test does not serve the next."""
    torch.compiler.reset()
    yield
    torch.compiler.reset()


def gate(x, y):
    return torch.sigmoid(x * y + 1.0) * torch.tanh(x - y)


def test_backend_is_found_without_an_import():
    script = """
        import sys
        import torch

        assert not any(name.partition(".")[0] == "ingot" for name in sys.modules)
        compiled = torch.compile(lambda x, y: torch.relu(x * y + x), backend="ingot")
        x, y = torch.randn(8, 9), torch.randn(8, 9)
        for _ in range(3):
            torch.testing.assert_close(compiled(x, y), torch.relu(x * y + x))
        assert "ingot.frontend.torch_compile" in sys.modules
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(script)], check=True, timeout=300)


def noticing(monkeypatch):
    """Every function that the backend compiles from now on."""
    made = []
    original = torch_compile.CompiledFunction

    def notice(*arguments):
        made.append(original(*arguments))
        return made[-1]

    monkeypatch.setattr(torch_compile, "CompiledFunction", notice)
    return made


def test_generated_kernels_run(monkeypatch):
    made = noticing(monkeypatch)
    compiled = torch.compile(gate, backend=torch_compile.backend)
    x, y = torch.randn(6, 7), torch.randn(6, 7)
    for _ in range(3):
        torch.testing.assert_close(compiled(x, y), gate(x, y))
    (function,) = made
    (kind,) = function.specialisations.values()
    assert [len(module.kernels()) for module in kind.program.modules] == [1]


def test_modules_with_buffers_are_compiled(monkeypatch):
    class Shifted(nn.Module):
        def __init__(self):
            super().__init__()
            self.shift = nn.Buffer(torch.randn(7))

        def forward(self, x):
            return torch.tanh(x + self.shift) * 2

    made, module = noticing(monkeypatch), Shifted()
    compiled = torch.compile(module, backend=torch_compile.backend)
    for _ in range(3):
        x = torch.randn(6, 7)
        torch.testing.assert_close(compiled(x), module(x))
    (function,) = made
    (kind,) = function.specialisations.values()
    assert kind.broken is None


@pytest.mark.parametrize("dynamic", [False, True])
def test_sizes_stay_open_where_dynamo_keeps_them_open(monkeypatch, dynamic):
    made = noticing(monkeypatch)
    compiled = torch.compile(gate, backend=torch_compile.backend, dynamic=dynamic)
    compiled(torch.randn(6, 7), torch.randn(6, 7))
    (function,) = made
    assert function.options.dynamic is dynamic


def test_graph_breaks_split_the_function():
    def breaks(x):
        x = x * 2 + 1
        torch._dynamo.graph_break()
        return torch.relu(x) - 3

    counter = CompileCounterWithBackend("ingot")
    compiled = torch.compile(breaks, backend=counter)
    x = torch.randn(5, 5)
    for _ in range(3):
        torch.testing.assert_close(compiled(x), breaks(x))
    assert counter.frame_count == 2


def test_branches_on_values_take_the_right_way():
    def branches(x):
        if x.sum() > 0:
            return x * 2 + 1
        return x.abs() - 1

    compiled = torch.compile(branches, backend="ingot")
    for x in (torch.ones(4), -torch.ones(4), torch.ones(4), -torch.ones(4)):
        torch.testing.assert_close(compiled(x), branches(x))


def test_sizes_marked_dynamic_compile_once():
    counter = CompileCounterWithBackend("ingot")
    compiled = torch.compile(gate, backend=counter)
    for rows in (3, 8, 31, 3):
        x, y = torch.randn(rows, 7), torch.randn(rows, 7)
        torch._dynamo.mark_dynamic(x, 0)
        torch._dynamo.mark_dynamic(y, 0)
        torch.testing.assert_close(compiled(x, y), gate(x, y))
    assert counter.frame_count == 1


def test_changing_sizes_become_dynamic():
    def scaled(x):
        return torch.softmax(x * x.shape[0], -1) / x.shape[1]

    counter = CompileCounterWithBackend("ingot")
    compiled = torch.compile(scaled, backend=counter)
    for rows in range(2, 12):
        for columns in (5, 6):
            x = torch.randn(rows, columns)
            torch.testing.assert_close(compiled(x), scaled(x))
    assert counter.frame_count <= 3


@pytest.mark.parametrize("dynamic", [False, True])
def test_gradients_are_those_of_eager(dynamic):
    compiled = torch.compile(gate, backend="ingot", dynamic=dynamic)
    for _ in range(3):
        x, y = torch.randn(4, 5, requires_grad=True), torch.randn(4, 5, requires_grad=True)
        expected = torch.autograd.grad(gate(x, y).square().sum(), (x, y))
        found = torch.autograd.grad(compiled(x, y).square().sum(), (x, y))
        torch.testing.assert_close(found, expected)


def test_modules_train_as_they_do_eagerly():
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.GELU(), nn.Linear(8, 2))
    twin = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.GELU(), nn.Linear(8, 2))
    twin.load_state_dict(module.state_dict())
    compiled: Any = torch.compile(twin, backend="ingot")
    for model in (module, compiled):
        torch.manual_seed(1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(4):
            optimizer.zero_grad()
            model(torch.randn(16, 6)).square().mean().backward()
            optimizer.step()
    torch.testing.assert_close(dict(twin.state_dict()), dict(module.state_dict()))
    module.eval()
    twin.eval()
    x = torch.randn(3, 6)
    with torch.no_grad():
        for _ in range(3):
            torch.testing.assert_close(compiled(x), module(x))


def test_in_place_operations_reach_the_argument():
    def accumulate(total, x):
        total.mul_(0.5).add_(x)
        return total * 2

    compiled = torch.compile(accumulate, backend="ingot")
    expected, found = torch.zeros(6), torch.zeros(6)
    for _ in range(4):
        x = torch.randn(6)
        torch.testing.assert_close(compiled(found, x), accumulate(expected, x))
        torch.testing.assert_close(found, expected)


def test_random_numbers_are_those_of_eager():
    def noisy(x):
        return torch.relu(nn.functional.dropout(x, 0.3) + 1)

    compiled = torch.compile(noisy, backend="ingot")
    x = torch.randn(64)
    for seed in range(4):
        torch.manual_seed(seed)
        expected = noisy(x)
        torch.manual_seed(seed)
        assert torch.equal(compiled(x), expected)


def test_options_are_flags_of_the_configuration():
    x, y = torch.randn(4), torch.randn(4)
    compiled = torch.compile(gate, backend="ingot", options={"graph_opt_level": 0})
    for _ in range(3):
        torch.testing.assert_close(compiled(x, y), gate(x, y))


def test_wrong_options_are_refused():
    with pytest.raises(Exception, match="ConfigError: graph_opt_level must be"):
        torch.compile(gate, backend="ingot", options={"graph_opt_level": "high"})(torch.randn(4), torch.randn(4))
