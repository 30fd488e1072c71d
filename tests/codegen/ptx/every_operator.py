"""PTX for every operator, data type and form, each made in a process that may end: LLVM ends it where it fails.

    .venv/bin/python -m tests.codegen.ptx.every_operator                 all of it, about eight minutes
    .venv/bin/python -m tests.codegen.ptx.every_operator --every 50      a fiftieth of it
    .venv/bin/python -m tests.codegen.ptx.every_operator --assemble      NVIDIA's assembler has to take it, too

What fails is told with its program and its schedule. Neither a GPU nor an answer of one is needed.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import torch

from ingot import DataType, GraphBuilder
from ingot.base.dtypes import COMPUTED, in_order
from ingot.base.numbers import Number, convert_number
from ingot.base.types import TensorType
from ingot.codegen.ptx.kernels import compile_gpu_kernel
from ingot.codegen.ptx.target import gpu
from ingot.fusion.groups import Level
from ingot.ir.node import Node
from ingot.ir.torch_types import to_torch
from ingot.loops.gpu.schedule import GpuSchedule, Grid
from ingot.loops.motion import Motion
from ingot.loops.program import ConstantOperand, Input, Operand, Program, Result, Statement
from ingot.ops import Op
from ingot.runtime.cuda.kernels import scheduled
from ingot.runtime.plan import Plan
from tests.codegen.operator_kernels import OperatorModule
from tests.codegen.test_operators import POINTWISE, divides, operand_types

CAPABILITIES = ((7, 0), (8, 0), (9, 0), (12, 0))
OLDEST_ASSEMBLED = (7, 5)
"""Assemblers of today know none before; what is written for those before runs on it."""
LANES = (1, 2, 4, 8, 16)
CONSTANTS = (0, 1, -1, 7)
BATCH = 64


@dataclass(frozen=True)
class Case:
    program: Program
    schedule: GpuSchedule
    capability: tuple[int, int]

    def ptx(self) -> str:
        return compile_gpu_kernel(self.program, self.schedule, gpu(self.capability)).ptx

    def __str__(self) -> str:
        generation = "sm_{}{}".format(*self.capability)
        return f"{generation}, {self.schedule.text(self.program)}\n{self.program.text}"


# --- operators on elements --------------------------------------------------------------------------------------------


def operators() -> Iterator[Program]:
    """Each operator by itself, on inputs and with constants in their place."""
    for op in POINTWISE:
        for dtypes, attributes in operand_types(op):
            choices = list(_constants(op, dtypes))
            single = OperatorModule(op, dtypes, gpu(CAPABILITIES[-1]), 1, choices[0][-1], **attributes)
            for constants in choices:
                yield _program(op, dtypes, constants, attributes, single.result.dtype)


def _constants(op: Op, dtypes: tuple[DataType, ...]) -> Iterator[tuple[Number | None, ...]]:
    """What takes the place of operands; None where they are inputs."""
    if divides(op, dtypes[0]):
        yield from ((None, number) for number in (7, 1, -1, 8) if dtypes[0].is_signed or number > 0)
        return
    yield (None,) * len(dtypes)
    if op.name == "where":
        yield from ((None, *pair) for pair in product(CONSTANTS, CONSTANTS) if _has(dtypes[1], *pair))
    for place, number in product(range(len(dtypes)) if len(dtypes) > 1 else (), CONSTANTS):
        if _has(dtypes[place], number):
            yield tuple(number if place == other else None for other in range(len(dtypes)))


def _has(dtype: DataType, *numbers: int) -> bool:
    return dtype.is_signed or min(numbers) >= 0


def _program(
    op: Op, dtypes: Sequence[DataType], constants: Sequence[Number | None], attributes: dict[str, Any], dtype: DataType
) -> Program:
    inputs: list[Input] = []
    operands: list[Operand] = []
    for given, constant in zip(dtypes, constants, strict=True):
        if constant is None:
            inputs.append(Input(len(inputs), given, Level.ELEMENT))
            operands.append(inputs[-1])
        else:
            operands.append(ConstantOperand(convert_number(constant, given), given))
    statement = Statement(op, tuple(operands), tuple(attributes.items()), dtype, Level.ELEMENT, 0)
    return Program(tuple(inputs), (), (statement,), (Result(0, dtype),), has_rows=False)


def element_cases() -> Iterator[Case]:
    programs = list(operators())
    for capability, vector_width, program in product(CAPABILITIES, LANES, programs):
        motions = (Motion.NEXT,) * len(program.buffers)
        yield Case(program, Grid(outer=0, inner=1, motions=motions, vector_width=vector_width, threads=256), capability)


# --- rows, columns and squares ----------------------------------------------------------------------------------------


def _softmax(ops: Any, x: Any) -> Any:
    return ops.softmax(x, -1)


FUSIONS: dict[str, tuple[Callable[[Any, Any], Any], tuple[int, int]]] = {
    "rows": (lambda ops, x: ops.sum(x, [1]), (512, 768)),
    "odd rows": (lambda ops, x: ops.sum(x, [1]), (513, 77)),
    "long rows": (lambda ops, x: ops.sum(x, [1]), (512, 100_000)),
    "few rows": (lambda ops, x: ops.sum(x, [1]), (3, 1 << 20)),
    "columns": (lambda ops, x: ops.sum(x, [0]), (4096, 512)),
    "odd columns": (lambda ops, x: ops.sum(x, [0]), (5001, 77)),
    "short columns": (lambda ops, x: ops.amax(x, [0]), (24, 4096)),
    "all": (lambda ops, x: ops.sum(x), (2048, 2048)),
    "rows and all": (lambda ops, x: ops.sum(ops.sum(x, [1])), (512, 768)),
    "products": (lambda ops, x: ops.prod(x, [1]), (512, 768)),
    "products of columns": (lambda ops, x: ops.prod(x, [0]), (4096, 512)),
    "largest": (lambda ops, x: ops.amax(x, [1]), (512, 768)),
    "smallest of columns": (lambda ops, x: ops.amin(x, [0]), (4096, 512)),
    "softmax": (_softmax, (512, 1024)),
    "softmax of long rows": (_softmax, (512, 100_000)),
    "softmax of few rows": (_softmax, (2, 1 << 20)),
    "normalised columns": (lambda ops, x: x - ops.mean(x, [0], True), (4096, 512)),
    "deviations": (lambda ops, x: ops.var_mean(x, [1], 0, True)[0] * x, (512, 100_000)),
    "turned": (lambda ops, x: ops.maximum(x, 1), (1024, 1024)),
    "turned truths": (lambda ops, x: ops.eq(x, 1), (511, 513)),
}
WITH_FRACTIONS = {"softmax", "softmax of long rows", "softmax of few rows", "normalised columns", "deviations"}


def fused_cases() -> Iterator[Case]:
    for (name, (body, shape)), dtype in product(FUSIONS.items(), in_order(COMPUTED)):
        if name in WITH_FRACTIONS and not dtype.is_float:
            continue
        builder = GraphBuilder()
        builder.output(body(builder.ops, builder.input(shape, dtype)))
        for kernel in Plan(builder.build()).kernels():
            call, _ = scheduled(kernel, [_tensor(read.node, name) for read in kernel.lowered.tensors], {})
            yield from (Case(kernel.program, call.schedule, capability) for capability in CAPABILITIES)


def _tensor(node: Node, name: str) -> torch.Tensor:
    assert isinstance(node.type, TensorType)
    shape = [size for size in node.type.shape if isinstance(size, int)]
    x = torch.empty(shape, dtype=to_torch(node.type.dtype))
    return x.T.contiguous().T if name.startswith("turned") else x


# --- trying them ------------------------------------------------------------------------------------------------------


def failures(cases: Sequence[Case], assembler: str | None) -> list[Case]:
    """Those that end a process or that the assembler refuses."""
    if not cases or _succeeds(cases, assembler):
        return []
    if len(cases) == 1:
        return [cases[0]]
    middle = len(cases) // 2
    return failures(cases[:middle], assembler) + failures(cases[middle:], assembler)


def _succeeds(cases: Sequence[Case], assembler: str | None) -> bool:
    child = os.fork()
    if child:
        return os.waitpid(child, 0)[1] == 0
    status = 1
    try:
        with tempfile.TemporaryDirectory() as folder:
            for case in cases:
                _try(case, assembler, Path(folder) / "kernel.ptx")
        status = 0
    finally:
        os._exit(status)


def _try(case: Case, assembler: str | None, path: Path) -> None:
    path.write_text(case.ptx())
    if assembler:
        target = "-arch=sm_{}{}".format(*max(case.capability, OLDEST_ASSEMBLED))
        command = [assembler, target, "-O1", "-o", "/dev/null", str(path)]
        subprocess.run(command, check=True, stderr=subprocess.DEVNULL)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--every", type=int, default=1, help="take one of so many")
    parser.add_argument("--assemble", action="store_true", help="call ptxas, too")
    options = parser.parse_args()
    torch.set_num_threads(1)
    cases = [*element_cases(), *fused_cases()][:: options.every]
    assembler = shutil.which("ptxas") if options.assemble else None
    found: list[Case] = []
    for first in range(0, len(cases), BATCH):
        found += failures(cases[first : first + BATCH], assembler)
    print(*found, f"{len(cases)} kernels, {len(found)} of them without code", sep="\n\n")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
