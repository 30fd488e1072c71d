"""Kernels with reductions: one kernel each, right for every length, layout, special value and number of threads."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
import torch.nn.functional as functional

from ingot import DataType, GraphBuilder, JitCompiler, memory
from ingot.loops.cpu.tuning import CpuTuning
from ingot.runtime.compiler import CompiledModule
from tests.ops.generation import data_type_of

FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
TOLERANCE = {torch.float32: 2e-6, torch.float64: 1e-13, torch.float16: 2e-3, torch.bfloat16: 1e-2}
LENGTHS = [*range(1, 71), 127, 128, 129]

Body = Callable[..., Any]


def compiled(body: Body, *tensors: torch.Tensor) -> CompiledModule:
    """A graph for tensors of these types, ranks and any sizes."""
    builder = GraphBuilder()
    handles = [builder.input([-1] * tensor.dim(), data_type_of(tensor.dtype)) for tensor in tensors]
    results = body(builder.ops, *handles)
    builder.output(*(results if isinstance(results, tuple) else (results,)))
    # Reductions of one tensor that do not need each other are one kernel only where that is asked for.
    strategy = "aggressive" if isinstance(results, tuple) else "default"
    return JitCompiler({"fusion_strategy": strategy}).compile(builder.build())


def launched(module: CompiledModule, *tensors: torch.Tensor) -> list[torch.Tensor]:
    """Its results, from one kernel."""
    before = module.stats().kernel_launches
    found = module.execute(list(tensors))
    assert module.stats().kernel_launches == before + 1, module.explain()
    return list(found)


def run(body: Body, *tensors: torch.Tensor) -> list[torch.Tensor]:
    return launched(compiled(body, *tensors), *tensors)


def assert_near(actual: torch.Tensor, expected: torch.Tensor, factor: float = 1.0, largest: float = 1e-3) -> None:
    """Equal up to the rounding of the type, in parts of the largest value that is met; NaN where NaN is."""
    assert actual.dtype is expected.dtype
    bound = TOLERANCE[expected.dtype] * factor
    if expected.numel():
        largest = max(largest, float(expected.double().nan_to_num(0, 0, 0).abs().max()))
    torch.testing.assert_close(actual, expected, rtol=bound, atol=bound * largest, equal_nan=True)


@contextmanager
def threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


# --- composites -------------------------------------------------------------------------------------------------------


def _wide(function: Callable[[torch.Tensor], Any]) -> Callable[[torch.Tensor], Any]:
    """Eager PyTorch in double precision, rounded at the end."""

    def apply(x: torch.Tensor) -> Any:
        found = function(x.double())
        return tuple(t.to(x.dtype) for t in found) if isinstance(found, tuple) else (found.to(x.dtype),)

    return apply


COMPOSITES: dict[str, tuple[Body, Callable[[torch.Tensor], Any]]] = {
    "softmax": (lambda ops, x: ops.softmax(x, -1), _wide(lambda x: torch.softmax(x, -1))),
    "log_softmax": (lambda ops, x: ops.log_softmax(x, -1), _wide(lambda x: torch.log_softmax(x, -1))),
    "layer_norm": (
        lambda ops, x: ops.layer_norm(x, [x.shape[-1]]),
        _wide(lambda x: functional.layer_norm(x, [x.shape[-1]])),
    ),
    "rms_norm": (
        lambda ops, x: ops.rms_norm(x, [x.shape[-1]], eps=1e-5),
        _wide(lambda x: functional.rms_norm(x, [x.shape[-1]], eps=1e-5)),
    ),
    "var_mean": (
        lambda ops, x: ops.var_mean(x, [-1], 0),
        _wide(lambda x: torch.var_mean(x, -1, correction=0)),
    ),
    "column sum": (lambda ops, x: ops.sum(x, [0]), _wide(lambda x: x.sum(0))),
    "full variance": (lambda ops, x: ops.var(x, correction=0), _wide(lambda x: x.var(correction=0))),
    "column softmax": (lambda ops, x: ops.softmax(x, 0), _wide(lambda x: torch.softmax(x, 0))),
}


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("name", COMPOSITES)
def test_composites_are_one_kernel_and_right_for_every_length(name: str, dtype: torch.dtype, device: torch.device):
    body, expected = COMPOSITES[name]
    module = compiled(body, torch.empty(0, 0, dtype=dtype))
    for length in LENGTHS:
        x = torch.randn(5, length, generator=torch.Generator().manual_seed(length)).to(device, dtype)
        for found, wanted in zip(launched(module, x), expected(x), strict=True):
            assert_near(found, wanted, 20 if length == 2 else 4)  # two numbers may lie so near that rounding shows


@pytest.mark.parametrize("name", COMPOSITES)
@pytest.mark.parametrize("shape", [(3, 100_003), (1, 200_001), (100_003, 3), (2, 70_000)], ids=str)
def test_composites_of_long_rows(name: str, shape: tuple[int, ...]):
    """Rows that are split, rows longer than what is kept, columns in many blocks; the same on any number of threads."""
    body, expected = COMPOSITES[name]
    x = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    wanted, module = expected(x), compiled(body, x)
    results = []
    for count in (1, 2, 3):
        with threads(count):
            results.append(launched(module, x))
    for alone, two, three, right in zip(*results, wanted, strict=True):
        assert_near(alone, right, 4)
        assert torch.equal(alone, two) and torch.equal(alone, three)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("length", [CpuTuning().kept_bytes // 4 - 1, CpuTuning().kept_bytes // 4 + 1])
def test_rows_just_below_and_above_what_is_kept(length: int, dtype: torch.dtype):
    x = torch.randn(9, length, generator=torch.Generator().manual_seed(2)).to(dtype)
    (found,) = run(lambda ops, x: ops.softmax(x, -1), x)
    assert_near(found, torch.softmax(x.double(), -1).to(dtype), 4)


@pytest.mark.parametrize("dtype", [*FLOATS, torch.int8, torch.int64, torch.bool], ids=str)
def test_transposes_are_one_kernel(dtype: torch.dtype, device: torch.device):
    empty = torch.empty(0, 0, dtype=dtype)
    module = compiled(lambda ops, x, y: ops.maximum(ops.permute(x, [1, 0]), y), empty, empty)
    for rows, columns in itertools.product((1, 16, 17, 63, 64, 65, 130), repeat=2):
        numbers = torch.arange(rows * columns, device=device).view(rows, columns) % 100
        x, y = numbers.to(dtype), (numbers.T.contiguous() % 7).to(dtype)
        (found,) = launched(module, x, y)
        assert torch.equal(found, torch.maximum(x.T, y))


# --- special values ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_nan_and_infinities_in_rows(dtype: torch.dtype, device: torch.device):
    inf, nan = math.inf, math.nan
    ordinary = torch.linspace(-2, 2, 37).to(device, dtype)
    rows = [ordinary.clone() for _ in range(8)]
    rows[1][:] = -inf
    rows[2][5], rows[3][36], rows[4][0] = inf, nan, -inf
    rows[5][3], rows[5][9] = inf, -inf
    rows[6][31], rows[6][32] = nan, inf
    rows[7][:] = inf
    x = torch.stack(rows)
    for name in ("softmax", "log_softmax"):
        (found,) = run(lambda ops, x, name=name: getattr(ops, name)(x, -1), x)
        assert_near(found, getattr(torch, name)(x.double(), -1).to(dtype), 4)
        assert found[1].isnan().all()
    for layout in (x, x.T.contiguous().T):
        sums, *extrema = run(lambda ops, x: (ops.sum(x, [1]), ops.amax(x, [1]), ops.amin(x, [1])), layout)
        # Ordinary elements cancel each other; what is lost on the way is in proportion to them.
        assert_near(sums, x.double().sum(1).to(dtype), largest=float(ordinary.abs().sum()))
        for actual, wanted in zip(extrema, (x.amax(1), x.amin(1)), strict=True):
            assert_near(actual, wanted)
        for axis in (0, 1):
            found = run(lambda ops, x, axis=axis: (ops.amax(x, [axis]), ops.amin(x, [axis])), layout)
            for actual, wanted in zip(found, (x.amax(axis), x.amin(axis)), strict=True):
                assert torch.equal(actual.nan_to_num(7), wanted.nan_to_num(7))


def test_a_nan_anywhere_in_a_row_reaches_its_extremes(device: torch.device):
    for length in (1, 2, 7, 8, 9, 16, 17, 31, 33, 65):
        x = torch.zeros(length, length, device=device)
        x.fill_diagonal_(math.nan)
        for axis in (0, 1):
            for found in run(lambda ops, x, axis=axis: (ops.amax(x, [axis]), ops.amin(x, [axis])), x):
                assert found.isnan().all()


def test_extremes_of_values_below_and_above_all_defaults(device: torch.device):
    """Lanes that hold no element must not win: a row of negative numbers has no 0 in it."""
    for dtype in (*FLOATS, torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64):
        for length in (1, 3, 9, 33, 65):
            x = torch.full((3, length), 100).to(device, dtype)
            low = x if dtype is torch.uint8 else -x
            (smallest,) = run(lambda ops, x: ops.amin(x, [1]), x)
            (largest,) = run(lambda ops, x: ops.amax(x, [1]), low)
            assert torch.equal(smallest, x[:, 0]) and torch.equal(largest, low[:, 0])


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64], ids=str)
def test_integer_sums_and_products_wrap_around(dtype: torch.dtype, device: torch.device):
    limits = torch.iinfo(dtype)
    generator = torch.Generator().manual_seed(3)
    x = torch.randint(limits.min, limits.max, (7, 133), generator=generator, dtype=dtype).to(device)
    x[:, 0], x[:, 1] = limits.max, limits.min
    for axes in ([0], [1], [0, 1]):
        found = run(lambda ops, x, axes=axes: (ops.sum(x, axes), ops.prod(x, axes)), x)
        product = x.long()
        for axis in reversed(axes):
            product = product.prod(axis)
        assert torch.equal(found[0], x.sum(axes)) and torch.equal(found[1], product)


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int64, torch.float32, torch.bfloat16], ids=str)
def test_any_and_all(dtype: torch.dtype, device: torch.device):
    for length in (1, 8, 9, 33, 65, 130):
        x = torch.zeros(4, length, dtype=dtype, device=device)
        x[1], x[2, -1], x[3, :-1] = 1, 1, 1
        for axes in ([0], [1], [0, 1]):
            found = run(lambda ops, x, axes=axes: (ops.any(x, axes), ops.all(x, axes)), x)
            assert torch.equal(found[0], torch.any(x, axes)) and torch.equal(found[1], torch.all(x, axes))


# --- axes and layouts -------------------------------------------------------------------------------------------------


def _layouts(x: torch.Tensor) -> dict[str, torch.Tensor]:
    wide = torch.zeros(*x.shape[:-1], 2 * x.shape[-1] + 1, device=x.device)
    wide[..., 1::2] = x
    return {
        "contiguous": x,
        "reversed": x.permute(3, 2, 1, 0).contiguous().permute(3, 2, 1, 0),
        "middle first": x.permute(1, 2, 0, 3).contiguous().permute(2, 0, 1, 3),
        "strided": wide[..., 1::2],
        "expanded": x[:1, :, :1].expand(x.shape),
        "overlapping": x.flatten().as_strided(x.shape, (1, 3, 2, 1), 7),
    }


@pytest.mark.parametrize("axes", [c for n in range(1, 5) for c in itertools.combinations(range(4), n)], ids=str)
def test_every_subset_of_axes_in_every_layout(axes: tuple[int, ...], device: torch.device):
    x = torch.randint(-9, 9, (3, 10, 5, 17), generator=torch.Generator().manual_seed(4)).to(device, torch.float32)

    def body(ops: Any, x: Any) -> Any:
        total = ops.sum(x, axes, keepdim=True)
        return ops.sum(x, axes), ops.amax(x, axes), x - total, ops.sum(x * x, axes)

    module = compiled(body, x)
    for name, laid_out in _layouts(x).items():
        found = launched(module, laid_out)
        total = laid_out.sum(axes, keepdim=True)
        wanted = (laid_out.sum(axes), laid_out.amax(axes), laid_out - total, (laid_out * laid_out).sum(axes))
        for actual, expected in zip(found, wanted, strict=True):
            assert torch.equal(actual, expected), name


@pytest.mark.parametrize("axis", [0, 1])
def test_positions_along_rows_and_across_them(axis: int, device: torch.device):
    """A mask that counts along both axes, in front of a reduction along either of them."""
    for rows, columns in ((1, 9), (9, 1), (7, 33), (65, 31), (33, 130)):
        x = torch.randn(rows, columns, generator=torch.Generator().manual_seed(6)).to(device)
        mask = torch.ones(rows, columns, device=device).triu(1).bool()
        for layout in (x, x.T.contiguous().T):
            (found,) = run(lambda ops, x: ops.sum(ops.triu(x, 1), [axis]), layout)
            assert_near(found, torch.where(mask, x, 0.0).double().sum(axis).float(), 4)

            def body(ops: Any, x: Any) -> Any:
                shape = list(x.shape)
                row = ops.broadcast_in_dim(ops.iota(shape[0]), shape, [0])
                column = ops.broadcast_in_dim(ops.iota(shape[1]), shape, [1])
                return ops.softmax(ops.where(ops.gt(column, row), -1e9, x), axis)

            (found,) = run(body, layout)
            assert_near(found, torch.softmax(torch.where(mask, -1e9, x).double(), axis).float(), 4)


# --- accuracy and size ------------------------------------------------------------------------------------------------


def test_large_sums_are_accurate(device: torch.device):
    x = torch.full((1 << 24,), 0.1, device=device)
    exact = float(x[0].double()) * (1 << 24)
    for shape in ((1 << 24,), (2, 1 << 23), (1 << 23, 2)):
        (total,) = run(lambda ops, x: ops.sum(x), x.view(shape))
        assert abs(float(total) - exact) <= 1e-6 * exact
    (columns,) = run(lambda ops, x: ops.sum(x, [0]), x.view(1 << 22, 4))
    assert ((columns.double() - exact / 4).abs() <= 1e-6 * exact / 4).all()


@pytest.mark.parametrize("dtype", FLOATS[2:], ids=str)
def test_half_types_are_rounded_to_the_nearest(dtype: torch.dtype, device: torch.device):
    """Elements and sums alike, to the bit: integers that lie between two numbers of the type."""
    x = torch.randint(-70_000, 70_000, (33, 70), generator=torch.Generator().manual_seed(7)).to(device, torch.float32)
    target = data_type_of(dtype)
    for axis in (0, 1):
        body = lambda ops, x, axis=axis: (ops.cast(x, target), ops.cast(ops.sum(x, [axis]), target))
        found = run(body, x)
        assert torch.equal(found[0], x.to(dtype)) and torch.equal(found[1], x.double().sum(axis).float().to(dtype))


def test_totals_do_not_depend_on_the_number_of_threads():
    """Rows are summed, then all of them; both in grains that depend on sizes alone."""
    x = torch.randn(5000, 37, generator=torch.Generator().manual_seed(5))
    results = []
    for count in (1, 2, 3):
        with threads(count):
            results.append(run(lambda ops, x: ops.sum(ops.log(ops.sum(ops.exp(x), [1]))), x)[0])
    assert torch.equal(results[0], results[1]) and torch.equal(results[0], results[2])
    assert_near(results[0], x.double().logsumexp(1).sum().float())


def test_more_than_two_billion_elements_are_reduced(device: torch.device):
    try:
        x = torch.zeros(2**31 + 37, dtype=torch.int8, device=device)
    except RuntimeError:
        pytest.skip("needs 3 GB of memory")
    x[-1], x[2**31], x[12] = 5, 7, -1
    total, largest, has_any = run(lambda ops, x: (ops.sum(x), ops.amax(x), ops.any(x)), x)
    assert (total.item(), largest.item(), has_any.item()) == (11, 7, True)
    rows = x[: 2**31].view(2, 2**30)
    assert run(lambda ops, x: ops.sum(x, [1]), rows)[0].tolist() == [-1, 0]
    del x, rows
    memory.empty_cache()


# --- what once went wrong ---------------------------------------------------------------------------------------------


def test_function_of_a_sum_that_becomes_half_needs_no_library():
    """LLVM made a call of a missing routine from the sign of the sum."""
    for dtype in FLOATS:
        x = torch.linspace(-1, 0.5, 54).to(dtype)
        for name in ("tanh", "sinh", "asinh", "atan", "erf"):
            (found,) = run(lambda ops, x, name=name: getattr(ops, name)(ops.sum(x)), x)
            assert_near(found, getattr(torch, name)(x.float().sum() if dtype in FLOATS[2:] else x.sum()).to(dtype), 3)


def test_counter_of_one_position_is_a_constant():
    for shape in ((1, 33), (9, 1, 33), (5, 1), (1, 1)):
        x = torch.randn(shape)
        (found,) = run(lambda ops, x: ops.triu(x * 2, 0), x)
        assert torch.equal(found, torch.triu(x * 2))


def test_a_row_value_picked_by_an_index_is_a_kernel_of_its_own():
    """It was taken for a total, and there was no code for that."""
    builder = GraphBuilder()
    x, index = builder.input((-1, -1)), builder.input((1,), DataType.Int)
    total = builder.ops.sum(x, [1])
    builder.output(builder.ops.take_along_axis(total * 2, index, 0), total)
    module = JitCompiler().compile(builder.build())
    picked, totals = module.execute([torch.arange(12.0).view(3, 4), torch.tensor([1])])
    assert (picked.tolist(), totals.tolist()) == ([44.0], [6.0, 22.0, 38.0])


def test_a_value_is_read_along_rows_and_through_a_chain_along_columns():
    """The kernel computed the cheap chain itself, and read its beginning along the chain's axis everywhere."""
    builder = GraphBuilder()
    x = builder.input((-1,))
    column = builder.ops.broadcast_in_dim(builder.ops.cumsum(x, 0), [x.shape[0], 1], [0])
    row = builder.ops.squeeze(builder.ops.maximum(column, 3.0), [1])
    builder.output(column - row, row)
    values = torch.arange(8.0)
    found, _ = JitCompiler().compile(builder.build()).execute([values])
    total = values.cumsum(0)
    assert torch.equal(found, total[:, None] - total.clamp(min=3.0))
