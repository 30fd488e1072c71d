"""What `explain()`, `inspect()`, `tier` and `recordings` say of functions in each tier."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

import ingot
from ingot.frontend.jit.api.explaining import INSPECTED
from ingot.frontend.jit.follow.following_summary import MOST_FLUSHES, Flushes, public_name, text_of
from ingot.frontend.jit.follow.steps.step_tree import OpenNumber, Outcome, Reference, StepNode, Wait
from tests.frontend.jit.comparing import place

jit: Any = ingot.jit
CALLS = 6


def gate(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.tanh(x * y) + 1


def summed(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    hidden = torch.tanh(x * y) + 1
    total = hidden.sum().item()
    return torch.sort(hidden * total)[0]


LINE = summed.__code__.co_firstlineno


def called(function: Any, calls: int = CALLS, **options: Any) -> Any:
    compiled = jit(function, **options)
    for _ in range(calls):
        compiled(torch.ones(3, 4), torch.ones(3, 4))
    return compiled


def without_times(text: str) -> str:
    """Measured figures differ from run to run, and a digest says nothing to people."""
    text = re.sub(r"recorded in .* ms, compiled in .* ms", "recorded in R ms, compiled in C ms", text)
    text = re.sub(r"_[0-9a-f]{8}\)", "_H)", text)
    return re.sub(r"saves .* [mu]s", "saves S us", text)


def lines_of(compiled: Any) -> list[str]:
    return without_times(compiled.explain()).splitlines()


# --- tiers ------------------------------------------------------------------------------------------------------------


def test_what_was_not_called_is_new():
    compiled = jit(gate)
    assert (compiled.tier, compiled.recordings) == ("new", 0)
    assert lines_of(compiled) == [
        "gate: new, 0 calls, 0 recordings",
        "  not called yet, or only where compiled functions call their originals",
    ]
    with ingot.disable():
        compiled(torch.ones(3), torch.ones(3))
    assert compiled.tier == "new"


def test_skipped_functions():
    compiled = called(gate)
    assert (compiled.tier, compiled.recordings) == ("skipping", 1)
    assert lines_of(compiled) == [
        "gate: skipping, 6 calls, 1 recording",
        "",
        "  kind 1, 5 calls after the recording: float32[3, 4] x2",
        "    3 operations became 1 kernel and 0 calls of PyTorch's",
        "    recorded in R ms, compiled in C ms",
        "    kernels move 144 bytes, one operation at a time would move 336 bytes: saves S us",
        "    kernel: mul, tanh, add; ends here: end of graph (mul_tanh_add_H)",
    ]


def test_followed_functions_say_why_and_where():
    compiled = called(summed, 12)
    assert compiled.tier == "following"
    lines = lines_of(compiled)
    assert re.fullmatch(r"summed: following, \d+ calls, \d+ recordings", lines[0])
    assert lines[1].startswith("  not skipping: ") and lines[1].endswith(place(__file__, LINE + 2))
    assert f"{compiled.recordings} recordings" in lines[0]


def test_followed_functions_tell_what_made_them_run():
    lines = lines_of(called(summed, 12))
    (item,) = [line for line in lines if "Tensor.item" in line and "pending operations run" in line]
    assert item.endswith(f"for Tensor.item {place(__file__, LINE + 2)}")
    (sort,) = [line for line in lines if "torch.sort" in line and "pending operations run" in line]
    assert sort.endswith(f"for torch.sort {place(__file__, LINE + 3)}")
    (eager,) = [line for line in lines if line.startswith("  runs at once, as PyTorch's: ")]
    assert "torch.sort" in eager and "torch.tanh" not in eager


def segments_of(lines: list[str]) -> Iterator[list[str]]:
    for index, line in enumerate(lines):
        if line.startswith("  segment "):
            found = lines[index:]
            yield found[: found.index("")] if "" in found else found


def test_followed_functions_show_their_segments_and_kernels():
    found = list(segments_of(lines_of(called(gate, 9, python="run"))))
    assert [
        "    def segment(t0, t1, n0, d4):",
        "        t2 = Tensor.mul(t0, t1)",
        "        t3 = torch.tanh(t2)",
        "        t4 = Tensor.add(t3, n0)",
        "        d4.copy_(t4)",
        "        return ()",
        "      4 operations became 1 kernel and 0 calls of PyTorch's",
        "      recorded in R ms, compiled in C ms",
        "      kernels move 144 bytes, one operation at a time would move 336 bytes: saves S us",
        "      kernel: mul, tanh, add; ends here: end of graph (mul_tanh_add_H)",
    ] in [[line for line in lines if not re.match(r"  segment|    kind", line)] for lines in found]
    assert any(re.fullmatch(r"  segment 1, \d calls:", lines[0]) for lines in found)
    assert any("    kind 1, " in line and line.endswith(": float32[3, 4] x3") for lines in found for line in lines)


def test_python_can_be_asked_for():
    lines = lines_of(called(gate, python="run"))
    assert lines[0].startswith("gate: following, 6 calls, ")
    assert lines[1:2] == ['  not skipping: python="run" was asked for']
    assert lines[2] == "  6 calls followed: 3 steps in 1 segment"


def test_the_promise_skips():
    assert called(gate, python="skip").tier == "skipping"


def test_kinds_of_calls_have_tiers_of_their_own():
    def sometimes(x: torch.Tensor, y: torch.Tensor, looks: bool) -> torch.Tensor:
        return x * y.sum().item() if looks else x * y

    compiled = jit(sometimes)
    for looks, tier in ((False, "skipping"), (True, "following"), (False, "skipping")):
        for _ in range(3):
            x, y = torch.ones(3), torch.ones(3)
            assert torch.equal(compiled(x, y, looks), sometimes(x, y, looks))
        assert compiled.tier == tier or looks is False  # records answer the last ones without Python
    text = compiled.explain()
    assert "kernel" in text and place(__file__, sometimes.__code__.co_firstlineno + 1) in text


def test_reset_makes_new():
    compiled = called(summed)
    ingot.reset()
    assert (compiled.tier, compiled.recordings) == ("new", 0)
    assert len(lines_of(compiled)) == 2


def test_methods_and_modules():
    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.tanh(self.linear(x)) + x.sum().item()

        @jit
        def doubled(self, x: torch.Tensor) -> torch.Tensor:
            return torch.tanh(x) * 2

    layer = Layer()
    twin = jit(layer)
    with torch.no_grad():
        for _ in range(8):
            x = torch.ones(2, 4)
            torch.testing.assert_close(twin(x), layer(x))
            torch.testing.assert_close(layer.doubled(x), torch.tanh(x) * 2)
    assert layer.doubled.tier == "skipping" and Layer.doubled.tier == "new"
    assert twin.tier == twin.forward.tier == "following"
    assert place(__file__, Layer.forward.__code__.co_firstlineno + 1) in twin.explain().splitlines()[1]
    assert "tanh" in twin.inspect("kernels")


# --- stages -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stage", [stage for stage in INSPECTED if stage not in ("ptx", "sass")])
def test_stages_of_followed_functions_can_be_seen(stage: str):
    text = called(summed, 12).inspect(stage)
    assert {"llvm": "fmul", "program": "region0", "schedule": "axes"}.get(stage, "mul") in text


def step(before: StepNode, wait: Wait, results: tuple[int, ...], *skeleton: Any) -> StepNode:
    node = before.child(skeleton)
    assert node is not None
    node.known, node.results = Outcome(wait), results
    return node


def test_steps_show_branches_and_what_waits():
    root, number = StepNode(None, None), OpenNumber(float)
    tanh = step(root, Wait.LATER, (1,), torch.tanh, Reference(0))
    doubled = step(tanh, Wait.LATER, (2,), torch.Tensor.mul, Reference(1), number)
    step(doubled, Wait.NOW, (), torch.sort, Reference(2))
    doubled = step(
        step(tanh, Wait.VIEW, (2,), torch.Tensor.t, Reference(1)), Wait.IN_PLACE, (), torch.relu_, Reference(2)
    )
    step(doubled, Wait.LATER, (3,), torch.Tensor.mul, Reference(2), number)
    assert text_of([root]).splitlines() == [
        "t1 = torch.tanh(t0)  # later",
        "branch 0:",
        "    t2 = Tensor.mul(t1, n0)  # later",
        "    torch.sort(t2)  # now",
        "branch 1:",
        "    t2 = Tensor.t(t1)  # view",
        "    torch.relu_(t2)  # in place",
        "    t3 = Tensor.mul(t2, n0)  # later",
    ]


def test_segments_of_skipped_functions_are_none():
    assert called(gate).inspect("segments") == called(gate).inspect("steps") == ""


# --- what is counted --------------------------------------------------------------------------------------------------


def test_flushes_are_counted_by_line_and_bounded():
    flushes, nodes = Flushes(), [StepNode(None, None) for _ in range(MOST_FLUSHES + 5)]
    for node in nodes:
        flushes.note(node, torch.Tensor.item)
        flushes.note(node, "memory")
    assert len(flushes.found) == MOST_FLUSHES
    by_line = flushes.by_line()
    assert {flush.cause for flush in by_line} == {"Tensor.item", "memory"}
    assert sum(flush.count for flush in by_line) == MOST_FLUSHES
    assert all(flush.place.startswith(__file__) for flush in by_line)


@pytest.mark.parametrize(
    "function, name",
    [
        (torch.tanh, "torch.tanh"),
        (torch.Tensor.item, "Tensor.item"),
        (torch.Tensor.grad_fn.__get__, "Tensor.grad_fn"),  # type: ignore[attr-defined]
        (torch.Tensor.__bool__, "Tensor.__bool__"),
        (nn.functional.gelu, "torch.nn.functional.gelu"),
        (torch.ops.aten.add.Tensor, "aten.add.Tensor"),
    ],
)
def test_functions_have_the_names_that_users_know(function: Any, name: str):
    assert public_name(function) == name
