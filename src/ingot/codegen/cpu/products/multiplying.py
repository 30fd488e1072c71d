"""Rows times weights, plus a bias, by all threads: what to pack, and which thread multiplies what.

Threads take tasks of some rows and panels as they become free, so that no thread waits for a slower one. Tasks that
follow each other have the same panels, which then are in a cache.
"""

from __future__ import annotations

from enum import IntEnum

from ingot.codegen.cpu.frame import minimum
from ingot.codegen.cpu.products.packing import PackingArguments
from ingot.codegen.cpu.products.parallel_functions import ParallelFunction, ProductTile, each_task, in_wholes
from ingot.codegen.cpu.products.product_tiles import Operands
from ingot.codegen.llvm import ir
from ingot.codegen.llvm.host import HostModule
from ingot.codegen.llvm.storage import WORD

TASK_ROWS = 48
TASK_PANELS = 8


class ProductWord(IntEnum):
    """The array of words that the functions take; strides are in bytes."""

    ROWS_ADDRESS = 0
    ROWS_STRIDE = 1
    PANELS_ADDRESS = 2
    BIAS_ADDRESS = 3
    """0 where there is none."""
    RESULTS_ADDRESS = 4
    RESULTS_STRIDE = 5
    WEIGHTS_ADDRESS = 6
    WEIGHTS_STRIDE = 7
    ROWS = 8
    COLUMNS = 9
    INNER = 10
    THREADS = 11
    NEXT_TASK = 12
    """0 at the start."""


def emit_pack(module: HostModule, tile: ProductTile, name: str, packing: ir.Function) -> None:
    """Weights into panels, which threads share."""
    region = ParallelFunction(module, tile, name)
    _, first, last = region.function.arguments
    source = PackingArguments(
        matrix=region.pointer(ProductWord.WEIGHTS_ADDRESS),
        stride=region.word(ProductWord.WEIGHTS_STRIDE),
        panels=region.pointer(ProductWord.PANELS_ADDRESS),
        columns=region.word(ProductWord.COLUMNS),
        inner=region.word(ProductWord.INNER),
        panel=first,
        last_panel=last,
    )
    region.builder.call(packing, source.values)
    region.finish(ProductWord.THREADS, ProductWord.COLUMNS, tile.columns)


def emit_multiply(module: HostModule, tile: ProductTile, name: str, tiles: ir.Function) -> None:
    """Rows times panels; each thread takes tasks until none is left."""
    region = ParallelFunction(module, tile, name)
    builder = region.builder
    rows, columns, inner = map(region.word, (ProductWord.ROWS, ProductWord.COLUMNS, ProductWord.INNER))
    panels = in_wholes(builder, columns, tile.columns)
    row_tasks = in_wholes(builder, rows, TASK_ROWS)
    tasks = builder.mul(row_tasks, in_wholes(builder, panels, TASK_PANELS))
    with each_task(region, ProductWord.NEXT_TASK, tasks) as task:
        row, last_row = _bounds(region, builder.urem(task, row_tasks), TASK_ROWS, rows)
        panel, last_panel = _bounds(region, builder.udiv(task, row_tasks), TASK_PANELS, panels)
        operands = Operands(
            given=region.pointer(ProductWord.ROWS_ADDRESS),
            given_stride=region.word(ProductWord.ROWS_STRIDE),
            panels=region.pointer(ProductWord.PANELS_ADDRESS),
            panel_steps=inner,
            bias=region.word(ProductWord.BIAS_ADDRESS),
            results=region.pointer(ProductWord.RESULTS_ADDRESS),
            results_stride=region.word(ProductWord.RESULTS_STRIDE),
            columns=columns,
            inner=inner,
            row=row,
            last_row=last_row,
            panel=panel,
            last_panel=last_panel,
        )
        builder.call(tiles, operands.values)
    region.finish(ProductWord.THREADS)


def _bounds(region: ParallelFunction, task: ir.Value, extent: int, end: ir.Value) -> tuple[ir.Value, ir.Value]:
    first = region.builder.mul(task, WORD(extent))
    return first, minimum(region.builder, region.builder.add(first, WORD(extent)), end)
