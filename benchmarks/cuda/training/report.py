"""Figures of training steps as tables and targets: for the terminal and, the same tables, as a page of Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from benchmarks.cuda.training.contests import (
    CONTESTANTS,
    JIT_MODEL,
    JIT_STEP,
    LOSSES,
    OURS,
    STEP_REPLAYED,
    TOLERANCE,
    TrainingRow,
)
from benchmarks.report import Sheet, mean_ratio, target_sheet, times
from benchmarks.results import COMPILE, EAGER
from benchmarks.targets import Target, mean, worst

HOST_LIMITED_OVER_EAGER = 3.0
OVER_COMPILE, WORST_OVER_COMPILE, SECOND_STEP_RATIO = 1.5, 1.0, 20.0
INTRODUCTION = f"""\
# Training steps on an NVIDIA GPU

Written by `python -m benchmarks.cuda --training --markdown docs/cuda-training-benchmark.md`. A step is `zero_grad`, the
model under autocast to bfloat16, cross entropy in float32, `backward`, and AdamW in PyTorch's fused form; weights are
float32. Eager PyTorch runs it as it is; torch.compile and `ingot.jit(model)` compile the model, with the step around it
in Python; `ingot.jit(step)` compiles the whole, also with `mode="reduce-overhead"`, which replays it as a CUDA graph.
Everyone has a model of its own, from the same weights, and they take turns: times are medians of the rounds, by the
host's clock around steps in a row until the GPU has done them. `best` is the quickest of ingot's.

Losses of the first {LOSSES} steps are equal where all of ingot's are within {TOLERANCE:.0%} of eager's; those of the
steps until nothing is new are compared, too, less closely. torch.compile draws other random numbers, so its losses are
not compared. The seconds until a step is done count from the model alone: recording or tracing, compiling, and the
steps themselves, with nothing that could be found on disk. Memory is the most that is allocated during a step, weights,
gradients and the optimizer's state included, and what a CUDA graph keeps for itself.
"""
_SHORT = {JIT_MODEL: "model", JIT_STEP: "step", STEP_REPLAYED: "replayed"}


def sheets(rows: Sequence[TrainingRow], machine: Mapping[str, str], quick: bool) -> list[Sheet]:
    """All tables, in the order they are read."""
    about = ", ".join(f"{name} {value}" for name, value in machine.items())
    found = [times_sheet(rows), beside_sheet(rows, about)] if rows else []
    return [*found, target_sheet(targets(rows), quick)]


def page(tables: Sequence[Sheet]) -> str:
    return "\n".join([INTRODUCTION, *(table.as_markdown() for table in tables)])


def times_sheet(rows: Sequence[TrainingRow]) -> Sheet:
    columns = (
        *("", "eager ms", "torch. compile ms", "jit(model) ms", "jit(step) ms", "reduce- overhead ms"),
        *("best over eager", "best over torch. compile", "losses equal"),
    )
    cells = [
        (
            row.name,
            *(_milliseconds(row.seconds.get(name)) for name in CONTESTANTS),
            *(times(best_over(row, other)) for other in (EAGER, COMPILE)),
            "NO" if row.difference else "yes",
        )
        for row in rows
    ]
    means = (mean_ratio(best_over(row, other) for row in rows) for other in (EAGER, COMPILE))
    cells.append(("geometric mean", *[""] * len(CONTESTANTS), *means, ""))
    remarks = (f"WRONG: {row.name}: {row.difference}" for row in rows if row.difference)
    return Sheet("Training steps with fused AdamW, bfloat16 by autocast", columns, tuple(cells), tuple(remarks))


def beside_sheet(rows: Sequence[TrainingRow], about: str) -> Sheet:
    """How soon the steps come, what memory they need, and how ingot runs them."""
    columns = (
        *("", "second step: torch. compile s", "reduce- overhead s", "sooner"),
        *(f"{LOSSES} steps: torch. compile s", "reduce- overhead s"),
        *("a step's peak: eager MB", "torch. compile MB", "jit(model) MB", "jit(step) MB", "reduce- overhead MB"),
        *("tier", "replayed as a CUDA graph"),
    )
    cells = [
        (
            row.name,
            *(_seconds(row.second_result.get(name)) for name in (COMPILE, STEP_REPLAYED)),
            times(second_step_ratio(row)),
            *(_seconds(row.first_steps.get(name)) for name in (COMPILE, STEP_REPLAYED)),
            *(_megabytes(row.peaks.get(name)) for name in CONTESTANTS),
            tiers_text(row),
            "yes" if row.is_replayed else "no",
        )
        for row in rows
    ]
    sooner = mean_ratio(map(second_step_ratio, rows))
    cells.append(("geometric mean", "", "", sooner, *[""] * (len(columns) - 4)))
    remarks = (f"{row.name}: {remark}" for row in rows for remark in row.remarks)
    return Sheet("Beginning, memory, and how ingot runs the step", columns, tuple(cells), (*remarks, about))


def best_over(row: TrainingRow, other: str) -> float | None:
    """How many times as long as the quickest of ingot's the other one takes."""
    ours = [row.seconds[name] for name in OURS if name in row.seconds]
    return row.seconds[other] / min(ours) if ours and other in row.seconds else None


