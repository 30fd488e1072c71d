"""Products with padded matrices: which, how their results lie, and what may read them.

The CPU poses as a GPU on which a strategy is always quicker; results are compared with eager's. Tests marked `cuda`
look at what a GPU and its library really do.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional
from torch.profiler import ProfilerActivity, profile

from ingot import jit
from ingot.frontend.jit.arguments.call_key import describe
from ingot.frontend.jit.cache.specialisation import record
from ingot.frontend.jit.lowering.recorded_program import compile_trace
from ingot.frontend.jit.rewrites import aligned_products, padded_products
from ingot.frontend.jit.rewrites.aligned_products import AlignProducts
from ingot.frontend.jit.rewrites.padded_products import (
    STRATEGIES,
    MatrixLayout,
    aligned_length,
    axes_off,
    choice,
    padded_product,
    plain_product,
)
from ingot.frontend.jit.trace.trace import Trace
from ingot.runtime.compiler import JitCompiler

HALVES = (torch.bfloat16, torch.float16)


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> Callable[[str | None], None]:
    """Have a strategy be the quickest everywhere, on the CPU, too."""
    monkeypatch.setattr(Trace, "device", torch.device("cuda", 0))
    monkeypatch.setattr(aligned_products, "_KIND", "cpu")
    monkeypatch.setattr(aligned_products, "_FEWEST_MULTIPLICATIONS", 1)
    return lambda strategy: monkeypatch.setattr(padded_products, "quickest", lambda *_: strategy)


def recorded(function: Callable[..., Any], *args: Any) -> Trace:
    with torch.no_grad():
        _, made = record(function, args, {}, describe(args, {}), None, strict=True)
    assert made.trace is not None
    return made.trace


def aligned(function: Callable[..., Any], *args: Any) -> list[str]:
    """The products with padded matrices in what becomes of a function."""
    trace = AlignProducts().run(recorded(function, *args)).trace
    return [str(event) for event in trace.events if event.target is padded_products.PADDED_PRODUCT]


def check(function: Callable[..., Any], *args: Any) -> None:
    """Compare the program of a function with eager, strides included."""
    found = compile_trace(recorded(function, *args), JitCompiler()).function(list(args), [], ())
    expected = function(*args)
    for one, other in zip(found, expected if isinstance(expected, tuple) else [expected], strict=True):
        assert one.stride() == other.stride() and one.storage_offset() == other.storage_offset()
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


# --- the strategies ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_dense", [False, True])
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("order", ["nn", "nt", "tn", "tt"])
@pytest.mark.parametrize("sizes", [(8, 16, 5), (7, 16, 8), (8, 13, 8), (7, 13, 5), (1, 13, 5), (5, 1, 3)])
def test_strategies_give_the_product(
    sizes: tuple[int, int, int], order: str, strategy: str, is_dense: bool, device: torch.device
):
    rows, inner, columns = sizes
    for batch in ((), (3,)):
        x = _matrix(batch, rows, inner, order[0] == "t").to(device)
        matrix = _matrix(batch, inner, columns, order[1] == "t").to(device)
        for bias in (None,) if batch else (None, torch.randn(columns, device=device)):
            expected = plain_product(x, matrix, bias)()
            found = padded_product(x, matrix, bias, strategy, is_dense)
            torch.testing.assert_close(found, expected)
            assert found.is_contiguous() or not is_dense


def _matrix(batch: tuple[int, ...], rows: int, columns: int, is_transposed: bool) -> torch.Tensor:
    if is_transposed:
        return torch.randn(*batch, columns, rows).transpose(-1, -2)
    return torch.randn(*batch, rows, columns)


@pytest.mark.parametrize(
    ("x", "matrix", "expected"),
    [
        (torch.empty(8, 768), torch.empty(50257, 768).t(), (2,)),
        (torch.empty(8, 768), torch.empty(768, 50257), (2,)),
        (torch.empty(8, 50257), torch.empty(50257, 768), (1,)),
        (torch.empty(8, 50257).t(), torch.empty(8, 768), (0,)),
        (torch.empty(8, 13), torch.empty(5, 13).t(), (1, 2)),
        (torch.empty(1, 768), torch.empty(50257, 768).t(), ()),
        (torch.empty(8, 768), torch.empty(50264, 768).t(), ()),
        (torch.empty(8, 1).expand(8, 768), torch.empty(768, 8), ()),
        (torch.empty(3, 7, 8), torch.empty(3, 8, 8), ()),
        (torch.empty(3, 8, 7), torch.empty(3, 7, 8), (1,)),
    ],
)
def test_axes_that_are_off(x: torch.Tensor, matrix: torch.Tensor, expected: tuple[int, ...]):
    result = torch.empty(*x.shape[:-1], matrix.shape[-1])
    layouts = [MatrixLayout(torch.bfloat16, tuple(one.shape), one.stride()) for one in (x, matrix, result)]
    assert axes_off(*layouts) == expected


def test_rows_are_lengthened_to_16_bytes():
    assert [aligned_length(50257, dtype) for dtype in (torch.bfloat16, torch.float32)] == [50264, 50260]
    assert aligned_length(64, torch.float16) == 64


def test_a_strategy_has_to_be_clearly_quicker():
    assert choice({"plain": 4.4, "rows": 0.6, "sizes": 0.5}) == "sizes"
    assert choice({"plain": 4.4, "rows": 0.5, "sizes": 0.6}) == "rows"
    assert choice({"plain": 1.0, "rows": 0.95, "sizes": 1.1}) == "plain"


# --- traces -----------------------------------------------------------------------------------------------------------


def scores(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return torch.log_softmax(functional.linear(x, weight), -1)


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("shape", [(8, 12), (2, 4, 12)])
def test_generated_code_reads_padded_rows(always: Callable[[str], None], shape: tuple[int, ...], strategy: str):
    always(strategy)
    given = torch.randn(shape), torch.randn(5, 12)
    (product,) = aligned(scores, *given)
    assert product.endswith(f"'{strategy}', False)")
    check(scores, *given)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_results_lie_as_eagers(always: Callable[[str], None], strategy: str):
    always(strategy)

    def with_loss(x: torch.Tensor, weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        logits = functional.linear(x, weight)
        return logits, torch.logsumexp(logits, -1).sum()

    given = torch.randn(2, 4, 12), torch.randn(5, 12)
    for function in (functional.linear, with_loss, lambda x, weight: functional.linear(x, weight)[:, -1]):
        (product,) = aligned(function, *given)
        assert product.endswith(f"'{strategy}', True)")
        check(function, *given)


@pytest.mark.parametrize(
    "function",
    [
        lambda x, weight: functional.linear(x, weight).flatten() * 2,
        lambda x, weight: functional.linear(x, weight).sort().values,
        lambda x, weight: functional.linear(x, weight).relu_() + 1,
        lambda x, weight: functional.linear(functional.linear(x, weight), weight.t()) * 2,
    ],
)
def test_readers_that_need_the_recorded_order_get_it(always: Callable[[str], None], function: Callable[..., Any]):
    always("rows")
    given = torch.randn(8, 12), torch.randn(5, 12)
    products = aligned(function, *given)
    assert products and products[0].endswith("'rows', True)")
    check(function, *given)


def test_views_of_padded_rows_are_views_still(always: Callable[[str], None]):
    always("rows")

    def function(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        logits = functional.linear(x, weight)
        return functional.cross_entropy(logits[:, :-1].reshape(-1, 5), torch.arange(6) % 5, reduction="none")

    given = torch.randn(2, 4, 12), torch.randn(5, 12)
    (product,) = aligned(function, *given)
    assert product.endswith("'rows', False)")
    check(function, *given)


def test_biases_are_added_and_activations_left_to_the_library(always: Callable[[str], None]):
    always("sizes")
    given = torch.randn(8, 12), torch.randn(5, 12), torch.randn(5)
    assert len(aligned(lambda x, weight, bias: functional.linear(x, weight, bias) * 2, *given)) == 1
    check(lambda x, weight, bias: functional.linear(x, weight, bias) * 2, *given)
    assert aligned(lambda x, weight, bias: torch.addmm(bias, x, weight.t(), alpha=2) * 2, *given) == []
    assert aligned(lambda x, weight, bias: torch.addmm(torch.ones(8, 5), x, weight.t()) * 2, *given) == []


def test_batches_of_products_are_padded(always: Callable[[str], None]):
    always("rows")
    given = torch.randn(3, 8, 12), torch.randn(3, 12, 5)
    assert len(aligned(lambda x, y: torch.softmax(torch.bmm(x, y), -1), *given)) == 1
    check(lambda x, y: torch.softmax(torch.bmm(x, y), -1), *given)


def test_what_is_aligned_small_or_not_quicker_is_left(always: Callable[[str | None], None], monkeypatch: Any):
    given = torch.randn(8, 12), torch.randn(5, 12)
    always(None)
    assert aligned(scores, *given) == []
    always("rows")
    assert aligned(scores, given[0], torch.randn(8, 12)) == []
    assert aligned(scores, *(one.double() for one in given)) == []
    monkeypatch.setattr(aligned_products, "_FEWEST_MULTIPLICATIONS", 1000)
    assert aligned(scores, *given) == []


def test_traces_of_the_cpu_stay_as_they_are(always: Callable[[str], None], monkeypatch: pytest.MonkeyPatch):
    always("rows")
    monkeypatch.setattr(Trace, "device", torch.device("cpu"))
    assert aligned(scores, torch.randn(8, 12), torch.randn(5, 12)) == []


# --- on a GPU ---------------------------------------------------------------------------------------------------------


def kernels_of(call: Callable[[], Any]) -> list[str]:
    """What a GPU does for a call."""
    for _ in range(2):
        call()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the profiler
        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as found:
            call()
            torch.cuda.synchronize()
        return [event.name for event in found.events() or [] if event.device_type == torch.autograd.DeviceType.CUDA]


@pytest.mark.cuda
def test_wider_rows_are_written_without_a_copy():
    x, weight = (torch.randn(size, 768, device="cuda", dtype=torch.bfloat16) for size in (512, 50257))
    kernels = kernels_of(lambda: padded_product(x, weight.t(), None, "rows", False))
    assert kernels and not any("elementwise" in kernel or "Memcpy" in kernel for kernel in kernels), kernels


@pytest.mark.cuda
@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("sizes", [(512, 768, 50257), (512, 50257, 768), (129, 1023, 2047)])
def test_products_of_half_types_are_as_close_as_pytorchs(
    sizes: tuple[int, int, int], strategy: str, dtype: torch.dtype
):
    rows, inner, columns = sizes
    x = torch.randn(rows, inner, device="cuda", dtype=dtype)
    matrix = torch.randn(columns, inner, device="cuda", dtype=dtype).t()
    precise = x.double() @ matrix.double()
    furthest = (torch.mm(x, matrix) - precise).abs().max()
    for is_dense in (False, True):
        found = padded_product(x, matrix, None, strategy, is_dense)
        assert (found - precise).abs().max() <= 2 * furthest


@pytest.mark.cuda
@pytest.mark.usefixtures("no_eager_comparison")
def test_logits_of_an_odd_vocabulary_are_right():
    x = torch.randn(2, 1024, 768, device="cuda", dtype=torch.bfloat16)
    weight = torch.randn(50257, 768, device="cuda", dtype=torch.bfloat16) * 0.02
    with torch.no_grad():
        for function in (functional.linear, scores):
            compiled = jit(function)
            expected = function(x, weight)
            for _ in range(3):
                found = compiled(x, weight)
                assert found.stride() == expected.stride()
                torch.testing.assert_close(found, expected, rtol=2e-2, atol=2e-2)
    layouts = MatrixLayout(x.dtype, (2048, 768), (768, 1)), MatrixLayout(weight.dtype, (768, 50257), (1, 768))
    for is_dense in (False, True):
        assert padded_products.quickest(*layouts, False, is_dense, x.device) in (*STRATEGIES, None)
