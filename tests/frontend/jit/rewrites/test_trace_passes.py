"""Every trace pass: it changes what its docstring says, keeps results, can be switched off, and can be seen."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from ingot.base.environment_variables import environment
from ingot.base.errors import ConfigError
from ingot.frontend.jit.arguments.call_key import describe
from ingot.frontend.jit.cache.specialisation import record
from ingot.frontend.jit.lowering.recorded_program import compile_trace
from ingot.frontend.jit.rewrites import (
    aligned_products,
    epilogues,
    gpu_convolutions,
    padded_products,
    product_strategies,
    weight_packing,
)
from ingot.frontend.jit.rewrites.trace_passes import TRACE_PASSES, rewrite_trace
from ingot.frontend.jit.rewrites.trace_rewriting import TracePass, TraceRewriter
from ingot.frontend.jit.trace.trace import Trace
from ingot.runtime.compiler import JitCompiler


def scaled_lists(x: torch.Tensor, y: torch.Tensor) -> Any:
    return torch._foreach_mul([x, y], 0.9)


class Normalized(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.convolution, self.norm = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)
        self.norm.running_var = torch.rand(4) + 0.5

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.norm(self.convolution(x)))


class Convolved(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(3, 4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.convolution(x)) + 1


def activated(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return torch.relu(torch.addmm(bias, x, weight)) + 1


def convolved_twice(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return torch.tanh(torch.conv2d(torch.tanh(torch.conv2d(x, weight)), weight))


def multiplied(x: torch.Tensor, matrix: torch.Tensor) -> torch.Tensor:
    return torch.mm(x, matrix) + 1


def linear(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return functional.linear(x, weight, bias) * 2


def stepwise(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return sum(torch.tanh(functional.linear(step, weight)) for step in x.unbind(1))  # type: ignore[return-value]


def pooled(x: torch.Tensor) -> torch.Tensor:
    return functional.max_pool2d(x, 3, 2, 1) + 1


@dataclass(frozen=True)
class Example:
    """A call that a pass changes: operators that are in its trace before and not after, and the other way round."""

    function: Callable[..., Any]
    arguments: Callable[[], Sequence[torch.Tensor]]
    before: str
    after: str


def turned_twice(x: torch.Tensor) -> torch.Tensor:
    return x.t().detach().t() * 2


EXAMPLES: dict[str, Example] = {
    "drop_aliases": Example(turned_twice, lambda: [torch.randn(3, 4)], "aten.detach.default", "aten.mul.Tensor(%0, 2)"),
    "expand_lists": Example(
        scaled_lists, lambda: [torch.randn(5), torch.randn(5)], "aten._foreach_mul.Scalar", "aten.mul.Tensor"
    ),
    "fold_normalizations": Example(
        Normalized().eval(), lambda: [torch.randn(2, 3, 6, 6)], "batch_norm", "aten.convolution.default"
    ),
    "pack_convolutions": Example(
        Convolved().eval(), lambda: [torch.randn(2, 3, 6, 6)], "aten.convolution", "mkldnn._convolution_pointwise"
    ),
    "keep_channels_last": Example(
        convolved_twice,
        lambda: [torch.randn(2, 3, 6, 6), torch.randn(3, 3, 2, 2)],
        "aten.convolution.default(%0,",
        "aten.clone.default(%0, memory_format=torch.channels_last)",
    ),
    "take_in_activations": Example(
        activated,
        lambda: [torch.randn(3, 4), torch.randn(4, 5), torch.randn(5)],
        "aten.relu.default",
        "aten._addmm_activation.default",
    ),
    "align_products": Example(
        multiplied,
        lambda: [torch.randn(8, 12), torch.randn(12, 5)],
        "aten.mm.default",
        "ingot.padded_product.default(%0, %1, None, 'rows', False)",
    ),
    "find_linears": Example(
        linear,
        lambda: [torch.randn(2, 3, 4), torch.randn(5, 4), torch.randn(5)],
        "aten.addmm.default",
        "aten.linear.default",
    ),
    "join_products": Example(
        stepwise, lambda: [torch.randn(3, 6, 4), torch.randn(5, 4)], "aten.linear.default(%2", "aten.unbind.int(%"
    ),
    "pack_products": Example(
        nn.Linear(512, 512), lambda: [torch.randn(64, 512)], "aten.linear.default", "ingot.packed_product.default"
    ),
    "simplify_pooling": Example(
        pooled, lambda: [torch.randn(2, 3, 8, 8)], "max_pool2d_with_indices", "aten.constant_pad_nd.default"
    ),
}
"""By the name of the pass. What measuring decides is decided for it."""
PASSES = [pytest.param(pass_, id=pass_.name) for pass_ in TRACE_PASSES]


@pytest.fixture(autouse=True)
def decided(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Every way that is measured is the quicker one; the CPU poses as a GPU where a pass is for GPUs alone."""
    monkeypatch.setattr(epilogues, "_is_quicker", lambda *_: True)
    monkeypatch.setattr(weight_packing, "_is_quicker", lambda *_: True)
    monkeypatch.setattr(gpu_convolutions, "_is_quicker", lambda *_: True)
    monkeypatch.setattr(product_strategies, "_is_quicker_packed", lambda *_: True)
    monkeypatch.setattr(product_strategies, "_QUICKER_PACKED", {})
    monkeypatch.setattr(padded_products, "quickest", lambda *_: "rows")
    monkeypatch.setattr(aligned_products, "_FEWEST_MULTIPLICATIONS", 1)
    pass_ = request.node.callspec.params.get("pass_") if hasattr(request.node, "callspec") else None
    if pass_ is not None and pass_.name in ("take_in_activations", "align_products", "keep_channels_last"):
        monkeypatch.setattr(Trace, "device", torch.device("cuda", 0))
        monkeypatch.setattr(aligned_products, "_KIND", "cpu")
        monkeypatch.setattr(gpu_convolutions, "_KIND", "cpu")
    with torch.no_grad():
        yield


