"""When compiled functions call their originals: switched off, watched by another tool, or needing gradients."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import ingot
from tests.frontend.jit.comparing import check, is_compiled, same, why_followed

jit: Any = ingot.jit


def smooth(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.tanh(x * y) + x


def _pair() -> list[torch.Tensor]:
    return [torch.randn(3, 4), torch.randn(3, 4)]


def _warm() -> Any:
    compiled = check(smooth, _pair)
    assert is_compiled(compiled)
    return compiled


def test_disable_calls_the_original() -> None:
    calls = []

    def counted(x: torch.Tensor) -> torch.Tensor:
        if ingot_is_off:
            calls.append(1)
        return x + 1

    ingot_is_off = False
    compiled = jit(counted)
    x = torch.randn(3)
    for _ in range(3):
        compiled(x)
    ingot_is_off = True
    with ingot.disable():
        for _ in range(3):
            same(compiled(x), x + 1)
    assert len(calls) == 3

    @ingot.disable()
    def without() -> torch.Tensor:
        return compiled(x)

    same(without(), x + 1)
    assert len(calls) == 4


def test_disable_holds_for_its_thread_alone() -> None:
    compiled = _warm()
    before = compiled._compiled.calls
    with ingot.disable():
        thread = threading.Thread(target=compiled, args=_pair())
        thread.start()
        thread.join()
        compiled(*_pair())
    assert compiled._compiled.calls == before + 1


def _python(program: str, **environment: str) -> str:
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        env={**os.environ, **environment},
        check=True,
        capture_output=True,
        text=True,
    ).stdout


def test_environment_disables() -> None:
    program = """
import torch, ingot
f = ingot.jit(lambda x: x * 2 + 1)
for _ in range(3): f(torch.ones(3))
print(f._compiled.calls, f(torch.ones(3)).tolist())
"""
    assert _python(program, INGOT_DISABLE="1").split(maxsplit=1) == ["0", "[3.0, 3.0, 3.0]\n"]
    assert _python(program, INGOT_DISABLE="0").startswith("3 ")


def test_heavy_modules_stay_unimported() -> None:
    program = """
import sys, torch
before = set(sys.modules)
import ingot
print([name for name in sys.modules if name.startswith("ingot.frontend.jit")])
net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4), torch.nn.GELU()).eval()
model = ingot.jit(net)
with torch.no_grad():
    for _ in range(3): model(torch.ones(2, 4))
