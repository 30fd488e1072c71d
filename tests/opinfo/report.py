"""What came of the trials: a page of Markdown, and what is wrong, for the terminal."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence

import torch

from tests.opinfo.database import SAMPLES
from tests.opinfo.trials import COMPILED, EAGER, LIBRARY, REFUSED
from tests.opinfo.workers import Task

FATES = (COMPILED, LIBRARY, EAGER)
DEVICES = {"cpu": "CPU", "cuda": "CUDA GPU"}


def problems(task: Task) -> Iterator[str]:
    """Everything that is wrong in a task, in words."""
    for number, verdict in enumerate(task.verdicts):
        if verdict.problem:
            where = f"{task.operator}, {task.dtype}, call {number}"
            yield f"{where} {verdict.call}\n    {verdict.problem} ({verdict.fate})"


def fate_of_operator(tasks: Iterable[Task]) -> str:
    """Compiled if any sample has a generated kernel, library calls if any is recorded at all."""
    fates = {verdict.fate for task in tasks for verdict in task.verdicts}
    return next((fate for fate in (*FATES, REFUSED) if fate in fates), REFUSED)


def page(tasks: Sequence[Task], most_samples: int | None = None) -> str:
    """The page about a run, all of it on one device, with at most so many samples of each."""
    device = DEVICES[tasks[0].device]
    command = "python -m tests.opinfo" + (f" --device {tasks[0].device}" if tasks[0].device != "cpu" else "")
    kind = "sample" if tasks[0].inputs == SAMPLES else tasks[0].inputs
    samples = f"every {kind} input" if most_samples is None else f"up to {most_samples} {kind} inputs"
    command += "" if most_samples is None else f" --samples {most_samples}"
    command += "" if tasks[0].inputs == SAMPLES else f" --inputs {tasks[0].inputs}"
    by_operator: dict[str, list[Task]] = defaultdict(list)
    for task in sorted(tasks, key=lambda task: task.operator):
        by_operator[task.operator].append(task)
    introduction = (
        _of_gradients(device, command, samples) if tasks[0].gradients else _of_calls(device, command, samples)
    )
    lines = [
        *introduction,
        f"{torch.__version__.partition('+')[0]}.",
        "",
        *_summary(tasks, by_operator),
        "",
        *_reasons(tasks),
        "",
        *_lists(by_operator),
    ]
    return "\n".join(lines) + "\n"


def _of_calls(device: str, command: str, samples: str) -> list[str]:
    return [
        f"# PyTorch's operators through ingot.jit on {device}s",
        "",
        f"Written by `{command}`: every {device} operator of PyTorch's own database",
        f"with {samples}, as a function, in place and with `out=` where there is such a thing. Each sample is",
        "called three times through",
        "`ingot.jit` (recorded, compiled, run again) and compared with eager PyTorch: results, their strides and the",
        "memory they share, and the arguments afterwards. The version of PyTorch is",
    ]


def _of_gradients(device: str, command: str, samples: str) -> list[str]:
    return [
        f"# Gradients of PyTorch's operators through ingot.jit on {device}s",
        "",
        f"Written by `{command} --gradients`: every differentiable {device} operator of PyTorch's own database",
        f"with {samples} that need gradients. Each sample is called and differentiated four times through",
        "`ingot.jit` (recorded, recorded with its backward pass, compiled, run again) and compared with eager PyTorch:",
        "results, and the gradients of every argument. The version of PyTorch is",
    ]


def _summary(tasks: Sequence[Task], by_operator: dict[str, list[Task]]) -> Iterator[str]:
    yield "## Summary"
    yield ""
    columns = (
        "",
        "operators",
        "samples",
        "with generated kernels",
        "library calls alone",
        "run eagerly",
        "eager refuses",
        "wrong",
        "crashed",
    )
    yield f"| {' | '.join(columns)} |"
    yield "|---" * len(columns) + "|"
    for dtype in dict.fromkeys(task.dtype for task in tasks):
        of_dtype = [task for task in tasks if task.dtype == dtype]
        yield _row(dtype, len(of_dtype), of_dtype)
    yield _row("all", len(by_operator), tasks)
    yield ""
    count = Counter(fate_of_operator(of_operator) for of_operator in by_operator.values())
    yield (
        f"Of {len(by_operator)} operators {count[COMPILED]} have samples with generated kernels, {count[LIBRARY]} are "
        f"library calls alone, {count[EAGER]} always run eagerly, and of {count[REFUSED]} eager refuses every sample."
    )


def _row(name: str, operators: int, tasks: Iterable[Task]) -> str:
    verdicts = [verdict for task in tasks for verdict in task.verdicts]
    fates = Counter(verdict.fate for verdict in verdicts)
    crashed = sum(verdict.is_crash for verdict in verdicts)
    wrong = sum(bool(verdict.problem) for verdict in verdicts) - crashed
    cells = (name, operators, len(verdicts), *(fates[fate] for fate in (*FATES, REFUSED)), wrong, crashed)
    return "| " + " | ".join(map(str, cells)) + " |"


def _reasons(tasks: Sequence[Task]) -> Iterator[str]:
    yield "## What runs eagerly, and why"
    yield ""
    yield "| reason | samples | operators |"
    yield "|---|---|---|"
    count: Counter[str] = Counter()
    names: dict[str, set[str]] = defaultdict(set)
    for task in tasks:
        for verdict in task.verdicts:
            if verdict.fate == EAGER and not verdict.problem:
                reason = _without_details(verdict.reason)
                count[reason] += 1
                names[reason].add(task.operator)
    for reason, samples in count.most_common():
        yield f"| {reason} | {samples} | {_listed(names[reason])} |"


def _lists(by_operator: dict[str, list[Task]]) -> Iterator[str]:
    headings = {
        COMPILED: "With generated kernels",
        LIBRARY: "Library calls alone",
        EAGER: "Always eager",
        REFUSED: "Refused by eager",
    }
    for fate, heading in headings.items():
        names = {name for name, tasks in by_operator.items() if fate_of_operator(tasks) == fate}
        if names:
            yield from (f"## {heading}", "", _listed(names), "")


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in sorted(names))


def _without_details(reason: str) -> str:
    """A reason without what differs from operator to operator."""
    return re.sub(r"\b(aten|prims)\.[\w.]+", "an operator", reason.partition("\n")[0]).replace("|", "\\|")
