"""Only ordinary CPU tensors are read natively: all others, and all calls under a watcher, go to the fallback."""

import warnings

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from ingot.runtime.native.abi import object_layout
from ingot.runtime.native.abi.object_layout import tensor_layout
from ingot.runtime.native.abi.prototypes import DTYPES
from tests.runtime.native.kernels import Fallback, multiply_add


class Subclass(torch.Tensor):
    pass


class Wrapper(torch.Tensor):
    """A tensor without memory of its own that catches every operation."""

    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)

    __torch_dispatch__ = None  # pyright: ignore[reportAssignmentType]


def without_memory():
    tensor = torch.randn(4, 8)
    tensor.untyped_storage().resize_(0)
    return tensor


def inference():
    with torch.inference_mode():
        return torch.randn(4, 8)


ORDINARY = {
    "plain": lambda: torch.randn(4, 8),
    "parameter": lambda: torch.nn.Parameter(torch.randn(4, 8)),
    "requires grad": lambda: torch.randn(4, 8, requires_grad=True),
    "result of autograd": lambda: torch.randn(4, 8, requires_grad=True) * 2,
    "made in inference mode": inference,
    "view": lambda: torch.randn(9, 8)[3:7],
    "detached": lambda: torch.randn(4, 8, requires_grad=True).detach(),
    "buffer": lambda: torch.nn.Buffer(torch.randn(4, 8)),
    "from numpy": lambda: torch.from_numpy(torch.randn(4, 8).numpy()),
    "shared": lambda: torch.randn(4, 8).share_memory_(),
    "double negation": lambda: torch.randn(4, 8)._neg_view()._neg_view(),
    "lazy clone": lambda: torch._lazy_clone(torch.randn(4, 8)),
}

ODD = {
    "negative": lambda: torch.randn(4, 8)._neg_view(),
    "imaginary part of a conjugate": lambda: torch.view_as_complex(torch.randn(4, 8, 2)).conj().imag,
    "zero": lambda: torch._efficientzerotensor(4, 8),
    "subclass": lambda: torch.randn(4, 8).as_subclass(Subclass),
    "wrapper": lambda: Wrapper(torch.randn(4, 8)),
    "other dtype": lambda: torch.randn(4, 8, dtype=torch.float64),
    "int of the same size": lambda: torch.ones(4, 8, dtype=torch.int32),
    "half": lambda: torch.randn(4, 8).half(),
    "other shape": lambda: torch.randn(8, 4),
    "other rank": lambda: torch.randn(32),
    "more rank": lambda: torch.randn(1, 4, 8),
    "other strides": lambda: torch.randn(8, 4).t(),
    "expanded": lambda: torch.randn(8).expand(4, 8),
    "every second": lambda: torch.randn(4, 16)[:, ::2],
    "meta": lambda: torch.empty(4, 8, device="meta"),
    "sparse": lambda: torch.randn(4, 8).to_sparse(),
    "memory given up": without_memory,
    "complex": lambda: torch.randn(4, 8, dtype=torch.complex64),
    "conjugate": lambda: torch.randn(4, 8, dtype=torch.complex64).conj(),
    "number": lambda: 1.0,
    "none": lambda: None,
}


@pytest.fixture
def call():
    return multiply_add([torch.randn(4, 8) for _ in range(3)], fallback=Fallback("slow"))


@pytest.mark.parametrize("make", ORDINARY.values(), ids=ORDINARY.keys())
def test_ordinary_tensors_are_read_natively(call, make):
    tensors = [make() for _ in range(3)]
    (result,) = call(tensors)
    a, b, c = (tensor.detach() for tensor in tensors)
    assert torch.equal(result, a * b + c)
    assert not result.requires_grad
    assert call.fallback.calls == []


@pytest.mark.parametrize("position", range(3))
@pytest.mark.parametrize("make", ODD.values(), ids=ODD.keys())
def test_odd_tensors_go_to_the_fallback(call, make, position):
    inputs = [torch.randn(4, 8) for _ in range(3)]
    inputs[position] = make()
    assert call(inputs) == "slow"
    assert len(call.fallback.calls) == 1


def test_quantised_tensors_go_to_the_fallback(call):
    with warnings.catch_warnings(action="ignore"):
        quantised = torch.quantize_per_tensor(torch.randn(4, 8), 0.1, 0, torch.qint8)
    assert call([quantised] * 3) == "slow"


def test_tensors_under_a_transformation_go_to_the_fallback(call):
    plain = torch.randn(4, 8)
    seen = []

    def fused(x):
        seen.append(call([x, plain, plain]))
        return x.sum()

    torch.func.vmap(fused)(torch.randn(3, 4, 8))
    torch.func.grad(fused)(torch.randn(4, 8))
    assert seen == ["slow", "slow"]


def test_calls_that_a_mode_watches_go_to_the_fallback(call):
    class FunctionMode(TorchFunctionMode):
        def __torch_function__(self, function, types, arguments=(), keywords=None):
            return function(*arguments, **(keywords or {}))

    class DispatchMode(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, arguments=(), keywords=None):
            return function(*arguments, **(keywords or {}))

    inputs = [torch.randn(4, 8) for _ in range(3)]
    for mode in (FunctionMode, DispatchMode):
        with mode():
            assert call(inputs) == "slow"
        assert torch.equal(call(inputs)[0], inputs[0] * inputs[1] + inputs[2])


@pytest.mark.parametrize("rank", range(9))
def test_tensors_of_any_rank_are_compared_axis_by_axis(rank):
    shape = (2,) * rank
    fits = torch.randn(shape)
    call = multiply_add([torch.empty(shape)] * 3, fallback=Fallback("slow"))
    if rank >= 3:  # the kernel takes eight elements at a time
        assert torch.equal(call([fits] * 3)[0], fits * fits + fits)
    for axis in range(rank):
        longer = torch.randn(*shape[:axis], 3, *shape[axis + 1 :])
        assert call([fits, fits, longer]) == "slow"
        assert call([fits, fits, longer.narrow(axis, 0, 2)]) == "slow" or axis == 0
    assert call([fits, fits, torch.randn(*shape, 1)]) == "slow"


# --- finding the layout -----------------------------------------------------------------------------------------------


def test_the_layout_is_found_here():
    found = tensor_layout()
    assert found is not None
    assert len(found.plain_keys) == 2


@pytest.mark.parametrize("dtype", sorted(DTYPES, key=str))
def test_every_dtype_has_a_code_of_its_own(dtype):
    found = tensor_layout()
    assert found is not None
    codes = found.dtype_codes
    assert [other for other in codes if codes[other] == codes[dtype]] == [dtype]
    assert object_layout._quarters(torch.empty(2, 3, dtype=dtype))[found.dtype_quarter] == codes[dtype]


@pytest.mark.parametrize("name", ["_rank_word", "_dtype_quarter"])
def test_there_is_no_layout_where_a_place_is_not_found(monkeypatch, name):
    monkeypatch.setattr(object_layout, name, lambda: None)
    assert tensor_layout.__wrapped__() is None  # pyright: ignore[reportFunctionMemberAccess]


def test_there_is_no_layout_where_samples_disagree(monkeypatch):
    find = tensor_layout.__wrapped__  # pyright: ignore[reportFunctionMemberAccess]
    assert find() == tensor_layout()
    monkeypatch.setattr(object_layout, "dispatch_keys", lambda tensor: 0x1234567)
    assert find() is None
    monkeypatch.undo()
    monkeypatch.setattr(object_layout.sysconfig, "get_config_var", lambda name: 1)
    assert find() is None
