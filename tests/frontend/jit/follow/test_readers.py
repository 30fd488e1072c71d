"""All code that reads a tensor whose value is pending finds it: Python, C++, TorchScript, threads and libraries."""

import copy
import ctypes
import io
import pickle
import threading
import warnings
import weakref
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils import dlpack

from tests.frontend.jit.follow.following_checks import check


def _x():
    """Whole numbers: what is computed from them below is exact, however it is fused."""
    return (torch.randint(-5, 6, (4, 5)).float(),)


def _script(function):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return torch.jit.script(function)


def _tripled(x):
    return x * 3 + 1


def _tripled_in_place(x):
    return x.mul_(3)


scripted, scripted_in_place = _script(_tripled), _script(_tripled_in_place)

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")


def _in_thread(function):
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(function()))
    thread.start()
    thread.join()
    return results[0]


def _without_functions(function):
    with torch._C.DisableTorchFunction():
        return function()


def _without_subclasses(function):
    with torch._C.DisableTorchFunctionSubclass():
        return function()


_to_newer_dlpack: Any = getattr(torch._C, "_to_dlpack_versioned", dlpack.to_dlpack)


class _Exporter:
    """Hands a capsule on, as packages expect to be given one."""

    def __init__(self, capsule):
        self._capsule = capsule

    def __dlpack__(self, **_):
        return self._capsule

    def __dlpack_device__(self):
        return 1, 0


def _saved(y):
    buffer = io.BytesIO()
    torch.save(y, buffer)
    buffer.seek(0)
    return torch.load(buffer)


READERS = {
    "dlpack capsule": lambda y: torch.from_dlpack(dlpack.to_dlpack(y)),
    "dlpack capsule of torch": lambda y: torch.from_dlpack(torch.to_dlpack(y)),
    "dlpack capsule of C": lambda y: torch.from_dlpack(torch._C._to_dlpack(y)),
    "dlpack method": lambda y: torch.from_dlpack(y),
    "numpy through dlpack": lambda y: np.from_dlpack(y).tolist(),
    "numpy through a capsule": lambda y: np.from_dlpack(_Exporter(dlpack.to_dlpack(y))).tolist(),
    "numpy through a newer capsule": lambda y: np.from_dlpack(_Exporter(_to_newer_dlpack(y))).tolist(),
    "numpy": lambda y: y.numpy().tolist(),
    "numpy array": lambda y: np.asarray(y).tolist(),
    "numpy function": lambda y: float(np.sum(y.numpy())),
    "parameter": lambda y: torch.nn.Parameter(y).detach(),
    "parameter without gradients": lambda y: torch.nn.Parameter(y, requires_grad=False).detach(),
    "buffer": lambda y: torch.nn.Buffer(y).detach(),
    "make_subclass": lambda y: torch.Tensor._make_subclass(torch.Tensor, y),
    "as_subclass": lambda y: y.as_subclass(torch.Tensor),
    "module parameter": lambda y: _module_with(y)(torch.ones(5)).detach(),
    "scripted": lambda y: scripted(y),
    "scripted in place": lambda y: (scripted_in_place(y), y),
    "thread": lambda y: _in_thread(lambda: y * 2),
    "thread in place": lambda y: (_in_thread(lambda: y.mul_(2)), y),
    "disabled": lambda y: _without_functions(lambda: y * 2),
    "disabled in place": lambda y: (_without_functions(lambda: y.mul_(2)), y),
    "disabled subclasses": lambda y: _without_subclasses(lambda: y * 2),
    "aten": lambda y: torch.ops.aten.mul.Tensor(y, y),
    "aten packet": lambda y: torch.ops.aten.mul(y, y),
    "aten in place": lambda y: (torch.ops.aten.mul_(y, 2.0), y),
    "pickle": lambda y: pickle.loads(pickle.dumps(y)),
    "save": _saved,
    "deepcopy": lambda y: copy.deepcopy(y),
    "copy": lambda y: copy.copy(y),
    "deepcopy of a list": lambda y: copy.deepcopy([y, {"y": y}]),
    "share_memory_": lambda y: y.share_memory_().is_shared() and y.clone(),
    "repr": lambda y: repr(y),
    "str": lambda y: f"{y} {y[0, 0]:.3f}",
    "tolist": lambda y: y.tolist(),
    "item": lambda y: y[1, 2].item(),
    "float": lambda y: float(y[1, 2]),
    "bool": lambda y: bool((y > 0).any()),
    "len": lambda y: len(y),
    "iteration": lambda y: [row * 2 for row in y],
    "contains": lambda y: (y[0, 0] in y, 77.0 in y),
    "storage": lambda y: list(y.untyped_storage())[:4],
    "typed storage": lambda y: y.storage().tolist(),
    "data_ptr": lambda y: _from_address(y),
    "data": lambda y: y.data * 2,
    "version": lambda y: (y._version, y.add_(1)._version, y),
    "grad_fn": lambda y: (y.grad_fn, y.is_leaf, y.requires_grad, y.grad, y._base is None),
    "hash": lambda y: {y: 1}[y],
    "weakref": lambda y: _through_weak_reference(y),
    "views before and after": lambda y: (y[0], y.t(), y.numpy().tolist(), y[1], y.view(-1)[3:]),
    "attribute": lambda y: _with_attribute(y),
    "set_": lambda y: torch.empty(0).set_(y),
    "data assigned": lambda y: _with_data(y),
    "requires_grad_": lambda y: _differentiated(y),
    "tensor constructor": lambda y: torch.as_tensor(y),
    "tensor of numbers": lambda y: torch.tensor([float(y[0, 0]), 2.0]),
    "swap": lambda y: _swapped(y),
    "resize_": lambda y: y.resize_(2, 3),
    "type": lambda y: (y.type(), torch.is_tensor(y), isinstance(y, torch.Tensor)),
    "result_type": lambda y: torch.result_type(y, 1),
    "is_set_to": lambda y: y.is_set_to(y),
    "equal": lambda y: torch.equal(y, y + 0),
    "allclose": lambda y: torch.allclose(y, y + 0),
    "nested": lambda y: torch.nested.nested_tensor([y[0], y[1, :2]]).to_padded_tensor(0.0),
    "sparse": lambda y: y.relu().to_sparse().to_dense(),
    "quantized": lambda y: torch.quantize_per_tensor(y, 0.1, 0, torch.qint8).dequantize(),
    "meta": lambda y: y.to("meta") + 1,
    "complex": lambda y: (torch.complex(y, y).conj() * 2, torch.complex(y, y).imag.neg()),
    "vmap": lambda y: torch.vmap(lambda row: row * 2 + row.sum())(y),
    "functional gradient": lambda y: torch.func.grad(lambda z: (z * z).sum())(y),
    "forward gradient": lambda y: torch.func.jvp(torch.sin, (y,), (y,)),
    "trace": lambda y: _traced(y)(y + 1),
    "compiled check": lambda y: torch.compiler.is_compiling(),
}


