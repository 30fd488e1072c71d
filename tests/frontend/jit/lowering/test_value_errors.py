"""An error that values raise leaves what eager leaves: everything before it is done, nothing after it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional

import ingot

pytestmark = pytest.mark.usefixtures("no_eager_comparison")

ROWS, INDEX, OUTSIDE = torch.randn(5, 4), torch.tensor([0, 2]), torch.tensor([0, 9])
DIVISOR, ZERO = torch.tensor([1, 3]), torch.tensor([0, 3])

# An operation that may raise an error, with arguments that it takes and arguments that it refuses.
RAISING: dict[str, tuple[Callable[..., Any], tuple[torch.Tensor, ...], tuple[torch.Tensor, ...]]] = {
    "index": (lambda x, index: x[index] * 2, (ROWS, INDEX), (ROWS, OUTSIDE)),
    "embedding": (lambda x, index: functional.embedding(index, x) + 1, (ROWS, INDEX), (ROWS, OUTSIDE)),
    "gather": (lambda x, index: torch.gather(x, 0, index[:, None]) + 1, (ROWS, INDEX), (ROWS, OUTSIDE)),
    "nll_loss": (lambda x, index: functional.nll_loss(x[:2], index), (ROWS, INDEX), (ROWS, OUTSIDE)),
    "index_add": (lambda x, index: x.index_add(0, index, x[:2]), (ROWS, INDEX), (ROWS, OUTSIDE)),
    "quotient": (lambda x, divisor: torch.arange(2) // divisor, (ROWS, DIVISOR), (ROWS, ZERO)),
    "remainder": (lambda x, divisor: torch.arange(2) % divisor, (ROWS, DIVISOR), (ROWS, ZERO)),
    "cholesky": (
        lambda x, _: torch.linalg.cholesky(x[:4]),
        (torch.eye(5)[:, :4], INDEX),
        (-torch.eye(5)[:, :4], INDEX),
    ),
    "binary_cross_entropy": (
        lambda x, _: functional.binary_cross_entropy(x[:, 0], x[:, 1].abs().clamp(max=1)),
        (ROWS.sigmoid(), INDEX),
        (ROWS.exp() + 1, INDEX),
    ),
}


def _write(buffer: torch.Tensor) -> None:
    buffer.add_(1)


def _write_twice(buffer: torch.Tensor) -> None:
    buffer.add_(1)
    buffer[:2].mul_(3)


def _draw(buffer: torch.Tensor) -> None:
    buffer.copy_(functional.dropout(torch.ones(3), 0.5))


def _note_statistics(buffer: torch.Tensor) -> None:
    """PyTorch's schema does not say that this writes."""
    functional.batch_norm(torch.ones(4, 3), buffer, torch.ones(3), training=True)


LASTING = {"statistics": _note_statistics, "write": _write, "two writes": _write_twice, "draw": _draw}


def _outcome(function: Callable[..., Any], given: tuple[torch.Tensor, ...]) -> tuple[Any, ...]:
    """What a call gives or raises, what it leaves in a buffer, and what is drawn afterwards."""
    buffer = torch.zeros(3)
    torch.manual_seed(1)
    try:
        result: Any = function(buffer, *given)
    except Exception as error:
        result = type(error), str(error)
    return result, buffer, torch.rand(1)


@pytest.mark.parametrize("is_before", [True, False], ids=["before", "after"])
@pytest.mark.parametrize("lasting", LASTING)
@pytest.mark.parametrize("name", RAISING)
def test_an_error_leaves_what_eager_leaves(name: str, lasting: str, is_before: bool):
    operation, good, bad = RAISING[name]

    def function(buffer: torch.Tensor, *given: torch.Tensor) -> Any:
        if is_before:
            LASTING[lasting](buffer)
        result = operation(*given)
        if not is_before:
            LASTING[lasting](buffer)
        return result

    compiled: Any = ingot.jit(function)
    for _ in range(4):
        torch.testing.assert_close(_outcome(compiled, good), _outcome(function, good))
    assert compiled.tier == "skipping"
    for _ in range(2):
        found, expected = _outcome(compiled, bad), _outcome(function, bad)
        assert found[0] == expected[0]
        assert isinstance(expected[0], tuple), "it was to raise an error"
        torch.testing.assert_close(found[1:], expected[1:])
    torch.testing.assert_close(_outcome(compiled, good), _outcome(function, good))


def test_statistics_are_counted_before_a_target_is_refused():
    norm = torch.nn.BatchNorm1d(6)
    module = torch.nn.Sequential(torch.nn.Linear(4, 6), norm)

    def loss_of(x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(module(x), target)

    compiled, states = ingot.jit(loss_of), []
    x, good, bad = torch.randn(8, 4), torch.arange(8) % 6, torch.arange(8)
    with torch.no_grad():
        for function in (loss_of, compiled):
            norm.reset_running_stats()
            for _ in range(6):
                function(x, good)
            with pytest.raises(IndexError, match="out of bounds"):
                function(x, bad)
            states.append({name: value.clone() for name, value in module.state_dict().items()})
    torch.testing.assert_close(*states)