f = ingot.jit(lambda x: x * 2 + 1)
for _ in range(3): f(torch.ones(3))
print([name for name in ("torch._dynamo", "sympy", "torch._inductor") if name in sys.modules])
"""
    assert _python(program) == "[]\n[]\n"


def test_reset_forgets_everything() -> None:
    compiled = _warm()
    model = jit(nn.Linear(4, 4))
    with torch.no_grad():
        model(torch.ones(2, 4))
    ingot.reset()
    assert not compiled._compiled.specialisations and not model.forward._compiled.specialisations
    check(smooth, _pair, compiled=compiled)
    assert compiled._compiled.recordings == 1 and is_compiled(compiled)


def test_reset_lets_a_function_try_again_that_was_given_up() -> None:
    scale = [1.0]

    def scaled(x: torch.Tensor) -> torch.Tensor:
        return x * scale[0] + 1

    compiled = jit(scaled)
    x = torch.randn(3)
    for _ in range(6):
        scale[0] += 1
        same(compiled(x), scaled(x))
    assert compiled._compiled.given_up == why_followed(compiled) and "scale has changed" in why_followed(compiled)
    ingot.reset()
    check(scaled, lambda: [torch.randn(3)], compiled=compiled)
    assert is_compiled(compiled)


class _Counting(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(func.overloadpacket.__name__)
        return func(*args, **(kwargs or {}))


def test_dispatch_modes_see_the_original() -> None:
    compiled = _warm()
    with _Counting() as mode:
        compiled(*_pair())
    assert mode.names[-3:] == ["mul", "tanh", "add"]


def test_fake_tensors() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    compiled = _warm()
    with FakeTensorMode() as mode:
        result = compiled(torch.empty(3, 4), torch.empty(3, 4))
    assert type(result).__name__ == "FakeTensor" and result.shape == (3, 4)
    assert mode is not None


def test_meta_tensors_are_refused() -> None:
    compiled = jit(smooth)
    for _ in range(3):
        assert compiled(torch.empty(3, 4, device="meta"), torch.ones(3, 4, device="meta")).is_meta
    assert "meta" in why_followed(compiled)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # PyTorch's own, of what it uses itself
def test_function_transforms() -> None:
    compiled = _warm()
    x, y = _pair()
    same(torch.func.vmap(compiled)(x, y), smooth(x, y))
    total = lambda function: lambda x: function(x, y).sum()
    same(torch.func.grad(total(compiled))(x), torch.func.grad(total(smooth))(x))
    same(torch.func.jvp(compiled, (x, y), (y, x)), torch.func.jvp(smooth, (x, y), (y, x)))
    weights = {"weight": y.t() @ x, "bias": x[0]}
    model = jit(nn.Linear(4, 4))
    with torch.no_grad():
        for _ in range(3):
            same(torch.func.functional_call(model, weights, (x,)), nn.functional.linear(x, **weights))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_forward_mode_gradients() -> None:
    compiled = _warm()
    x, y = _pair()
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(x, y)
        found, expected = compiled(dual, y), smooth(dual, y)
        same(torch.autograd.forward_ad.unpack_dual(found)[1], torch.autograd.forward_ad.unpack_dual(expected)[1])


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_traced_by_torchscript() -> None:
    compiled = _warm()
    traced: Any = torch.jit.trace(lambda x, y: compiled(x, y), tuple(_pair()))
    other = _pair()
    same(traced(*other), smooth(*other))


def test_needing_gradients_is_another_kind_of_call() -> None:
    compiled = _warm()
    x, y = _pair()
    x.requires_grad_()
    compiled(x, y).sum().backward()
    assert compiled.tier == "skipping" and "with gradients" in compiled.explain()
    twin = x.detach().clone().requires_grad_()
    smooth(twin, y).sum().backward()
    same(x.grad, twin.grad)
    with torch.no_grad():
        check(smooth, lambda: [x, y], compiled=compiled)
        assert not compiled(x, y).requires_grad
    assert compiled(x, y).requires_grad


def test_weights_needing_gradients() -> None:
    torch.manual_seed(0)
    model, eager = nn.Sequential(nn.Linear(4, 4), nn.ReLU()), nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    eager.load_state_dict(model.state_dict())
    compiled = jit(model)
    optimiser, other = torch.optim.SGD(model.parameters(), 0.1), torch.optim.SGD(eager.parameters(), 0.1)
    for _ in range(3):
        x = torch.randn(2, 4)
        for one, steps in ((compiled, optimiser), (eager, other)):
            steps.zero_grad()
            one(x).square().sum().backward()
            steps.step()
        with torch.no_grad():
            for _ in range(3):
                same(compiled(x), eager(x))
    with torch.no_grad():
        assert is_compiled(compiled.forward)


def test_weights_that_need_gradients_which_the_result_does_not() -> None:
    model = nn.Linear(4, 4)

    def detached(x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(model(x).detach()) * 2

    def guarded(x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            return torch.tanh(model(x)) * 2

    for function in (detached, guarded):
        compiled = check(function, lambda: [torch.randn(3, 4)], 5)
        assert compiled._compiled.recordings == 1
        with torch.no_grad():
            check(function, lambda: [torch.randn(3, 4)], compiled=compiled)
            assert is_compiled(compiled)


@pytest.mark.parametrize("context", [torch.no_grad, torch.enable_grad, torch.inference_mode])
def test_grad_modes(context: Any) -> None:
    with context():
        compiled = check(smooth, _pair)
    check(smooth, _pair, compiled=compiled)
    with context():
        check(smooth, _pair, compiled=compiled)
        assert compiled(*_pair()).is_inference() == torch.is_inference_mode_enabled()


def test_autocast_is_kept_apart() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.GELU()).eval()
    compiled = jit(model)
    x = torch.randn(2, 4)
    with torch.no_grad():
        for dtype in (torch.bfloat16, torch.float16, None, torch.bfloat16, None):
            with torch.autocast("cpu", dtype=dtype or torch.bfloat16, enabled=dtype is not None):
                for _ in range(3):
                    same(compiled(x), model(x))
        with torch.autocast("cpu", dtype=torch.bfloat16):
            model(x)  # keeps the weights it has cast
            fresh = jit(model)
            for _ in range(3):
                same(fresh(x), model(x))
            assert is_compiled(fresh.forward)


def test_default_dtype_is_kept_apart() -> None:
    def made(x: torch.Tensor) -> torch.Tensor:
        return torch.ones(3) * 2 + x.to(torch.get_default_dtype())

    compiled = jit(made)
    try:
        for dtype in (torch.float32, torch.float64, torch.float32):
            torch.set_default_dtype(dtype)
            check(made, lambda: [torch.arange(3)], compiled=compiled)
    finally:
        torch.set_default_dtype(torch.float32)


def test_eight_threads_at_once() -> None:
    compiled = jit(smooth)
    failures: list[BaseException] = []
    start = threading.Barrier(8)

    def work(number: int) -> None:
        try:
            start.wait()
            for call in range(12):
                rows = 1 + (number + call) % 5
                x, y = torch.randn(rows, 4), torch.randn(rows, 4)
                same(compiled(x, y), smooth(x, y))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


COMPILERS = """
import torch, ingot

@ingot.jit
def inner(x):
    return torch.tanh(x) * 2

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)

    @ingot.jit
    def embed(self, x):
        return torch.relu(self.linear(x))

    def forward(self, x):
        return inner(self.embed(x))

x = torch.randn(3, 4)
for _ in range(3): inner(x)
net = Net().eval()
twin = ingot.jit(torch.nn.Linear(4, 4))
with torch.no_grad():
    for _ in range(3): net(x); twin(x)
    exported = torch.export.export(net, (x,))
    torch.testing.assert_close(exported.module()(x), net(x))
    compiled = torch.compile(lambda x: inner(x) + 1, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(x), torch.tanh(x) * 2 + 1)
    torch.testing.assert_close(torch.compile(net, fullgraph=True, backend="eager")(x), net(x))
    torch.testing.assert_close(torch.compile(inner, fullgraph=True, backend="eager")(x), torch.tanh(x) * 2)
    torch.testing.assert_close(torch.compile(lambda x: twin(x) * 2, fullgraph=True, backend="eager")(x), twin(x) * 2)
torch.testing.assert_close(torch.compile(net, fullgraph=True, backend="eager")(x), net(x))
print("fine")
"""


def test_compilers_look_into_the_original() -> None:
    result = subprocess.run([sys.executable, "-c", COMPILERS], capture_output=True, text=True)
    assert result.stdout == "fine\n", result.stderr[-3000:]