def _through_weak_reference(y):
    found: Any = weakref.ref(y)()
    return found * 2


def _traced(y) -> Any:
    return torch.jit.trace(lambda z: z * 2, (y,), check_trace=False)


def _module_with(y):
    linear = torch.nn.Linear(5, 4)
    linear.weight = torch.nn.Parameter(y)
    with torch.no_grad():
        linear.bias.zero_()
    return linear


def _from_address(y):
    return list((ctypes.c_float * 20).from_address(y.data_ptr()))


def _with_attribute(y):
    y.note = "kept"
    return (y * 2), y.note, y


def _with_data(y):
    z = torch.zeros(4, 5)
    z.data = y
    return z + 1


def _differentiated(y):
    y.requires_grad_()
    (y * y).sum().backward()
    return y.grad


def _swapped(y):
    z = torch.zeros(4, 5)
    torch.utils.swap_tensors(y, z)
    return y + 1, z + 2


@pytest.mark.parametrize("name", READERS)
def test_reader_finds_the_value(name):
    reader = READERS[name]

    def function(x):
        seen = []
        y = torch.relu(x) * 2 + 1
        other = x.square() - 3
        seen.append(y)
        return reader(y), other

    check(function, _x)


@pytest.mark.parametrize("name", [name for name in READERS if "parameter" not in name and name != "len"])
def test_reader_of_a_view_finds_the_value(name):
    reader = READERS[name]

    def function(x):
        y = (torch.relu(x) * 2 + 1).view(2, 10)
        whole = y.view(20)
        result = reader(y.view(4, 5))
        return result, whole.sum()

    check(function, _x)


@pytest.mark.parametrize("made", [torch.tanh, lambda x: torch.tanh(x).t(), lambda x: x, lambda x: x.exp()[1:]])
def test_parameter_of_a_value_that_nothing_else_holds(made):
    check(lambda x: torch.nn.Parameter(made(x)), _x)


WRITERS = {
    "scripted": lambda state: scripted_in_place(state),
    "aten": lambda state: torch.ops.aten.mul_(state, 2.0),
    "numpy": lambda state: np.multiply(state.numpy(), 2, out=state.numpy()),
    "data": lambda state: state.data.mul_(2),
    "view": lambda state: state[0].mul_(2),
    "set": lambda state: state.__setitem__(0, 1.0),
    "out": lambda state: torch.add(state, 1, out=state),
    "copy": lambda state: state.copy_(torch.ones(4, 5)),
    "in place": lambda state: state.mul_(2),
    "foreach": lambda state: torch._foreach_mul_([state], 2.0),
    "storage": lambda state: state.untyped_storage().fill_(0),
    "list of views": lambda state: [row.mul_(2) for row in state],
    "random": lambda state: state.normal_(),
    "initialiser": lambda state: torch.nn.init.ones_(state),
    "swapped memory": lambda state: setattr(state, "data", torch.ones(4, 5)),
    "resized": lambda state: state.resize_(2, 2).fill_(1),
    "other memory": lambda state: state.set_(torch.ones(4, 5)),
}


