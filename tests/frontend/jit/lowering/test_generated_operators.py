"""Products and attention of PyTorch's own database of operators, by generated code wherever it is possible at all."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import pytest
import torch

from ingot.frontend.jit.autotune import eager_comparison
from ingot.frontend.jit.cache import audits
from ingot.frontend.jit.rewrites import attention_strategy, product_strategies
from tests.opinfo.database import operators
from tests.opinfo.trials import try_operator

PRODUCTS = ("addmm", "addmm.decomposed", "mm", "matmul", "nn.functional.linear", "nn.functional.bilinear", "addmv")
ATTENTION = ("nn.functional.scaled_dot_product_attention", "nn.functional.multi_head_attention_forward")

WELL_CONDITIONED = {"nn.functional.multi_head_attention_forward": 120}
"""How many samples can be compared, where not all: in some later ones rows of scores have two that are nearly largest,
and changing inputs by half of their last bit changes results three times as much as products in another order do."""


@pytest.fixture
def used(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Generated code is taken, whatever the sizes are; which of it was."""
    found: list[str] = []
    monkeypatch.setattr(product_strategies, "_quickest", lambda *_: "panels")
    monkeypatch.setattr(attention_strategy, "_is_preferred", lambda *_: True)
    monkeypatch.setattr(eager_comparison, "ROUNDS", eager_comparison.ROUNDS)  # trials change it
    monkeypatch.setattr(audits, "FIRST", audits.FIRST)
    for module, name in ((product_strategies, "multiply"), (attention_strategy, "attend")):
        original = getattr(module, name)

        def counted(*args, original=original, name=name):
            found.append(name)
            return original(*args)

        monkeypatch.setattr(module, name, counted)
    yield found


@pytest.mark.parametrize("name", [*PRODUCTS, *ATTENTION])
def test_operators_give_what_eager_gives(name: str, used: list[str]):
    if name not in operators():
        pytest.skip("this version of PyTorch does not have it in its database")
    verdicts = islice(try_operator(operators()[name], torch.float32, None), WELL_CONDITIONED.get(name))
    assert not [verdict.problem for verdict in verdicts if verdict.problem]
    if name in ("mm", "matmul", "nn.functional.linear"):  # those of addmm have factors, and biases of other shapes
        assert "multiply" in used
