"""Tensors of every kind as operands: dtypes, sizes, layouts, classes of their own."""

import pytest
import torch

from tests.frontend.jit.follow.following_checks import check, followed, same

DTYPES = [
    *(torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16, torch.int8),
    *(torch.uint8, torch.bool, torch.complex64, torch.complex128, torch.uint16, torch.uint32, torch.uint64),
    *(torch.float8_e4m3fn, torch.float8_e5m2),
]
SHAPES = [(), (1,), (0,), (3, 4), (1, 4), (3, 1), (2, 0, 3), (2, 3, 4, 5)]


def _arithmetic(x, y):
    found = []
    for call in (
        lambda: x + y,
        lambda: x * 2,
        lambda: -x,
        lambda: x.to(torch.float32) * 0.5 + 1,
        lambda: (x == y) & (x != 1),
        lambda: torch.where(x == y, x, y),
        lambda: x.sum() + 1,
        lambda: x.clone().add_(y),
        lambda: x[..., :1] * x,
        lambda: torch.stack([x, y]) + 1,
        lambda: x.view(-1)[::2] * 1,
    ):
        try:
            result = call()
            found.append(result)
            found.append(result * 1)
        except (RuntimeError, TypeError, NotImplementedError, IndexError) as error:
            found.append(type(error).__name__)
    return found


@pytest.mark.filterwarnings("ignore:Casting complex")
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_and_shape(dtype, shape):
    def make():
        numbers = torch.randint(0, 3, shape).float()
        return numbers.to(dtype), numbers.flip(0).to(dtype) if shape else numbers.to(dtype)

    check(_arithmetic, make, calls=3)


def test_sizes_that_no_memory_holds():
    def function(x):
        y = x * 2
        wide = y.expand(1 << 33, 5)
        return wide.shape, wide[-1] + 1, wide.numel(), wide.stride(), y

    check(function, lambda: (torch.randn(1, 5),))


class Named(torch.Tensor):
    pass


class Counted(torch.Tensor):
    calls = 0

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        Counted.calls += 1
        return super().__torch_function__(func, types, args, kwargs or {})


@pytest.mark.parametrize("kind", [Named, Counted])
def test_subclasses(kind):
    def function(x, y):
        a = x * 2
        b = a.as_subclass(kind)
        c = b + y
        before = kind.calls if kind is Counted else 0
        d = c.as_subclass(torch.Tensor) * a
        e = x - b
        return d, type(c), type(e), c.as_subclass(torch.Tensor), (kind.calls if kind is Counted else 0) - before

    check(function, lambda: (torch.randn(3), torch.randn(3)))
    check(
        lambda x, y: (x * 2 + y).as_subclass(torch.Tensor), lambda: (torch.randn(3).as_subclass(kind), torch.randn(3))
    )


LAYOUTS = {
    "sparse": lambda: torch.eye(4).to_sparse(),
    "compressed": lambda: torch.eye(4).to_sparse_csr(),
    "meta": lambda: torch.ones(4, 4, device="meta"),
    "conjugated": lambda: torch.randn(4, 4, dtype=torch.complex64).conj(),
    "negative": lambda: torch.randn(4, 4, dtype=torch.complex64).conj().imag,
    "quantised": lambda: torch.quantize_per_tensor(torch.randn(4, 4), 0.1, 0, torch.qint8),
    "channels last": lambda: torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last),
    "expanded": lambda: torch.randn(4, 1).expand(4, 4),
    "overlapping": lambda: torch.randn(10).as_strided((4, 4), (2, 1)),
    "offset": lambda: torch.randn(20)[4:].view(4, 4),
    "reversed": lambda: torch.randn(4, 4).t(),
    "gaps": lambda: torch.randn(4, 8)[:, ::2],
    "ones": lambda: torch.randn(1, 4, 1).transpose(0, 2),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", LAYOUTS)
def test_layouts(name):
    def function(x):
        found = []
        for call in (
            lambda: x * 2,
            lambda: x + x,
            lambda: (x * 2).clone(),
            lambda: (x * 2).sum(),
            lambda: x @ x,
            lambda: (x * 2).transpose(0, 1) + 1,
            lambda: (x * 2).contiguous().view(-1),
            lambda: torch.cat([x * 2, x]),
            lambda: (x * 2).reshape(-1) * 3,
            lambda: torch.zeros_like(x * 2),
        ):
            try:
                found.append(call())
            except (RuntimeError, NotImplementedError) as error:
                found.append(type(error).__name__)
        return found

    check(function, lambda: (LAYOUTS[name](),), calls=4)


def test_several_results_of_changing_number():
    def function(x):
        parts = (x * 2).split(2)
        others = (x + 1).chunk(3)
        y = x * 3
        return [part + 1 for part in parts], others, y, torch.unbind(y)

    jitted = followed(function)
    for length in (4, 6, 5, 4, 6, 5, 9, 1, 4, 6):
        x = torch.randn(length, 2)
        same(jitted(x), function(x), f"length {length}")


def test_containers_of_results():
    def function(x):
        values, indices = torch.max(x * 2, 1)
        found = torch.sort(x * 2)
        variance = torch.var_mean(x * 2, 0)
        top = (x * 2).topk(2)
        both = torch.aminmax(x * 2)
        return values, indices, found, type(found).__name__, variance, top, top.values + 1, torch.max(x, 0), both.min

    check(function, lambda: (torch.randn(4, 5),))