@pytest.mark.parametrize("name", WRITERS)
def test_operand_written_by_others_is_read_before(name):
    writer = WRITERS[name]

    def function(x, state):
        before = x + state
        writer(state)
        return before * 2, state + 1

    check(function, lambda: (torch.randn(4, 5), torch.randn(4, 5)))


def _write_bytes(storage):
    for place in range(8):
        storage[place] = 7


STORAGE_WRITERS = {
    "bytes": _write_bytes,
    "filled": lambda storage: storage.fill_(0),
    "copied": lambda storage: storage.copy_(torch.ones(4, 5).untyped_storage()),
    "swapped bytes": lambda storage: storage.byteswap(torch.float32),
}


@pytest.mark.parametrize("name", STORAGE_WRITERS)
def test_operand_written_through_its_storage_is_read_before(name):
    writer = STORAGE_WRITERS[name]

    def function(x, state):
        storage = state.untyped_storage()
        before = x + state
        writer(storage)
        return before * 2, state + 1

    check(function, lambda: (torch.randn(4, 5), torch.randn(4, 5)))


def _write_at(address):
    ctypes.memset(address, 0, 8)


def _write_array(array):
    array[0] = 7


EXPOSING = {
    "address": (lambda state: state.data_ptr(), _write_at),
    "dlpack": (lambda state: np.from_dlpack(state), _write_array),
    "numpy": (lambda state: state.numpy(), _write_array),
}


@pytest.mark.parametrize("is_made", [False, True], ids=["argument", "result"])
@pytest.mark.parametrize("name", EXPOSING)
def test_memory_that_was_given_away_may_be_written_at_any_time(name, is_made):
    give_away, write = EXPOSING[name]

    def function(x, given):
        state = given * 2 if is_made else given
        away = give_away(state)
        before = x + state
        torch.set_default_dtype(torch.float64)  # another state of torch: what is pending begins anew
        torch.set_default_dtype(torch.float32)
        between = x - state
        write(away)
        return before * 2, between * 2, state + 1

    check(function, lambda: (torch.randn(4, 5), torch.randn(4, 5)))


@pytest.mark.parametrize("way", ["numpy", "dlpack", "numpy from dlpack", "shared", "buffer"])
def test_operand_over_memory_of_others_is_read_in_order(way):
    def make():
        base = np.random.default_rng(1).standard_normal((4, 5)).astype(np.float32)
        if way == "numpy":
            return torch.randn(4, 5), torch.from_numpy(base), base
        if way == "dlpack":
            state = torch.from_numpy(base).clone()
            return torch.randn(4, 5), state, torch.from_dlpack(state)
        if way == "numpy from dlpack":
            state = torch.from_numpy(base).clone()
            return torch.randn(4, 5), state, state.numpy()
        if way == "shared":
            state = torch.from_numpy(base).clone().share_memory_()
            return torch.randn(4, 5), state, state[:]
        return torch.randn(4, 5), torch.frombuffer(base, dtype=torch.float32).view(4, 5), base

    def function(x, state, other):
        before = x + state
        other *= 2
        after = x - state
        state.add_(1)
        return before * after, other + 0 if isinstance(other, torch.Tensor) else other.tolist()

    def plain(x, state, other):
        return function(x, state, other)

    check(plain, make)


def test_locals_kept_by_generators_and_tracebacks():
    def values(x):
        y = x * 2
        z = y + 1
        yield z
        yield y - z

    def function(x):
        running = values(x)
        first = next(running)
        return first, next(running), next(running, None)

    check(function, _x)

    kept: list[Any] = []

    def failing(x):
        y = x * 2 + 1
        raise ValueError(y)

    def catching(x):
        try:
            failing(x)
        except ValueError as error:
            kept.append(error)
            traceback: Any = error.__traceback__
            return traceback.tb_next.tb_frame.f_locals["y"], error.args[0]

    check(catching, _x)


def test_pending_values_survive_the_call_in_objects():
    kept: list[Any] = []

    def function(x):
        kept.append(x * 2)
        kept.append([row + 1 for row in kept[-1]])

    check(function, _x)
    for index in range(0, len(kept), 4):
        assert torch.equal(kept[index], kept[index + 2])
        assert all(map(torch.equal, kept[index + 1], kept[index + 3]))
