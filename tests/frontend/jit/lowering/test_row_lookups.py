"""Rows looked up by indices: what PyTorch's `index` gives, its errors too, by way of whole rows where that works."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from ingot.frontend.jit.lowering.row_lookups import looked_up
from tests.frontend.jit.comparing import check

ROWS = torch.arange(7 * 3 * 2.0).view(7, 3, 2)
INDICES: dict[str, torch.Tensor] = {
    "in order": torch.tensor([0, 3, 3, 6]),
    "negative": torch.tensor([-1, 2, -7]),
    "of several axes": torch.tensor([[1, 2], [5, 0], [6, 6]]),
    "int32": torch.tensor([4, 0], dtype=torch.int32),
    "strided": torch.arange(12).view(4, 3)[:, 1] % 7,
    "none": torch.empty(0, 2, dtype=torch.int64),
    "one": torch.tensor(5),
    "truths": torch.tensor([True, False, True, False, False, True, True]),
}


@pytest.mark.parametrize("name", INDICES)
@pytest.mark.parametrize(
    "x", [ROWS, ROWS.mT, ROWS[:, 0, 0].clone(), ROWS.bool()], ids=["rows", "strided", "1d", "bools"]
)
def test_rows_are_those_of_pytorch(x: torch.Tensor, name: str):
    index = INDICES[name]
    wanted = x[index]
    assert torch.equal(looked_up(x, [index]), wanted)
    memory = torch.full(wanted.shape, 99).to(x.dtype)
    assert looked_up(x, [index], out=memory) is memory and torch.equal(memory, wanted)


@pytest.mark.parametrize("index", [torch.tensor([0, 7]), torch.tensor([[-8]]), torch.tensor([1 << 40])], ids=str)
def test_indices_beyond_the_end_raise_what_pytorch_raises(index: torch.Tensor):
    with pytest.raises(IndexError) as wanted:
        ROWS[index]
    for given in ({}, {"out": torch.empty(*index.shape, 3, 2)}):
        with pytest.raises(IndexError) as found:
            looked_up(ROWS, [index], **given)
        assert str(found.value) == str(wanted.value)


def test_compiled_functions_look_rows_up():
    def picked(x: Any, index: Any, weight: Any) -> Any:
        return x[index * 3 % 50] * weight[:, None] + x[index - 50]

    def make() -> list[torch.Tensor]:
        return [torch.randn(50, 40), torch.randint(0, 50, (600,)), torch.randn(600)]

    compiled = check(picked, make)
    assert "out=" in compiled.inspect("program")
    assert compiled.tier == "skipping"
    kept = compiled(*make())
    before = kept.clone()
    compiled(*make())
    assert torch.equal(kept, before)
