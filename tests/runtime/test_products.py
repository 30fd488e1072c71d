"""Products by generated code: every size of the ends, both orders of weights, any stride, any number of threads."""

from __future__ import annotations

import itertools
import re

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ingot.codegen.cpu.products import ProductTile, products_module
from ingot.codegen.llvm.host import Host, assembly_of
from ingot.runtime import products
from tests.codegen.hosts import AARCH64, HASWELL, NATIVE, SKYLAKE

ROWS = (1, 2, 5, 6, 7, 12, 47, 48, 49, 100)
COLUMNS = (1, 7, 8, 15, 16, 17, 33, 128, 129)
INNER = (0, 1, 3, 8, 64, 511, 512, 513, 1030)


def expected(x: torch.Tensor, matrix: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    exact = x.double() @ matrix.double()
    return (exact if bias is None else exact + bias).float()


def check(x: torch.Tensor, matrix: torch.Tensor, bias: torch.Tensor | None) -> None:
    """Both ways give the product, to the last bit the same, and write nowhere else."""
    columns, wanted = matrix.shape[1], expected(x, matrix, bias)
    around = torch.full((x.shape[0] + 2, columns + 3), 7.0)
    inside = around[1:-1, 2:-1]
    products.multiply(x, matrix, bias, inside)
    scale = 1 + (x.abs().double() @ matrix.abs().double()).max().item() if x.numel() else 1
    torch.testing.assert_close(inside, wanted, rtol=0, atol=2e-6 * scale)
    packed = torch.full((x.shape[0], columns), 7.0)
    products.multiply_packed(x, products.pack(matrix), columns, bias, packed)
    assert torch.equal(packed, inside)
    inside.fill_(7.0)
    assert torch.equal(around, torch.full_like(around, 7.0))


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("columns", COLUMNS)
def test_ends_of_all_sizes(rows: int, columns: int):
    for inner, is_transposed, has_bias in itertools.product(INNER, (True, False), (True, False)):
        matrix = torch.randn(columns, inner).t() if is_transposed else torch.randn(inner, columns)
        check(torch.randn(rows, inner), matrix, torch.randn(columns) if has_bias else None)


@settings(deadline=None)
@given(st.data())
def test_strides_and_offsets(data: st.DataObject):
    number = lambda most: data.draw(st.integers(1, most))
    rows, inner, columns, gap = number(60), number(80), number(60), number(5)
    x = torch.randn(rows, inner + gap)[:, gap:]
    wide = torch.randn(columns, inner + gap)[:, :inner].t() if data.draw(st.booleans()) else None
    matrix = torch.randn(inner, columns + gap)[:, gap:] if wide is None else wide
    check(x, matrix, torch.randn(columns + gap)[gap:])


def test_tensors_of_many_axes():
    x, matrix, bias = torch.randn(2, 3, 5, 20), torch.randn(20, 30), torch.randn(30)
    alone = torch.randn(1, 7, 20).transpose(0, 1)  # dense, with any stride along the axis of one element
    assert alone.is_contiguous() and alone.stride(1) == 140
    for view in (x, x.transpose(0, 2), x[:, :, ::2], x[0, 0, 0], alone, alone[:, :, None].transpose(1, 2)):
        out = torch.empty(*view.shape[:-1], 30)
        products.multiply(view, matrix, bias, out)
        torch.testing.assert_close(out, view @ matrix + bias, rtol=1e-5, atol=1e-5)


def test_what_is_not_a_number_stays_in_its_row_and_column():
    x, matrix = torch.randn(13, 40), torch.randn(40, 21)
    x[4, 7], x[6, 3], matrix[2, 9] = float("nan"), float("inf"), float("-inf")
    out = torch.empty(13, 21)
    products.multiply(x, matrix, None, out)
    wanted = x @ matrix
    assert torch.equal(out.isnan(), wanted.isnan()) and torch.equal(out.isinf(), wanted.isinf())
    assert torch.equal(out[wanted.isinf()], wanted[wanted.isinf()])


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_the_number_of_threads_does_not_matter(threads: int):
    x, matrix, bias = torch.randn(301, 700), torch.randn(700, 300), torch.randn(300)
    outs = [torch.empty(301, 300) for _ in range(2)]
    before = torch.get_num_threads()
    for out, count in zip(outs, (before, threads), strict=True):
        torch.set_num_threads(count)
        try:
            products.multiply(x, matrix, bias, out)
        finally:
            torch.set_num_threads(before)
    assert torch.equal(*outs)


def test_what_can_be_packed():
    assert products.can_pack((5, 6), (6, 1)) and products.can_pack((5, 6), (1, 5)) and products.can_pack((5, 6), (9, 1))
    assert not products.can_pack((5, 6), (12, 2)) and not products.can_pack((5, 6), (0, 1))
    assert not products.can_pack((5, 6), (1, 0))


@pytest.mark.parametrize("host", [NATIVE, HASWELL, SKYLAKE, AARCH64], ids=lambda host: host.name)
def test_sums_stay_in_registers(host: Host):
    tile, text = ProductTile.of(host), assembly_of(str(products_module(host)), host)
    blocks = re.split(r"^\.?\w+:", text, flags=re.MULTILINE)
    counts = [len(re.findall(r"fmadd|fmla", block)) for block in blocks]
    innermost = blocks[counts.index(max(counts))]
    assert max(counts) == 2 * tile.rows
    on_stack = [line for line in innermost.splitlines() if re.search(r"%rsp|\[sp", line)]
    assert not [line for line in on_stack if re.search(r"[xyz]mm\d|\b[qv]\d", line)]
