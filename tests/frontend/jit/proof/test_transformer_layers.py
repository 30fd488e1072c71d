"""PyTorch's own modules of transformers: what they give is eager's from the first call on, and Python is skipped."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import ingot

WIDTH = 16
PADDED = torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
CAUSAL = torch.triu(torch.full((5, 5), float("-inf")), 1)


def encoder_layer(**options: Any) -> nn.TransformerEncoderLayer:
    return nn.TransformerEncoderLayer(WIDTH, 4, 32, dropout=0.1, batch_first=True, **options)


def decoder_layer() -> nn.TransformerDecoderLayer:
    return nn.TransformerDecoderLayer(WIDTH, 4, 32, dropout=0.1, batch_first=True)


def draw(*sizes: int) -> torch.Tensor:
    return torch.randn(*sizes, WIDTH)


def thrice(x: torch.Tensor) -> list[torch.Tensor]:
    return [x, x, x]


Given = Callable[[], list[Any]]
CASES: dict[str, tuple[Callable[[], nn.Module], Given]] = {
    "encoder layer": (encoder_layer, lambda: [draw(2, 5)]),
    "encoder layer, norm first": (lambda: encoder_layer(norm_first=True), lambda: [draw(2, 5)]),
    "encoder layer, causal": (encoder_layer, lambda: [draw(2, 5), CAUSAL]),
    "encoder layer, padded": (encoder_layer, lambda: [draw(2, 5), None, PADDED]),
    "encoder": (lambda: nn.TransformerEncoder(encoder_layer(), 2), lambda: [draw(2, 5)]),
    "encoder, padded": (lambda: nn.TransformerEncoder(encoder_layer(), 2), lambda: [draw(2, 5), None, PADDED]),
    "decoder layer": (decoder_layer, lambda: [draw(2, 5), draw(2, 7), CAUSAL]),
    "decoder": (lambda: nn.TransformerDecoder(decoder_layer(), 2), lambda: [draw(2, 5), draw(2, 7)]),
    "both": (lambda: nn.Transformer(WIDTH, 4, 1, 1, 32, batch_first=True), lambda: [draw(2, 5), draw(2, 7)]),
    "attention to itself": (lambda: nn.MultiheadAttention(WIDTH, 4, batch_first=True), lambda: thrice(draw(2, 5))),
    "attention to others": (lambda: nn.MultiheadAttention(WIDTH, 4), lambda: [draw(5, 2), draw(7, 2), draw(7, 2)]),
}


def first_tensor(result: Any) -> torch.Tensor:
    return result[0] if isinstance(result, tuple) else result


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors", "ignore:enable_nested_tensor is True")
@pytest.mark.parametrize("needs_gradients", [False, True], ids=["inference", "gradients"])
@pytest.mark.parametrize("is_training", [False, True], ids=["eval", "train"])
@pytest.mark.parametrize("name", CASES)
def test_modules(name: str, is_training: bool, needs_gradients: bool, no_eager_comparison: None):
    make, draw_inputs = CASES[name]
    torch.manual_seed(0)
    module = make().train(is_training)
    eager = copy.deepcopy(module)
    compiled: Any = ingot.jit(module)
    for number in range(5):
        torch.manual_seed(number)
        given = draw_inputs()
        results = []
        with torch.set_grad_enabled(needs_gradients):
            for called in (compiled, eager):
                torch.manual_seed(100 + number)
                results.append(first_tensor(called(*given)))
        torch.testing.assert_close(*results, rtol=1e-4, atol=1e-5)
        if needs_gradients:
            for result in results:
                result.square().sum().backward()
            for one, other in zip(module.parameters(), eager.parameters(), strict=True):
                torch.testing.assert_close(one.grad, other.grad, rtol=1e-3, atol=1e-3)
    if not (name == "encoder, padded" and not is_training):  # which makes nested tensors
        assert compiled.forward.tier == "skipping", compiled.forward.explain()


def test_the_same_tensor_twice_is_not_two_tensors():
    def ask(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x + 1 if x is y else x - y

    compiled: Any = ingot.jit(ask)
    for _ in range(3):
        x, y = draw(3), draw(3)
        for given in ((x, x), (x, y), (y, y)):
            assert torch.equal(compiled(*given), ask(*given))
    assert compiled.tier == "skipping"


ADDED = {"same": 1.0, "another": 2.0}


@pytest.mark.parametrize(
    "keep",
    [
        *(lambda x: x.contiguous(), lambda x: x.relu(), lambda x: x.float(), lambda x: x[:], lambda x: +x),
        *(lambda x: x.sum_to_size(x.shape), lambda x: x.conj_physical(), lambda x: torch.as_tensor(x)),
    ],
)
@pytest.mark.parametrize("make", [lambda x: x * 2, lambda x: torch.tensor([1, 2, 3])])
def test_results_that_may_be_their_operand(
    make: Callable[[torch.Tensor], torch.Tensor],
    keep: Callable[[torch.Tensor], torch.Tensor],
    monkeypatch: pytest.MonkeyPatch,
):
    """What is read where they are the same, or are not, is seen to change."""

    def ask(x: torch.Tensor) -> torch.Tensor:
        y = make(x)
        z = keep(y)
        return z + (ADDED["same"] if y is z else ADDED["another"])

    compiled = ingot.jit(ask)
    for number in range(9):
        if number in (3, 6):
            for key in ADDED:
                monkeypatch.setitem(ADDED, key, float(10 * number))
        x = torch.randn(3)
        torch.testing.assert_close(compiled(x), ask(x))


def asks_of_all(x: torch.Tensor) -> torch.Tensor:
    return x + 1 if torch.is_autocast_enabled() else x - 1


def asks_of_gpus(x: torch.Tensor) -> torch.Tensor:
    return x + 1 if torch.is_autocast_enabled("cuda") else x - 1


def asks_of_cpus(x: torch.Tensor) -> torch.Tensor:
    return x + 1 if torch.is_autocast_enabled("cpu") else x - 1


@pytest.mark.parametrize("ask", [asks_of_all, asks_of_gpus, asks_of_cpus])
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_autocast_of_a_device_that_is_not_in_use(ask: Callable[[torch.Tensor], torch.Tensor], device: str):
    compiled, before = ingot.jit(ask), torch.is_autocast_enabled(device)
    try:
        for is_enabled in (False, True, False, True):
            torch.set_autocast_enabled(device, is_enabled)
            for _ in range(3):
                x = draw(3)
                assert torch.equal(compiled(x), ask(x))
    finally:
        torch.set_autocast_enabled(device, before)


def test_members_of_modules():
    class Sums(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(WIDTH))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            kinds = len([one for one in self.modules() if isinstance(one, nn.Linear)])
            for name, buffer in self.named_buffers():
                x = x + buffer if "mean" in name else x
            return x * kinds + sum(one.sum() for one in self.parameters()) + len(list(self.children()))

    module: Any = Sums().eval()
    compiled: Any = ingot.jit(module)
    with torch.no_grad():
        for number in range(9):
            if number == 4:
                module.inner.append(nn.Linear(WIDTH, 2))
            if number == 6:
                module.inner.extra = nn.Module()
                module.inner.extra.register_buffer("mean", torch.ones(WIDTH))
            x = draw(3)
            torch.testing.assert_close(compiled(x), type(module).forward(module, x))
    assert compiled.forward.tier == "skipping", compiled.forward.explain()


def test_grad_mode_that_the_function_changes_itself():
    def ask(x: torch.Tensor) -> torch.Tensor:
        before = torch.is_grad_enabled()
        with torch.set_grad_enabled(False) if before else torch.enable_grad():
            after = torch.is_grad_enabled()
        return x + before - 2 * after

    compiled: Any = ingot.jit(ask)
    x = draw(3)
    for mode in (True, False, True, False):
        with torch.set_grad_enabled(mode):
            for _ in range(3):
                torch.testing.assert_close(compiled(x), ask(x))


def test_casts_to_a_type_that_autocast_decides(no_eager_comparison: None):
    linear = nn.Linear(WIDTH, 2 * WIDTH)

    def ask(x: torch.Tensor) -> torch.Tensor:
        hidden = linear(x)
        normed = (hidden.float() * 2).to(hidden.dtype)
        first, second = normed.chunk(2, -1)
        return first.to(dtype=x.dtype) + second * first.shape[-1]

    compiled: Any = ingot.jit(ask)
    for is_enabled in (True, False):
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, enabled=is_enabled):
            for _ in range(3):
                x = draw(3)
                result, expected = compiled(x), ask(x)
                torch.testing.assert_close(result, expected, rtol=2e-2, atol=2e-2)
    assert compiled.tier == "skipping", compiled.explain()


class WithAutocast(nn.Module):
    """A layer whose types autocast decides, so that what it writes in texts about types is not known."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = encoder_layer(norm_first=True)
        self.last = nn.Linear(WIDTH, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return self.last(self.layer(x)[0]).float()


def test_autocast_within_a_module(no_eager_comparison: None):
    torch.manual_seed(0)
    module = WithAutocast().train()
    eager = copy.deepcopy(module)
    compiled: Any = ingot.jit(module)
    for number in range(4):
        x = draw(2, 5)
        results = []
        for called in (compiled, eager):
            torch.manual_seed(number)
            results.append(called(x))
            results[-1].square().sum().backward()
        torch.testing.assert_close(*results, rtol=5e-2, atol=5e-2)
    assert compiled.forward.tier == "skipping", compiled.forward.explain()


def test_texts_that_hold_something():
    def ask(x: torch.Tensor, kind: str) -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16, enabled=kind == "cast"):
            text = f"{x.dtype}" if x.requires_grad else f"of {x.dtype}"
            empty = f"{x.dtype}{kind}"[:0]
        return x + (1 if text else 2) + (4 if empty else 8)

    compiled = ingot.jit(ask)
    for kind in ("cast", "", "cast", ""):
        for _ in range(3):
            x = draw(3)
            torch.testing.assert_close(compiled(x, kind), ask(x, kind))
