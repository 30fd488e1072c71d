"""Calls of jitted functions that machine code answers: every change of PyTorch's settings, or of what a function
refers to, leads to Python instead."""

import pytest
import torch

import ingot
from ingot.frontend.jit.settings.switch import EVERYTHING
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

# --- settings ---------------------------------------------------------------------------------------------------------


def test_grad_mode_and_gradients():
    function = warm(jit(multiply_add), *three())
    a, b, c = three()
    with torch.no_grad():
        expect_python(function, multiply_add, a, b, c)
        warm(function, a, b, c)
        expect_record(function, multiply_add, a.requires_grad_(), b, c)
    before = answered(function)
    result = function(a, b, c)
    assert result.requires_grad and answered(function) == before
    expect_record(function, multiply_add, *three())


def test_autocast_default_dtype_and_inference_mode():
    def multiply(x, y):
        return torch.mm(x, y) + 0.5

    x, y = torch.randn(4, 4), torch.randn(4, 4)
    function = warm(jit(multiply), x, y)
    with torch.autocast("cpu"):
        expect_python(function, multiply, x, y)
    with torch.autocast("cpu", dtype=torch.float16):
        expect_python(function, multiply, x, y)
    with torch.inference_mode():
        expect_python(function, multiply, x, y)
    torch.set_default_dtype(torch.float64)
    try:
        expect_python(function, multiply, x, y)
    finally:
        torch.set_default_dtype(torch.float32)
    expect_record(function, multiply, x, y)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch.jit.trace
def test_modes_transforms_and_switches():
    function = warm(jit(multiply_add), *three())
    a, b, c = three()
    with torch.device("cpu"):
        expect_python(function, multiply_add, a, b, c)
    with ingot.disable():
        expect_python(function, multiply_add, a, b, c)
    before = answered(function)
    torch.vmap(lambda x: function(a, b, c) + x)(torch.randn(2))
    torch.func.grad(lambda x: (function(a, b, c) * x).sum())(torch.randn(4, 6))
    with torch.autograd.forward_ad.dual_level():
        function(torch.autograd.forward_ad.make_dual(a, b), b, c)
    torch.jit.trace(function, (a, b, c), check_trace=False)
    assert answered(function) == before
    expect_record(function, multiply_add, a, b, c)


def test_graphs_of_dynamo_are_answered_by_records():
    compiled = torch.compile(multiply_add, backend="ingot")
    made = set(EVERYTHING)
    for _ in range(ENOUGH):
        compiled(*three())
    (graph,) = set(EVERYTHING) - made
    before = graph.native.total
    given = three()
    same(compiled(*given), multiply_add(*given))
    assert graph.native.total == before + 1


def test_what_dynamo_reads_is_the_python_function():
    function = warm(jit(multiply_add), *three())
    compiled = torch.compile(lambda *given: function(*given) * 2, backend="eager", fullgraph=True)
    given = three()
    before = answered(function)
    same(compiled(*given), multiply_add(*given) * 2)
    assert answered(function) == before
    expect_record(function, multiply_add, *given)


# --- environment tensors ----------------------------------------------------------------------------------------------


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
        lambda module: setattr(module, "drop", torch.nn.Identity()),
        lambda module: module.drop.register_forward_hook(lambda _, given, result: result * 2),
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
        "submodule",
        "hook",
        "buffer",
    ],
)
def test_changes_of_a_module(change):
    module = Block().eval()
    function = warm(jit(module).forward, torch.randn(4, 6))
    change(module)
    before = answered(function)
    x = torch.randn(4, 6)
    same(function(x).detach(), module(x).detach())
    assert answered(function) == before


def test_values_of_weights_are_read_at_every_call():
    module = Block().eval()
    function = warm(jit(module).forward, torch.randn(4, 6))
    module.scale.mul_(2)
    module.scale.data = torch.randn(6)
    expect_record(function, module, torch.randn(4, 6))


def test_the_training_flag():
    module = Block().eval()
    function = warm(jit(module).forward, torch.randn(4, 6))
    module.train()
    before = answered(function)
    torch.manual_seed(0)
    x = torch.randn(4, 6)
    torch.manual_seed(1)
    found = function(x)
    torch.manual_seed(1)
    same(found, module(x))
    assert answered(function) == before
    module.eval()
    same(function(x), module(x))


_FACTOR = 2.0


def test_globals_and_cells():
    global _FACTOR
    shift = 1.0

    def scale(x):
        return x * _FACTOR + shift

    function = warm(jit(scale), torch.randn(4))
    _FACTOR = 3.0
    expect_python(function, scale, torch.randn(4))
    warm(function, torch.randn(4))
    shift = 5.0
    expect_python(function, scale, torch.randn(4))
    _FACTOR = 2.0


def test_an_equal_value_in_a_watched_place_gets_another_record():
    values = [1234.5]

    def scale(x):
        return x * values[0]

    function = warm(jit(scale), torch.randn(4))
    values[0] = float("1234.5")
    expect_python(function, scale, torch.randn(4))
    expect_record(function, scale, torch.randn(4))
    assert function._compiled.recordings == 1
