"""Calls that PyTorch makes on GPUs alone, or answers differently there: what it returns is told by references here,
and by itself where there is a GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from ingot import JitCompiler
from ingot.base.types import TensorType
from ingot.frontend.jit.trace import ssa
from ingot.ir.torch_types import from_torch

from . import calls

COMPILER = JitCompiler()
HALVES = (torch.bfloat16, torch.float16)
DTYPES = (*HALVES, torch.float32, torch.float64)
Answer = tuple[torch.Tensor, ...]
_aten: Any = torch.ops.aten


def wider(dtype: torch.dtype) -> torch.dtype:
    return torch.float32 if dtype in HALVES else dtype


def in_wider(x: torch.Tensor | None) -> Any:
    return None if x is None else x.to(wider(x.dtype))


def draw(*shape: int, dtype: torch.dtype) -> torch.Tensor:
    generator = torch.Generator().manual_seed(len(shape))
    return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)


# --- what PyTorch returns there ---------------------------------------------------------------------------------------


def layer_norm(x: torch.Tensor, shape: list[int], weight: Any, bias: Any, eps: float) -> Answer:
    wide, axes = in_wider(x), tuple(range(-len(shape), 0))
    variance, mean = torch.var_mean(wide, axes, correction=0, keepdim=True)
    result = torch.nn.functional.layer_norm(wide, shape, in_wider(weight), in_wider(bias), eps)
    return result.to(x.dtype), mean, torch.rsqrt(variance + eps)


def batch_norm(
    x: torch.Tensor, weight: Any, bias: Any, mean: Any, var: Any, training: bool, momentum: float, eps: float
) -> Answer:
    wide, mean, var, weight, bias = map(in_wider, (x, mean, var, weight, bias))
    result = torch.nn.functional.batch_norm(wide, mean, var, weight, bias, False, momentum, eps)
    return result.to(x.dtype), mean, torch.rsqrt(var + eps)


def cudnn_batch_norm(x: torch.Tensor, weight: torch.Tensor, *rest: Any) -> Answer:
    result, _, _ = batch_norm(x, weight, *rest)
    nothing = torch.empty(0, dtype=weight.dtype)
    return result, nothing, nothing, torch.empty(0, dtype=torch.uint8)


def softmax(x: torch.Tensor, dim: int, half_to_float: bool) -> Answer:
    return (torch.softmax(x.float(), dim),)


def log_softmax(x: torch.Tensor, dim: int, half_to_float: bool) -> Answer:
    return (torch.log_softmax(x.float(), dim),)


def lstm_cell(given: Any, hidden: Any, cell: Any, given_bias: Any, hidden_bias: Any) -> Answer:
    gates = in_wider(given) + in_wider(hidden)
    if given_bias is not None:
        gates = gates + in_wider(given_bias) + in_wider(hidden_bias)
    taken, kept, proposed, output = gates.chunk(4, 1)
    taken, kept, proposed, output = taken.sigmoid(), kept.sigmoid(), proposed.tanh(), output.sigmoid()
    new_cell = kept * in_wider(cell) + taken * proposed
    workspace = torch.cat([taken, kept, proposed, output], 1)
    return tuple(each.to(cell.dtype) for each in (output * new_cell.tanh(), new_cell, workspace))


def gru_cell(given: Any, hidden: Any, state: Any, given_bias: Any, hidden_bias: Any) -> Answer:
    first, second = in_wider(given), in_wider(hidden)
    if given_bias is not None:
        first, second = first + in_wider(given_bias), second + in_wider(hidden_bias)
    first, second = first.chunk(3, 1), second.chunk(3, 1)
    reset, kept = (first[0] + second[0]).sigmoid(), (first[1] + second[1]).sigmoid()
    proposed, old = (first[2] + reset * second[2]).tanh(), in_wider(state)
    workspace = torch.cat([reset, kept, proposed, old, second[2]], 1)
    return tuple(each.to(state.dtype) for each in ((1 - kept) * proposed + kept * old, workspace))


CALLS_OF_GPUS: dict[str, tuple[Any, Callable[..., Answer]]] = {
    "native_layer_norm.default": (_aten.native_layer_norm.default, layer_norm),
    "native_batch_norm.default": (_aten.native_batch_norm.default, batch_norm),
    "cudnn_batch_norm.default": (_aten.cudnn_batch_norm.default, cudnn_batch_norm),
    "_softmax.default": (_aten._softmax.default, softmax),
    "_log_softmax.default": (_aten._log_softmax.default, log_softmax),
    "_thnn_fused_lstm_cell.default": (_aten._thnn_fused_lstm_cell.default, lstm_cell),
    "_thnn_fused_gru_cell.default": (_aten._thnn_fused_gru_cell.default, gru_cell),
}


# --- arguments --------------------------------------------------------------------------------------------------------


def samples(name: str) -> list[tuple[Any, ...]]:
    found: list[tuple[Any, ...]] = []
    for dtype in [torch.float16] if "softmax" in name else DTYPES:  # the one that PyTorch widens on the way
        if "softmax" in name:
            found += [(draw(3, 7, dtype=dtype), dim, True) for dim in (0, -1)]
        elif name.startswith("native_layer_norm"):
            weight, bias = draw(4, 5, dtype=dtype), draw(4, 5, dtype=dtype).flip(0)
            found += [(draw(3, 4, 5, dtype=dtype), [4, 5], *given, 1e-5) for given in ((weight, bias), (None, None))]
        elif "batch_norm" in name:
            found += batch_norm_samples(name, dtype)
        else:
            gates = 4 if "lstm" in name else 3
            given, hidden = draw(3, gates * 5, dtype=dtype), draw(3, gates * 5, dtype=dtype).flip(0)
            biases = draw(gates * 5, dtype=dtype), draw(gates * 5, dtype=dtype).flip(0)
            found += [(given, hidden, draw(3, 5, dtype=dtype), *given_too) for given_too in (biases, (None, None))]
    return found


def batch_norm_samples(name: str, dtype: torch.dtype) -> list[tuple[Any, ...]]:
    """cuDNN takes parameters in the wider type alone, and PyTorch gives it no bfloat16."""
    found = []
    if name.startswith("cudnn"):
        types = [] if dtype is torch.bfloat16 else [wider(dtype)]
    else:
        types = list({dtype, wider(dtype)})
    for parameters in types:
        weight, bias, mean = (draw(4, dtype=parameters).roll(turn) for turn in range(3))
        x, var = draw(2, 4, 3, 5, dtype=dtype), draw(4, dtype=parameters).abs() + 0.5
        found.append((x, weight, bias, mean, var, False, 0.1, 1e-5))
    return found


@pytest.mark.parametrize("name", CALLS_OF_GPUS)
def test_calls_of_gpus_mean_what_pytorch_returns_there(name: str):
    overload, reference = CALLS_OF_GPUS[name]
    for arguments in samples(name):
        call = calls.Call(overload, arguments, {}, reference(*arguments))
        assert calls.check(call, COMPILER, "cuda"), f"{calls.describe(call)} is left to PyTorch"


@pytest.mark.parametrize("name", CALLS_OF_GPUS)
def test_recorded_calls_of_gpus_become_kernels(name: str):
    overload, reference = CALLS_OF_GPUS[name]
    for arguments in samples(name):
        given, expected = (tuple(map(_typed, values)) for values in (arguments, reference(*arguments)))
        assert ssa._generated(overload, "cuda", given, {}, list(expected)) is not None


def _typed(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    dtype = from_torch(value.dtype)
    assert dtype is not None
    return TensorType(dtype, tuple(value.shape))


@pytest.mark.cuda
@pytest.mark.parametrize("name", [*CALLS_OF_GPUS, "_fused_rms_norm.default"])
def test_references_are_what_pytorch_returns(name: str):
    """On a GPU PyTorch itself is the reference, also for the shapes and types of statistics that are not used."""
    if name.startswith("_fused_rms_norm"):
        overload = _aten._fused_rms_norm.default
        drawn = [(draw(3, 8, dtype=dtype), draw(8, dtype=dtype), eps) for dtype in DTYPES for eps in (None, 1e-4)]
        given = [(x, [8], weight, eps) for x, weight, eps in drawn]
    else:
        overload, given = CALLS_OF_GPUS[name][0], samples(name)
    for arguments in given:
        moved = [value.cuda() if isinstance(value, torch.Tensor) else value for value in arguments]
        call = calls.one_call(overload, *moved)
        graph, inputs = calls.graph_of(call, "cuda")
        found = COMPILER.compile(graph).execute(inputs)
        assert [(x.shape, x.dtype) for x in found] == [(x.shape, x.dtype) for x in call.results], calls.describe(call)
        torch.testing.assert_close(
            found[0], call.results[0], msg=lambda text, call=call: f"{calls.describe(call)} {text}"
        )
