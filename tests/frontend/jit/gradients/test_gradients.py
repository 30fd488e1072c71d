"""Gradients through compiled functions are eager's, whatever is asked for and whatever is switched on around."""

from __future__ import annotations

import copy
import weakref

import pytest
import torch
from torch import nn

import ingot
from tests.frontend.jit.gradients.comparing_gradients import (
    calls_of,
    gated,
    gradients_match,
    has_our_history,
    is_compiled,
    leaf,
    same,
)


def test_arguments():
    compiled = gradients_match(gated, lambda: (leaf(5, 7), leaf(5, 7)))
    assert is_compiled(compiled)


def test_broadcast_arguments():
    assert is_compiled(gradients_match(gated, lambda: (leaf(5, 7), leaf(7))))


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_other_types(dtype):
    def loss(result):
        return result.float().square().mean()

    compiled = ingot.jit(gated)
    for _ in range(4):
        x, y = leaf(4, 8, dtype=dtype), leaf(4, 8, dtype=dtype)
        copies = x.detach().clone().requires_grad_(), y.detach().clone().requires_grad_()
        loss(compiled(x, y)).backward()
        loss(gated(*copies)).backward()
        for one, other in zip((x, y), copies, strict=True):
            assert one.grad is not None and one.grad.dtype is dtype
            torch.testing.assert_close(one.grad, other.grad, rtol=2e-2, atol=2e-2)
    assert is_compiled(compiled)


def test_only_some_arguments_need_gradients():
    compiled = ingot.jit(gated)
    for needs in [(True, False), (False, True), (True, True)] * 4:
        x, y = torch.randn(4, 8), torch.randn(4, 8)
        copies = [x.clone().requires_grad_(needs[0]), y.clone().requires_grad_(needs[1])]
        given = [x.requires_grad_(needs[0]), y.requires_grad_(needs[1])]
        compiled(*given).sum().backward()
        gated(*copies).sum().backward()
        for one, other in zip(given, copies, strict=True):
            assert (one.grad is None) == (other.grad is None)
            same(one.grad, other.grad)
    assert sum(one.programs is not None for one in calls_of(compiled)) == 3


def test_gradients_of_some_inputs_only():
    compiled = ingot.jit(gated)
    for number in range(6):
        x, y = leaf(4, 8), leaf(4, 8)
        wanted = [x, y] if number < 3 else [y]
        same(
            torch.autograd.grad(compiled(x, y).sum(), wanted),
            torch.autograd.grad(gated(x, y).sum(), wanted),
        )
    assert is_compiled(compiled)


def test_results_that_are_not_used():
    def several(x, y):
        return x * y, torch.sigmoid(x).sum(), y.exp()

    compiled = ingot.jit(several)
    for used in [(0, 1), (0, 1), (0, 1), (2,), (0, 1, 2), (1,), (0, 1)]:
        x, y = leaf(4, 8), leaf(4, 8)
        copies = x.detach().clone().requires_grad_(), y.detach().clone().requires_grad_()
        for function, given in ((compiled, (x, y)), (several, copies)):
            results = function(*given)
            torch.stack([results[which].sum() for which in used]).sum().backward()
        for one, other in zip((x, y), copies, strict=True):
            assert (one.grad is None) == (other.grad is None)
            same(one.grad, other.grad)
    assert is_compiled(compiled)


def test_backward_twice_with_the_graph_kept():
    compiled = ingot.jit(gated)
    for _ in range(5):
        x, y = leaf(4, 8), leaf(4, 8)
        result = compiled(x, y).sum()
        result.backward(retain_graph=True)
        assert x.grad is not None
        once = x.grad.clone()
        result.backward()
        same(x.grad, 2 * once)
        with pytest.raises(RuntimeError, match="second time"):
            result.backward()
    assert is_compiled(compiled)


def test_gradients_accumulate_over_calls_in_flight():
    model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4))
    eager, compiled = copy.deepcopy(model), ingot.jit(model)
    for _ in range(4):
        batches = [torch.randn(3, 8) for _ in range(3)]
        for module in (compiled, eager):
            losses = [module(batch).square().mean() for batch in batches]
            for loss in reversed(losses):
                loss.backward()
        for one, other in zip(model.parameters(), eager.parameters(), strict=True):
            same(one.grad, other.grad)
    assert is_compiled(compiled)


def test_gradients_of_gradients():
    compiled = ingot.jit(gated)
    for _ in range(5):
        x, y = leaf(4, 8), leaf(4, 8)
        found, expected = [], []
        for function, into in ((compiled, found), (gated, expected)):
            (first,) = torch.autograd.grad(function(x, y).square().sum(), [x], create_graph=True)
            into += torch.autograd.grad(first.square().sum(), [x, y])
        same(found, expected)