def second_step_ratio(row: TrainingRow) -> float | None:
    """How many times as long torch.compile takes to its second step as the whole step that is replayed."""
    ours, theirs = (row.second_result.get(name) for name in (STEP_REPLAYED, COMPILE))
    return theirs / ours if ours and theirs else None


def tiers_text(row: TrainingRow) -> str:
    """The tier of all that ingot compiled, or of each where they differ."""
    found = set(row.tiers.values())
    if len(found) <= 1:
        return next(iter(found), "")
    return ", ".join(f"{_SHORT[name]} {tier}" for name, tier in row.tiers.items())


def targets(rows: Sequence[TrainingRow]) -> list[Target]:
    limited = [(row.name, best_over(row, EAGER)) for row in rows if row.is_host_limited]
    compiled = [(row.name, best_over(row, COMPILE)) for row in rows]
    sooner = [(row.name, second_step_ratio(row)) for row in rows]
    return [
        *worst("limited by the host, best over eager", limited, HOST_LIMITED_OVER_EAGER),
        *worst("best over torch.compile", compiled, WORST_OVER_COMPILE),
        *mean("best over torch.compile", (ratio for _, ratio in compiled), OVER_COMPILE),
        *worst("second step over torch.compile's", sooner, SECOND_STEP_RATIO),
    ]


def line(row: TrainingRow) -> str:
    """A row in one line, for those who wait."""
    spent = ", ".join(f"{name} {row.seconds[name] * 1e3:.3f}" for name in CONTESTANTS if name in row.seconds)
    over = ", ".join(f"{times(ratio)} {name}" for name in (EAGER, COMPILE) if (ratio := best_over(row, name)))
    second = ", ".join(f"{name} {seconds:.2f} s" for name, seconds in row.second_result.items())
    peaks = ", ".join(f"{name} {_megabytes(peak)}" for name, peak in row.peaks.items() if peak is not None)
    parts = [f"{row.name}: {spent} ms", f"best is {over}", f"second step: {second}"]
    parts += [f"peak MB: {peaks}"] if peaks else []
    parts += [tiers_text(row), "replayed" if row.is_replayed else "not replayed"]
    parts += [f"WRONG: {row.difference}" if row.difference else "losses equal", *row.remarks]
    return "; ".join(filter(None, parts))


def _milliseconds(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds * 1e3:.3f}"


def _seconds(spent: float | None) -> str:
    return "" if spent is None else f"{spent:.2f}"


def _megabytes(nbytes: int | None) -> str:
    return "" if nbytes is None else f"{nbytes / 1e6:,.0f}"
