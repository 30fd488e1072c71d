"""What users see of calls while they run: kernels by name in profiles, statistics, and the summary of a process."""

from __future__ import annotations

import gc
import json
from typing import Any

import pytest
import torch
from torch import nn

import ingot
from ingot.frontend.jit.autotune import eager_comparison
from ingot.loops.program import LONGEST_NAME

jit: Any = ingot.jit


class Layer(nn.Module):
    """A layer of a transformer, norms first."""

    def __init__(self, width: int = 32, heads: int = 2):
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norms[0](x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(q, k, v)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(nn.functional.gelu(self.up(self.norms[1](x))))


def gate(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.sigmoid(x * y) * torch.tanh(x - y)


seen: list[float] = []


def noted(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    hidden = torch.tanh(x * y) + 1
    seen.append(hidden.sum().item())
    return hidden / seen[-1]


LINE = noted.__code__.co_firstlineno + 2


def called(function: Any, *arguments: Any, calls: int = 12, **options: Any) -> Any:
    compiled = jit(function, **options)
    with torch.no_grad():
        for _ in range(calls):
            compiled(*arguments)
    return compiled


def kernels_of(compiled: Any) -> set[str]:
    return {kernel.name for kernel in compiled.stats().kernels}


def profiled(compiled: Any, *arguments: Any) -> Any:
    with torch.no_grad(), torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        result = compiled(*arguments)
    return profile, result


# --- profiles ---------------------------------------------------------------------------------------------------------


def test_table_and_trace_of_a_transformer_layer_name_its_kernels(tmp_path: Any):
    torch.manual_seed(0)
    layer, x = Layer().eval(), torch.randn(2, 8, 32)
    compiled = called(layer, x)
    names = kernels_of(compiled)
    profile, result = profiled(compiled, x)
    with torch.no_grad():
        assert torch.allclose(result, layer(x), atol=1e-5)
    rows = {row.key: row for row in profile.key_averages()}
    assert names and names <= set(rows) and all(rows[name].cpu_time_total > 0 for name in names)
    profile.export_chrome_trace(str(tmp_path / "trace.json"))
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert names <= {event["name"] for event in events if event.get("dur", 0) > 0}


@pytest.mark.parametrize("function", [gate, noted], ids=["skipping", "following"])
def test_calls_that_native_code_answers_have_ranges_under_a_profiler_and_only_there(function: Any):
    x, y = torch.randn(64, 64), torch.randn(64, 64)
    compiled = called(function, x, y, calls=40, python="skip" if function is gate else "run")
    launches = compiled.stats().launches
    profile, _ = profiled(compiled, x, y)
    assert kernels_of(compiled) <= {row.key for row in profile.key_averages()}
    added = compiled.stats().launches - launches
    with torch.no_grad():
        result = compiled(x, y)
    assert compiled.stats().launches - launches == 2 * added > 0
    assert torch.equal(result, profiled(compiled, x, y)[1])


def test_the_older_profiler_sees_the_same_names():
    x, y = torch.randn(64, 64), torch.randn(64, 64)
    compiled = called(gate, x, y)
    profile: Any
    with torch.no_grad(), torch.autograd.profiler.profile() as profile:
        compiled(x, y)
    assert kernels_of(compiled) <= {row.key for row in profile.key_averages()}


def test_calls_under_a_profiler_decide_nothing_about_later_ones(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(eager_comparison, "ROUNDS", 3)
    compiled = jit(gate)
    x, y = torch.randn(8, 8), torch.randn(8, 8)
    with torch.no_grad(), torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]):
        for _ in range(30):
            compiled(x, y)
    (kind,) = compiled._compiled.specialisations.values()
    assert not kind.eager_comparison.is_settled and not kind.eager_comparison.eager
    with torch.no_grad():
        for _ in range(30):
            compiled(x, y)
    assert kind.eager_comparison.is_settled


# --- names ------------------------------------------------------------------------------------------------------------


def test_a_name_says_what_is_computed_and_is_the_symbol():
    (name,) = kernels_of(called(gate, torch.randn(4, 4), torch.randn(4, 4)))
    assert name.rpartition("_")[0] == "mul_sigmoid_sub_tanh_mul"
    compiled = called(lambda a, b: torch.sigmoid(a * b) * torch.tanh(a - b), torch.randn(7, 3), torch.randn(7, 3))
    assert kernels_of(compiled) == {name}
    assert f"{name}:" in compiled.inspect("assembly") and f"@{name}(" in compiled.inspect("llvm")


def test_names_are_bounded():
    def long(x: torch.Tensor) -> torch.Tensor:
        for function in (torch.sin, torch.cos, torch.tanh, torch.exp, torch.sigmoid) * 5:
            x = function(x)
        return x

    (name,) = kernels_of(called(long, torch.randn(4)))
    assert name.startswith("sin_cos_tanh_exp_sigmoid_") and len(name) <= LONGEST_NAME + 9
    (cast,) = kernels_of(called(lambda x: x.to(torch.float64), torch.randn(4)))
    assert cast.startswith("cast_")


# --- statistics -------------------------------------------------------------------------------------------------------


def test_statistics_count_calls_launches_and_bytes():
    x, y = torch.randn(16, 16), torch.randn(16, 16)
    stats = called(gate, x, y, calls=12, python="skip").stats()
    ran = stats.launches  # some of the first calls took turns with eager ones, and audits run Python
    assert (stats.calls, stats.recordings, stats.cache_hits) == (12, 1, 11) and 0 < ran <= 11
    assert stats.bytes_moved == ran * 3 * x.nbytes and stats.seconds > 0
    assert [kernel.launches for kernel in stats.kernels] == [ran] and stats.kernels[0].seconds is None
    assert not stats.is_profiled and "enable_profiling" in str(stats)


def test_profiled_statistics_have_times_of_kernels_and_of_calls_of_pytorchs():
    x = torch.randn(4, 8, 16, 16)
    convolution = nn.Conv2d(8, 8, 3).eval()
    stats = called(lambda x: torch.tanh(convolution(x) * 2) + 1, x, config={"enable_profiling": True}).stats()
    assert stats.is_profiled and sum(kernel.launches for kernel in stats.kernels) == stats.launches
    names = {kernel.name.rpartition("_")[0] for kernel in stats.kernels}
    assert "mul_tanh_add" in names and "aten_convolution" in names
    for kernel in stats.kernels:
        assert kernel.seconds and kernel.bandwidth and kernel.bytes_moved and stats.share(kernel)
        assert kernel.name in str(stats)
    assert stats.machine_bandwidth > 1e8 and "the machine copies" in str(stats)


def test_modules_have_statistics():
    x = torch.randn(2, 8, 32)
    stats = called(Layer().eval(), x).stats()
    assert stats.name.endswith("forward") and stats.launches > 0 and len(stats.kernels) >= 3


# --- the summary ------------------------------------------------------------------------------------------------------


def test_summary_names_tiers_and_the_lines_that_stopped_functions():
    x = torch.randn(64, 64)
    kept = called(gate, x, x, name="kept gate"), called(noted, x, x, calls=40, python="run", name="kept noted")
    generator = jit(lambda x: (yield x), name="kept generator")
    list(generator(x))
    by_name = {function.name: function for function in ingot.summary().functions}
    assert by_name["kept gate"].tier == "skipping" and by_name["kept gate"].kernels == 1
    stops = by_name["kept noted"].stops
    assert by_name["kept noted"].tier in ("following", "eager")
    assert any("Tensor.item" in stop.reason and stop.place == f"{__file__}:{LINE}" for stop in stops)
    assert by_name["kept generator"].tier == "eager"
    text = str(ingot.summary())
    assert all(name in text for name in by_name) and "test_seeing.py:" in text
    del kept


def test_summary_keeps_no_function_alive():
    compiled = called(gate, torch.randn(4), torch.randn(4), name="soon gone")
    found = ingot.summary()
    assert "soon gone" in str(found)
    del compiled
    gc.collect()
    assert "soon gone" not in str(ingot.summary()) and "soon gone" in str(found)