def recorded(example: Example) -> tuple[Trace, Sequence[torch.Tensor]]:
    arguments = tuple(example.arguments())
    function = example.function.forward if isinstance(example.function, nn.Module) else example.function
    _, made = record(function, arguments, {}, describe(arguments, {}), None, strict=True)
    assert made.trace is not None
    return made.trace, arguments


def up_to(pass_: TracePass, trace: Trace) -> Trace:
    """The trace as a pass is given it."""
    others = [one.name for one in TRACE_PASSES[TRACE_PASSES.index(pass_) :]]
    return rewrite_trace(trace, is_frozen=True, disabled=others)


def test_every_pass_has_an_example() -> None:
    assert set(EXAMPLES) == {pass_.name for pass_ in TRACE_PASSES}


@pytest.mark.parametrize("pass_", PASSES)
def test_a_pass_says_what_it_does_before_and_after(pass_: TracePass) -> None:
    text = sys.modules[type(pass_).__module__].__doc__ or ""
    assert "    before   " in text and "    after    " in text
    assert pass_.summary and pass_.summary[0].islower() and not pass_.summary.endswith(".")


@pytest.mark.parametrize("pass_", PASSES)
def test_a_pass_changes_its_example_and_nothing_twice(pass_: TracePass) -> None:
    example = EXAMPLES[pass_.name]
    trace, _ = recorded(example)
    given = up_to(pass_, trace)
    result = pass_.run(given)
    assert example.before in given.text and example.after in result.trace.text
    assert example.before not in result.trace.text
    assert result.changed > 0
    again = pass_.run(result.trace)
    assert again.changed == 0 and again.trace is result.trace


@pytest.mark.parametrize("pass_", PASSES)
def test_a_pass_can_be_switched_off_and_keeps_results(pass_: TracePass) -> None:
    example = EXAMPLES[pass_.name]
    trace, arguments = recorded(example)
    for disabled in ([], [pass_.name]):
        compiler = JitCompiler({"disabled_passes": disabled})
        program = compile_trace(trace, compiler, is_frozen=pass_.needs_frozen)
        found = program.function(list(arguments), trace.environment_tensors, ())
        expected = example.function(*arguments)
        for one, other in zip(found, expected if isinstance(expected, list | tuple) else [expected], strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)
        rewritten = rewrite_trace(trace, pass_.needs_frozen, disabled).text
        assert (example.before in rewritten) == bool(disabled)


@pytest.mark.parametrize("pass_", PASSES)
def test_a_pass_can_be_seen(
    pass_: TracePass, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    example = EXAMPLES[pass_.name]
    trace, _ = recorded(example)
    monkeypatch.setenv("INGOT_DUMP", pass_.name)
    environment.cache_clear()
    try:
        rewrite_trace(trace, is_frozen=True)
    finally:
        monkeypatch.undo()
        environment.cache_clear()
    printed = capsys.readouterr().err
    assert printed.startswith(f"# after {pass_.name}, which changed ")
    assert example.after in printed


def test_passes_that_need_frozen_weights_run_with_them_alone() -> None:
    frozen = [pass_.name for pass_ in TRACE_PASSES if pass_.needs_frozen]
    assert frozen == ["fold_normalizations", "pack_convolutions", "pack_products"]
    trace, _ = recorded(EXAMPLES["fold_normalizations"])
    assert rewrite_trace(trace, is_frozen=False) is trace
    assert "batch_norm" not in rewrite_trace(trace, is_frozen=True).text


def test_a_pass_of_graphs_can_be_left_out_of_a_function_and_nonsense_cannot() -> None:
    trace, _ = recorded(EXAMPLES["find_linears"])
    assert "aten.linear" in rewrite_trace(trace, disabled=["sink_cat"]).text
    with pytest.raises(ConfigError, match=r"there is no pass nonsense; there are (?=.*sink_cat).*find_linears"):
        rewrite_trace(trace, disabled=["nonsense"])


def test_a_rewriter_without_changes_gives_the_same_trace() -> None:
    trace, _ = recorded(EXAMPLES["find_linears"])
    rewriter = TraceRewriter(trace)
    assert [event for _, event in rewriter.operations()] == trace.events
    assert rewriter.finish().trace is trace
