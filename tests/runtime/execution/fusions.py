"""Fusions for the tests of execute, and what their calls cost."""

import inspect

import torch

from ingot import DataType, FusionDefinition
from tests.property.random_values import same_bits


def define(make, *declared, **settings):
    """A fusion of inputs that are tensors of these ranks, or numbers of these types."""
    with FusionDefinition(**settings) as fd:
        inputs = [
            fd.define_scalar(dtype=what) if isinstance(what, DataType) else fd.define_tensor(what) for what in declared
        ]
        for output in make(fd, *inputs):
            fd.add_output(output)
    return fd


def is_native(fd):
    return inspect.isbuiltin(fd.execute)


def native_calls(fd):
    """How many calls of a fusion ran natively."""
    return fd.module._runner._native.executions


def costs(fd):
    stats = fd.module.stats()
    return stats.executions, stats.kernel_launches, stats.memory_transferred


def check(fd, inputs, natively=True):
    """Execute twice: the second call runs natively, or not, and gives the same bits and costs the same."""
    before = costs(fd)
    first = fd.execute(inputs)
    between, natives = costs(fd), native_calls(fd)
    second = fd.execute(inputs)
    after = costs(fd)
    assert native_calls(fd) - natives == natively
    assert len(first) == len(second)
    for one, other in zip(first, second, strict=True):
        assert same_bits(one, other)
        assert one.stride() == other.stride()
        assert not other.requires_grad
    spent = [(later - earlier, last - later) for earlier, later, last in zip(before, between, after, strict=True)]
    assert spent[0] == (1, 1)
    assert all(one == other for one, other in spent)
    return second


def outlived(fd, x):
    """A value that is read again after another one has come and gone."""
    first = fd.ops.softmax(x, -1)
    second = fd.ops.softmax(fd.ops.permute(first, [1, 0]), -1)
    third = fd.ops.softmax(fd.ops.permute(second, [1, 0]), -1)
    return [third * first]


CASES = {
    "intermediate values that live together": (outlived, (2,), [torch.randn(6, 35)]),
    "several results": (lambda fd, x: [x + 1.0, x * 2.0, fd.ops.exp(x)], (2,), [torch.randn(7, 9)]),
    "softmax": (lambda fd, x: [fd.ops.softmax(x, -1)], (2,), [torch.randn(5, 33)]),
    "reduction to a number": (lambda fd, x: [fd.ops.sum(x * x)], (2,), [torch.randn(5, 33)]),
    "mean, whose divisor is a size": (lambda fd, x: [fd.ops.mean(x)], (2,), [torch.randn(5, 33)]),
    "chain of kernels": (
        lambda fd, x: [fd.ops.softmax(fd.ops.permute(fd.ops.softmax(x, -1), [1, 0]), -1)],
        (2,),
        [torch.randn(6, 35)],
    ),
    "result that others read": (
        lambda fd, x: (lambda y: [y, fd.ops.softmax(fd.ops.permute(y, [1, 0]), -1)])(fd.ops.softmax(x, -1)),
        (2,),
        [torch.randn(6, 35)],
    ),
    "result seen in another shape": (
        lambda fd, x: [fd.ops.reshape(fd.ops.softmax(x, -1), [30, 7])],
        (2,),
        [torch.randn(6, 35)],
    ),
    "strided input": (lambda fd, x: [x + 1.0], (2,), [torch.randn(40, 30).t()[::2, 3:20]]),
    "expanded input": (lambda fd, x: [x + 1.0], (2,), [torch.randn(30).expand(5, 30)]),
    "no dimensions": (lambda fd, x: [x + 1.0], (0,), [torch.tensor(2.0)]),
    "broadcast bias": (lambda fd, x, b: [fd.ops.gelu(x + b)], (2, 1), [torch.randn(4, 8), torch.randn(8)]),
    "float": (lambda fd, x, s: [x * s], (1, DataType.Double), [torch.randn(9), 0.1]),
    "int for a float": (lambda fd, x, s: [x * s], (1, DataType.Double), [torch.randn(9), 3]),
    "bool for a float": (lambda fd, x, s: [x * s], (1, DataType.Double), [torch.randn(9), True]),
    "single precision float": (lambda fd, x, s: [x * s], (1, DataType.Float), [torch.randn(9), 0.1]),
    "int": (lambda fd, x, s: [x * s], (1, DataType.Int), [torch.randn(9), -7]),
    "bool": (lambda fd, x, s: [fd.ops.where(s, x, -x)], (1, DataType.Bool), [torch.randn(9), False]),
    "int as a float and as itself": (
        lambda fd, x, s: [x * s, fd.ops.cast(x, DataType.Int) + s],
        (1, DataType.Int),
        [torch.randn(9) * 10, 5],
    ),
    "half results": (
        lambda fd, x: [fd.ops.cast(x, DataType.BFloat16), fd.ops.cast(x, DataType.Half), x > 0.0],
        (2,),
        [torch.randn(3, 11)],
    ),
    "large": (lambda fd, x: [fd.ops.tanh(x) * x], (1,), [torch.randn(1_000_003)]),
    "an input as a result": (lambda fd, x: [x, x + 1.0], (2,), [torch.randn(4, 6)]),
    "a strided input as a result": (lambda fd, x: [x + 1.0, x], (2,), [torch.randn(9, 6).t()[::2, 1:]]),
    "a view of an input as a result": (lambda fd, x: [fd.ops.permute(x, [1, 0]), x + 1.0], (2,), [torch.randn(4, 6)]),
    "a result and a view of it": (
        lambda fd, x: (lambda y: [y, fd.ops.permute(y, [1, 0])])(fd.ops.softmax(x, -1)),
        (2,),
        [torch.randn(4, 6)],
    ),
    "a repeated value": (lambda fd, x: [fd.ops.broadcast_in_dim(x + 1.0, [3, 4, 5], [1])], (1,), [torch.randn(4)]),
    "parts of a value": (
        lambda fd, x: (lambda y: [fd.ops.slice(y, [0, 1], [4, 3]), fd.ops.slice(y, [1, 0], [3, 6], [2, 3])])(x * 2.0),
        (2,),
        [torch.randn(4, 6)],
    ),
    "a value twice": (lambda fd, x: (lambda y: [y, y, y])(x + 1.0), (2,), [torch.randn(4, 6)]),
    "a number seen in several shapes": (
        lambda fd, x: (lambda y: [y, fd.ops.broadcast_in_dim(y, [2, 3], [])])(fd.ops.sum(x)),
        (1,),
        [torch.randn(9)],
    ),
    "tensors joined as they are": (
        lambda fd, x, y: [fd.ops.cat([x, y, x], 1), x + y],
        (2, 2),
        [torch.randn(4, 6), torch.randn(6, 4).t()],
    ),
    "elements that a new shape needs elsewhere": (
        lambda fd, x: [fd.ops.reshape(fd.ops.permute(x, [1, 0]), [3, 8]), x + 1.0],
        (2,),
        [torch.randn(4, 6)],
    ),
    "a large view": (lambda fd, x: [fd.ops.permute(fd.ops.exp(x), [1, 0]), x], (2,), [torch.randn(700, 900)]),
}