def test_jacobian_by_batched_gradients():
    compiled = ingot.jit(gated)
    x, y = leaf(3, 4), leaf(3, 4)
    for _ in range(4):
        compiled(x, y).sum().backward()
    assert is_compiled(compiled)
    basis = torch.eye(12).reshape(12, 3, 4)
    found = torch.autograd.grad(compiled(x, y), x, basis, is_grads_batched=True)
    same(found, torch.autograd.grad(gated(x, y), x, basis, is_grads_batched=True))


@pytest.mark.filterwarnings("ignore:`torch.jit.script`:DeprecationWarning")
def test_functorch_takes_eager():
    compiled = ingot.jit(gated)
    x, y = torch.randn(3, 4), torch.randn(3, 4)
    for _ in range(4):
        given = x.clone().requires_grad_()
        compiled(given, y).sum().backward()
    same(torch.func.grad(lambda one: compiled(one, y).sum())(x), torch.func.grad(lambda one: gated(one, y).sum())(x))
    same(torch.func.vmap(compiled)(x, y), torch.func.vmap(gated)(x, y))
    same(
        torch.func.jvp(lambda one: compiled(one, y), (x,), (y,)), torch.func.jvp(lambda one: gated(one, y), (x,), (y,))
    )


def test_saved_tensor_hooks_see_what_eager_saves():
    compiled = ingot.jit(gated)
    for step in range(6):
        x, y = leaf(4, 8), leaf(4, 8)
        packed = []
        for function in (compiled, gated):
            count = [0]

            def pack(tensor, count=count):
                count[0] += 1
                return tensor * 1

            if step >= 3:
                with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
                    result = function(x, y)
            else:
                result = function(x, y)
            packed.append(count[0])
            x.grad = None
            result.sum().backward()
        assert packed[0] == packed[1]


@pytest.mark.filterwarnings("ignore:Anomaly Detection:UserWarning")
@pytest.mark.filterwarnings("ignore:Error detected in:UserWarning")
def test_anomaly_mode_names_the_operation():
    def root(x):
        return torch.sqrt(x) * 0

    compiled = ingot.jit(root)
    for _ in range(4):
        compiled(leaf(4).abs()).sum().backward()
    with torch.autograd.detect_anomaly(check_nan=True):
        x = torch.zeros(4, requires_grad=True)
        with pytest.raises(RuntimeError, match="SqrtBackward0"):
            compiled(x).sum().backward()


def test_gradients_checked_by_differences():
    compiled = ingot.jit(lambda x, y: torch.tanh(x @ y).logsumexp(-1))
    x, y = leaf(3, 4, dtype=torch.float64), leaf(4, 5, dtype=torch.float64)
    for _ in range(4):
        compiled(x, y).sum().backward()
    assert is_compiled(compiled)
    assert torch.autograd.gradcheck(compiled, (x, y))
    assert torch.autograd.gradgradcheck(compiled, (x, y))


def test_run_again_is_refused_where_something_has_changed():
    compiled = ingot.jit(lambda x, y: torch.sigmoid(x) * 2 + y)
    for _ in range(4):
        compiled(leaf(4), leaf(4)).sum().backward()
    assert is_compiled(compiled)
    x = leaf(4)
    inner = x + 0
    result = compiled(inner, leaf(4))
    with torch.no_grad():
        inner.add_(1)
    with pytest.raises(RuntimeError, match=r"modified in place since.*without ingot.jit"):
        torch.autograd.grad(result.sum(), [x], create_graph=True)


def test_nothing_is_held_once_the_graph_is_gone():
    compiled = ingot.jit(gated)
    for _ in range(5):
        x, y = leaf(4, 8) * 1, leaf(4, 8)
        seen = weakref.ref(x), weakref.ref(y)
        result = compiled(x, y).sum()
        result.backward()
        del x, y, result
        assert [one() for one in seen] == [None, None]
    assert is_compiled(compiled)


def test_history_is_ours_when_compiled():
    compiled = ingot.jit(gated)
    histories = []
    for _ in range(4):
        result = compiled(leaf(4), leaf(4))
        histories.append(has_our_history(result))
        result.sum().backward()
    assert histories == [False, True, True, True]


def test_calls_without_a_backward_pass_stay_eager():
    compiled = ingot.jit(gated)
    for _ in range(40):
        compiled(leaf(4), leaf(4))
    assert not is_compiled(compiled)
    for _ in range(5000):  # eager's calls are looked at ever more rarely
        compiled(leaf(4), leaf(4)).sum().backward()
        if is_compiled(compiled):
            break
    assert is_compiled(compiled)


def test_products_of_elements_are_differentiated_as_eager_does():
    def product(x: torch.Tensor) -> torch.Tensor:
        return x.prod(1).sum()

    compiled = ingot.jit(product)
    for value in (1.0, 2.0, 3.0, 1e8, 0.0, 1e8):  # more than float32 holds: eager divides infinity by each element
        x, other = (torch.full((4, 5), value, requires_grad=True) for _ in range(2))
        compiled(x).backward()
        product(other).backward()
        same(x.grad, other.grad)
