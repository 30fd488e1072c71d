"""`ingot demo`: plain PyTorch compiled by calling it, on a GPU as well where there is one; a fusion defined, optimised,
validated and timed."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable

import click
import torch
from rich.table import Table

import ingot
from ingot import FusionDefinition, FusionManager, JitCompiler
from ingot.cli.graphs import report_table
from ingot.cli.terminal import console
from ingot.passes.graph_passes import optimize


@ingot.jit
def gate(x: torch.Tensor, y: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return torch.sigmoid(x * y + bias) * torch.tanh(x - y)


class Perceptron(torch.nn.Module):
    """Two layers with a norm and an activation between them."""

    def __init__(self, width: int):
        super().__init__()
        self.first, self.second = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)
        self.norm = torch.nn.LayerNorm(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.second(torch.nn.functional.gelu(self.first(self.norm(x))))


def define() -> FusionDefinition:
    """Normalise images that come as (batch, height, width, channel), and give the result in the same order.

    Written the way such code often looks: to channels-first and back, a division, a power, a value that is not used.
    """
    with FusionDefinition() as fd:
        image = fd.define_tensor(shape=[-1, -1, -1, 3])
        channels_first = fd.ops.permute(image, [0, 3, 1, 2])
        scaled = channels_first / 256.0
        contrast = fd.ops.pow(scaled - 0.5, 2.0) * 1.0
        fd.ops.exp(scaled)
        bright = fd.ops.where(fd.ops.logical_not(scaled > 0.5), -scaled, scaled) + -contrast
        fd.add_output(fd.ops.permute(bright, [0, 2, 3, 1]))
    return fd


def eager(image: torch.Tensor) -> torch.Tensor:
    scaled = image.permute(0, 3, 1, 2) / 256.0
    contrast = (scaled - 0.5) ** 2.0 * 1.0
    torch.exp(scaled)
    bright = torch.where(~(scaled > 0.5), -scaled, scaled) + -contrast
    return bright.permute(0, 2, 3, 1).contiguous()


def milliseconds(function: Callable[[], object], repeats: int = 15) -> float:
    """Median time of a call."""
    spent = []
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        spent.append(time.perf_counter() - start)
    return sorted(spent)[repeats // 2] * 1e3


def show_jit() -> None:
    """A function and a model, compiled by calling them."""
    plain = inspect.unwrap(gate)
    model = Perceptron(256).eval()
    fast = ingot.jit(model)
    large, small = (tuple(torch.randn(shape) for _ in range(3)) for shape in ((2048, 2048), (32, 64)))
    batch = torch.randn(512, 256)
    rows: list[tuple[str, Callable[[], object], Callable[[], object]]] = [
        ("gate, 2048 x 2048", lambda: plain(*large), lambda: gate(*large)),
        ("gate, 32 x 64", lambda: plain(*small), lambda: gate(*small)),
        ("a block of an MLP, 512 x 256", lambda: model(batch), lambda: fast(batch)),
    ]
    listing = Table("", "eager ms", "ingot.jit ms", "speedup", title="plain PyTorch through ingot.jit")
    with torch.no_grad():
        for name, eagerly, compiled in rows:
            for _ in range(16):  # recorded, compiled, tried against eager
                torch.testing.assert_close(compiled(), eagerly(), rtol=1e-4, atol=1e-4)
            one, other = milliseconds(eagerly, 31), milliseconds(compiled, 31)
            listing.add_row(name, f"{one:.4f}", f"{other:.4f}", f"{one / other:.1f}x")
    console().rule("plain PyTorch, compiled by calling it")
    console().print(gate.explain(), markup=False)  # type: ignore[attr-defined]
    console().print(listing)


def device_milliseconds(function: Callable[[], object], repeats: int = 15) -> float:
    """Median time of a call on the GPU, by events in its stream."""
    spent = []
    for _ in range(repeats):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        function()
        end.record()
        end.synchronize()
        spent.append(start.elapsed_time(end))
    return sorted(spent)[repeats // 2]


def show_gpu() -> None:
    """The same function for tensors on a GPU, and what its kernel reads and writes."""
    console().rule("on an NVIDIA GPU")
    if not torch.cuda.is_available():
        console().print("torch finds none here; where it does, the same function becomes PTX: docs/cuda.md\n")
        return
    plain = inspect.unwrap(gate)
    tensors = tuple(torch.randn(8192, 8192, device="cuda") for _ in range(3))
    for _ in range(16):  # recorded, compiled, tried against eager
        torch.testing.assert_close(gate(*tensors), plain(*tensors), rtol=1e-4, atol=1e-4)
    one, other = device_milliseconds(lambda: plain(*tensors)), device_milliseconds(lambda: gate(*tensors))
    listing = Table("", "eager ms", "ingot.jit ms", "speedup", title=torch.cuda.get_device_name())
    listing.add_row("gate, 8192 x 8192", f"{one:.3f}", f"{other:.3f}", f"{one / other:.1f}x")
    console().print(listing)
    ptx = gate.inspect("ptx")  # type: ignore[attr-defined]
    head, body = ptx[ptx.index(".visible") :].split("{", 1)
    accesses = [line for line in body.partition("\n}")[0].splitlines() if ".global" in line]
    console().print(head + "{", "    ...", *accesses, "    ...", "}", sep="\n", markup=False)


@click.command()
def demo() -> None:
    """Compile plain PyTorch and a fusion, show every stage, validate and time them."""
    show_jit()
    show_gpu()
    fusion = define()
    console().rule("the definition")
    console().print(repr(fusion), markup=False)
    console().rule("its graph")
    console().print(fusion.fusion_ir(), markup=False)
    console().rule("after optimisation")
    console().print(fusion.fusion_ir(optimized=True), markup=False)
    console().print(report_table(fusion.graph, optimize(fusion.graph)))

    image = torch.rand(4, 512, 512, 3) * 255
    fusion.validate([image])
    console().print("results agree with PyTorch's\n")

    console().rule("what runs")
    console().print(fusion.module.explain(), markup=False)
    optimised = JitCompiler({"graph_opt_level": 2}).compile(fusion.graph)
    timings = {
        "PyTorch, eager": milliseconds(lambda: eager(image)),
        "ingot, optimised graph through PyTorch": milliseconds(lambda: optimised.execute([image])),
        "ingot, generated kernels": milliseconds(lambda: fusion.execute([image])),
    }
    listing = Table("", "ms a call", "speedup", title="4 images of 512 x 512, CPU")
    for name, spent in timings.items():
        listing.add_row(name, f"{spent:.1f}", f"{timings['PyTorch, eager'] / spent:.1f}x")
    console().print(listing)

    manager = FusionManager.get()
    manager.reset()
    first = milliseconds(lambda: define().module, repeats=1)
    again = milliseconds(lambda: define().module)
    console().print(
        f"defining and compiling it takes {first:.2f} ms the first time and {again:.2f} ms again "
        f"({len(manager)} compiled fusion kept)"
    )
