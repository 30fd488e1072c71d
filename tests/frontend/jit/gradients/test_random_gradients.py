"""Random programs of operations, views and writes give eager's results and gradients, whatever is written around them.

Numbers are small integers, and so are their gradients, so that both must be equal bit for bit.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ingot.frontend.jit.api.forms import jit
from tests.frontend.jit.gradients.comparing_gradients import calls_of
from tests.frontend.jit.test_random_programs import DEVICES, Instruction, RandomProgram, programs

EXAMPLES = int(os.environ.get("INGOT_TEST_EXAMPLES", "60"))
CALLS = 5

_ARGUMENTS: dict[str, Callable[[torch.Tensor, torch.Tensor], list[torch.Tensor]]] = {
    "apart": lambda whole, other: [whole[:4].clone(), other.clone()],
    "leaves": lambda whole, other: [whole, other],
    "overlapping": lambda whole, other: (lambda base: [base[:4], base[2:]])(whole + 0),
    "twice": lambda whole, other: [other * 1] * 2,
    "transposed": lambda whole, other: [whole[:4] * 1, (other * 1).t()],
    "expanded": lambda whole, other: [whole[:4] * 1, (other * 1)[0].expand(4, 4)],
    "one constant": lambda whole, other: [whole[:4] * 1, other.detach().clone()],
}
_AFTERWARDS: dict[str, Callable[[Sequence[torch.Tensor], Sequence[torch.Tensor]], Any]] = {
    "nothing": lambda arguments, results: None,
    "an argument is written": lambda arguments, results: arguments[0].add_(1),
    "an argument is written unseen": lambda arguments, results: _without_history(arguments[-1]),
    "a result is written": lambda arguments, results: results[0].mul_(2),
    "the last result is written": lambda arguments, results: results[-1].add_(1),
}


def _without_history(tensor: torch.Tensor) -> None:
    with torch.no_grad():
        tensor.add_(1)


def _run(function: Callable[..., Any], kind: str, afterwards: str, used: Sequence[int], seed: int, device: str) -> Any:
    """The results and gradients of a call, or the kind of error that it ends with and where."""
    generator = torch.Generator().manual_seed(seed)
    whole = torch.randint(-4, 5, (6, 4), generator=generator).to(device, torch.float64).requires_grad_()
    other = torch.randint(-4, 5, (4, 4), generator=generator).to(device, torch.float64).requires_grad_()
    arguments = _ARGUMENTS[kind](whole, other)
    torch.manual_seed(seed)
    try:
        results = function(*arguments)
        values = [one.detach().clone() for one in results]
    except RuntimeError as error:
        return "call", type(error)
    try:
        _AFTERWARDS[afterwards](arguments, results)
    except RuntimeError as error:
        return values, "write", type(error)
    chosen = [results[index % len(results)] for index in used]
    try:
        loss = torch.stack([(one * (1 + index)).sum() for index, one in enumerate(chosen)]).sum()
        if not loss.requires_grad:
            return values, None
        gradients = torch.autograd.grad(loss, [whole, other], allow_unused=True)
    except RuntimeError as error:
        return values, "backward", type(error)
    return values, [None if one is None else one.clone() for one in gradients], [one.detach() for one in arguments]


def _same(found: Any, expected: Any) -> bool:
    if isinstance(expected, torch.Tensor):
        return isinstance(found, torch.Tensor) and torch.equal(found, expected)
    if isinstance(expected, list | tuple):
        return len(found) == len(expected) and all(map(_same, found, expected))
    return found == expected


def run_program(program: RandomProgram, kind: str, afterwards: Sequence[str], used: Sequence[int], device: str) -> Any:
    program = _with_gradients(program, kind, device)
    compiled = jit(program)
    for call in range(CALLS):
        after = afterwards[call % len(afterwards)] if call >= 2 else "nothing"
        expected = _run(program, kind, after, used, call, device)
        found = _run(compiled, kind, after, used, call, device)
        if expected[-2:-1] in (("backward",), ("write",)):
            continue  # eager refuses what it cannot do; where that is no view, or is computed again, it can be done
        assert _same(found, expected), f"call {call}: {found} instead of {expected}"
    return compiled


def _with_gradients(program: RandomProgram, kind: str, device: str) -> RandomProgram:
    """The program without what PyTorch refuses to do with tensors that need gradients."""
    whole = torch.zeros(6, 4, dtype=torch.float64, device=device, requires_grad=True)
    other = torch.zeros(4, 4, dtype=torch.float64, device=device, requires_grad=True)
    return program.without_errors(*_ARGUMENTS[kind](whole, other))


@DEVICES
@pytest.mark.filterwarnings("ignore::UserWarning")  # of ingot, and of PyTorch about writes it would rather not do
@settings(deadline=None, max_examples=EXAMPLES, suppress_health_check=[HealthCheck.too_slow])
@given(
    programs,
    st.sampled_from(sorted(_ARGUMENTS)),
    st.lists(st.sampled_from(sorted(_AFTERWARDS)), min_size=1, max_size=3),
    st.lists(st.integers(0, 3), min_size=1, max_size=3),
)
def test_random_programs_have_eagers_gradients(
    device: str, program: RandomProgram, kind: str, afterwards: list[str], used: list[int]
) -> None:
    run_program(program, kind, afterwards, used, device)


@DEVICES
def test_random_programs_are_compiled_with_gradients(device: str) -> None:
    program = RandomProgram(
        (Instruction("mul", 1, 0, 1), Instruction("relu", 0, 0, 0), Instruction("sum", 0, 0, 0)), (0, 1)
    )
    compiled = run_program(program, "apart", ["nothing"], [0, 1], device)
    assert calls_of(compiled)[0].programs is not None
