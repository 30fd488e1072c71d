"""What calls keep for their backward pass: the fewest bytes; no product and no random number is computed twice."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

import ingot
from ingot.frontend.jit.gradients.saved_values import Split
from tests.frontend.jit.gradients.comparing_gradients import calls_of, leaf


def split_of(function: Any, *args: Any) -> Split:
    compiled: Any = ingot.jit(function)
    for _ in range(3):
        result = compiled(*[one() if callable(one) else one for one in args])
        result.sum().backward()
    (calls,) = calls_of(compiled)
    assert calls.refused is None and calls.programs is not None
    assert compiled.stats().saved_bytes == calls.programs.split.bytes_kept
    return calls.programs.split


def names(events: Any) -> set[str]:
    return {event.target.overloadpacket.__name__ for event in events}


def test_a_chain_of_pointwise_operations_keeps_its_input_alone():
    found = split_of(lambda x: torch.sigmoid(torch.tanh(torch.exp(x * 2)) + 1), lambda: leaf(32, 64) * 1)
    assert found.bytes_kept == 32 * 64 * 4  # eager's backward pass does not read the argument, so that is not kept
    assert found.bytes_eager == 3 * 32 * 64 * 4
    assert {"sigmoid", "tanh"} & names(found.recomputed)


def test_an_argument_that_eager_reads_is_kept_at_no_cost():
    found = split_of(lambda x: torch.exp(torch.sin(x)), leaf(32, 64))
    assert found.bytes_kept == 0 and not found.made
    assert names(found.recomputed) == {"sin", "exp"} or names(found.recomputed) == {"sin", "exp", "detach"}


def test_the_smaller_side_of_a_reduction_is_kept():
    found = split_of(lambda x, y: (torch.exp(x).sum(-1) * y).tanh(), lambda: leaf(16, 1000) * 1, leaf(16))
    assert found.bytes_kept <= 16 * 1000 * 4 + 16 * 4


def test_products_and_random_numbers_are_not_computed_again():
    model = nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Dropout(0.5), nn.Linear(64, 16))
    found = split_of(model.forward, leaf(8, 16))
    assert not names(found.recomputed) & {"mm", "addmm", "linear", "bernoulli_", "bernoulli", "native_dropout"}
    assert "gelu" in names(found.recomputed)


def test_a_transformer_block_keeps_less_than_two_thirds_of_what_eager_keeps():
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.LayerNorm(64), nn.LayerNorm(64)
            self.attention, self.out = nn.Linear(64, 192), nn.Linear(64, 64)
            self.up, self.down = nn.Linear(64, 256), nn.Linear(256, 64)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            parts = self.attention(self.first(x)).view(2, 32, 3, 4, 16).permute(2, 0, 3, 1, 4)
            heads = F.scaled_dot_product_attention(parts[0], parts[1], parts[2], is_causal=True)
            x = x + self.out(heads.transpose(1, 2).reshape(2, 32, 64))
            return x + self.down(F.gelu(self.up(self.second(x))))

    found = split_of(Block().forward, leaf(2, 32, 64))
    assert found.bytes_kept <= 0.65 * found.bytes_eager


def test_traces_of_both_passes_can_be_read():
    compiled: Any = ingot.jit(lambda x: torch.tanh(x).exp())
    for _ in range(3):
        compiled(leaf(4)).sum().backward()
    texts = compiled.inspect("trace").split("\n\n")
    assert len(texts) == 2 and "tanh.default" in texts[0] and "tanh_backward" in texts[1]
    assert compiled.inspect("program").count("def program") == 2
    assert compiled.inspect("kernels")
