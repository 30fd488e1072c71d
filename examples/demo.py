"""What `make demo` shows: a fusion defined, printed, optimised, executed, validated and timed."""

import time
from collections.abc import Callable

import torch
from rich.console import Console
from rich.table import Table

from ingot import FusionDefinition, FusionManager, JitCompiler
from ingot.cli.main import report_table
from ingot.passes.pipeline import optimize

console = Console(highlight=False)


def define() -> FusionDefinition:
    """Normalise images that come as (batch, height, width, channel), and give the result in the same order.

    Written the way such code often looks: to channels-first and back, a division, a power, a value nobody uses.
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


def main() -> None:
    fusion = define()
    console.rule("the definition")
    console.print(repr(fusion), markup=False)
    console.rule("its graph")
    console.print(fusion.fusion_ir(), markup=False)
    console.rule("after optimisation")
    console.print(fusion.fusion_ir(optimized=True), markup=False)
    console.print(report_table(fusion.graph, optimize(fusion.graph)))

    image = torch.rand(4, 512, 512, 3) * 255
    fusion.validate([image])
    console.print("results agree with PyTorch's\n")

    console.rule("what runs")
    console.print(fusion.module.explain(), markup=False)
    optimised = JitCompiler({"graph_opt_level": 2}).compile(fusion.graph)
    timings = {
        "PyTorch, eager": milliseconds(lambda: eager(image)),
        "ingot, optimised graph through PyTorch": milliseconds(lambda: optimised.execute([image])),
        "ingot, generated kernels": milliseconds(lambda: fusion.execute([image])),
    }
    listing = Table("", "ms a call", "speedup", title="4 images of 512 x 512, CPU")
    for name, spent in timings.items():
        listing.add_row(name, f"{spent:.1f}", f"{timings['PyTorch, eager'] / spent:.1f}x")
    console.print(listing)

    manager = FusionManager.get()
    manager.reset()
    first = milliseconds(lambda: define().module, repeats=1)
    again = milliseconds(lambda: define().module)
    console.print(
        f"defining and compiling it takes {first:.2f} ms the first time and {again:.2f} ms again "
        f"({len(manager)} compiled fusion kept)"
    )


if __name__ == "__main__":
    main()
