"""Random programs of operations, views and writes run compiled as they run eagerly: values, writes, shared memory.

Numbers are small integers, which all operations keep exactly, whatever the order, so results must be equal bit for bit.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ingot.frontend.jit.api.forms import jit
from tests.frontend.jit.comparing import is_compiled, outcome, same


def _bounded(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.clamp(-9, 9)


def _product(x: torch.Tensor, y: torch.Tensor, k: int) -> torch.Tensor:
    return _bounded(torch.mm(x, y if k % 2 else y.t()))


def _assign(x: torch.Tensor, y: torch.Tensor, k: int) -> torch.Tensor:
    x[k % x.shape[0]] = y
    return x


def _assign_mask(x: torch.Tensor, y: torch.Tensor, k: int) -> torch.Tensor:
    x[x > k] = k
    return x


def _assign_slice(x: torch.Tensor, y: torch.Tensor, k: int) -> torch.Tensor:
    x[..., 1:] = y[..., :-1].clone()
    return x


def _assign_indices(x: torch.Tensor, y: torch.Tensor, k: int) -> torch.Tensor:
    x[torch.tensor([0, k % x.shape[0]])] += 1
    return x


OPERATIONS: dict[str, Callable[[torch.Tensor, torch.Tensor, int], Any]] = {
    "add": lambda x, y, k: _bounded(x + y),
    "sub": lambda x, y, k: _bounded(x - y),
    "mul": lambda x, y, k: _bounded(x * y),
    "scalar": lambda x, y, k: _bounded(x * 2 + k),
    "relu": lambda x, y, k: torch.relu(x),
    "neg": lambda x, y, k: -x,
    "where": lambda x, y, k: torch.where(x > y, x, y + 1),
    "maximum": lambda x, y, k: torch.maximum(x, y),
    "clone": lambda x, y, k: x.clone(),
    "sum": lambda x, y, k: _bounded(x.sum(k % x.dim(), keepdim=k > 1)),
    "amax": lambda x, y, k: x.amax(-1),
    "total": lambda x, y, k: _bounded(x.sum()),
    "cumsum": lambda x, y, k: _bounded(x.cumsum(k % x.dim())),
    "mm": _product,
    "cat": lambda x, y, k: torch.cat([x, y])[: x.shape[0]],
    "stack": lambda x, y, k: torch.stack([x, y]).amax(0),
    "flip": lambda x, y, k: x.flip(0),
    "random": lambda x, y, k: x + torch.randint(-2, 3, x.shape, dtype=x.dtype, device=x.device),
    "rows": lambda x, y, k: x[1:],
    "half": lambda x, y, k: x[..., ::2],
    "select": lambda x, y, k: x[k % x.shape[0]],
    "transpose": lambda x, y, k: x.transpose(0, -1),
    "flat": lambda x, y, k: x.view(-1),
    "reshape": lambda x, y, k: x.reshape(-1, 2),
    "expand": lambda x, y, k: x.unsqueeze(0).expand(2, *x.shape),
    "detach": lambda x, y, k: x.detach(),
    "diagonal": lambda x, y, k: x.diagonal(),
    "chunk": lambda x, y, k: x.chunk(2, -1)[0],
    "unfold": lambda x, y, k: x.unfold(0, 2, 1),
    "strided": lambda x, y, k: x.as_strided((2, 2), (1, 2)),
    "strided from the start": lambda x, y, k: x.as_strided((4,), (2,), 0),
    "contiguous": lambda x, y, k: x.contiguous(),
    "add_": lambda x, y, k: x.add_(y).clamp_(-9, 9),
    "mul_": lambda x, y, k: x.mul_(k),
    "relu_": lambda x, y, k: x.relu_(),
    "clamp_": lambda x, y, k: x.clamp_(-2, 2),
    "copy_": lambda x, y, k: x.copy_(y),
    "zero_": lambda x, y, k: x.zero_(),
    "fill_": lambda x, y, k: x.fill_(k),
    "masked_fill_": lambda x, y, k: x.masked_fill_(x > k, 1),
    "random_": lambda x, y, k: x.random_(0, 3),
    "out": lambda x, y, k: torch.add(x, 1, out=y),
    "out into itself": lambda x, y, k: torch.neg(x, out=x),
    "out of two": lambda x, y, k: torch.maximum(x, y, out=y),
    "assign": _assign,
    "assign mask": _assign_mask,
    "assign slice": _assign_slice,
    "assign indices": _assign_indices,
}


@dataclass(frozen=True)
class Instruction:
    name: str
    first: int
    second: int
    number: int

    def __call__(self, values: Sequence[torch.Tensor]) -> torch.Tensor:
        first, second = values[-1 - self.first % len(values)], values[-1 - self.second % len(values)]
        return OPERATIONS[self.name](first, second, self.number)


@dataclass(frozen=True)
class RandomProgram:
    """Instructions over a growing list of tensors."""

    instructions: tuple[Instruction, ...]
    results: tuple[int, ...]

    def __call__(self, *tensors: torch.Tensor) -> list[torch.Tensor]:
        values = list(tensors)
        for one in self.instructions:
            values.append(one(values))
        return [values[-1 - index % len(values)] for index in self.results]

    def without_errors(self, *tensors: torch.Tensor) -> RandomProgram:
        """The program without what PyTorch refuses to do with these tensors."""
        values, kept = list(tensors), []
        for one in self.instructions:
            with contextlib.suppress(RuntimeError, IndexError, ZeroDivisionError):
                values.append(one(values))
                kept.append(one)
        return RandomProgram(tuple(kept), self.results)


instructions = st.builds(
    Instruction, st.sampled_from(sorted(OPERATIONS)), st.integers(0, 5), st.integers(0, 5), st.integers(0, 3)
)
programs = st.builds(
    RandomProgram,
    st.lists(instructions, min_size=2, max_size=9).map(tuple),
    st.lists(st.integers(0, 6), min_size=1, max_size=4).map(tuple),
)


def _arguments(kind: str, dtype: torch.dtype, seed: int, device: str) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    whole = torch.randint(-4, 5, (6, 4), generator=generator).to(device, dtype)
    other = torch.randint(-4, 5, (4, 4), generator=generator).to(device, dtype)
    return {
        "apart": lambda: [whole[:4].clone(), other],
        "overlapping": lambda: [whole[:4], whole[2:]],
        "twice": lambda: [other, other],
        "transposed": lambda: [whole[:4].clone(), other.t()],
        "expanded": lambda: [whole[:4].clone(), other[0].expand(4, 4)],
        "strided": lambda: [whole.repeat(2, 1)[::2][:4], other[:, 1:2]],
        "rows": lambda: [whole[:4].clone(), other[0]],
    }[kind]()


DEVICES = pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)])
KINDS = ["apart", "overlapping", "twice", "transposed", "expanded", "strided", "rows"]


def run_program(program: RandomProgram, kinds: Sequence[str], dtype: torch.dtype, device: str) -> Any:
    """Three calls and one with arguments that lie in memory otherwise, each compared with eager's."""
    program = program.without_errors(*_arguments(kinds[0], dtype, 0, device))
    compiled = jit(program)
    for call, kind in enumerate(kinds):
        found_given, given = (_arguments(kind, dtype, call, device) for _ in range(2))
        torch.manual_seed(call)
        expected = outcome(program, given)
        torch.manual_seed(call)
        found = outcome(compiled, found_given)
        same(found, expected, found_given, given)
    return compiled


@DEVICES
@pytest.mark.filterwarnings("ignore::UserWarning")  # of ingot, and of PyTorch about writes it would rather not do
@settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.too_slow])
@given(programs, st.sampled_from(KINDS), st.sampled_from(KINDS), st.sampled_from([torch.float32, torch.int64]))
def test_random_programs_do_what_eager_does(
    device: str, program: RandomProgram, kind: str, other: str, dtype: torch.dtype
) -> None:
    run_program(program, [kind, kind, kind, other, kind], dtype, device)


@DEVICES
def test_elements_that_share_a_place_are_written_once(device: str) -> None:
    program = RandomProgram((Instruction("zero_", 0, 0, 0), Instruction("scalar", 0, 0, 1)), (0, 1))
    assert is_compiled(run_program(program, ["expanded"] * 3, torch.float32, device))


@DEVICES
def test_random_programs_are_compiled(device: str) -> None:
    program = RandomProgram(
        (Instruction("add_", 1, 0, 1), Instruction("rows", 0, 0, 0), Instruction("scalar", 0, 0, 2)), (0, 2)
    )
    assert is_compiled(run_program(program, ["apart"] * 3, torch.float32, device))
