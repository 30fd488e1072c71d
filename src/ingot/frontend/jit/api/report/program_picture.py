"""A program as boxes and arrows: arguments, operations coloured by the kernel that computes them, calls of PyTorch's.

In: a program. Out: a picture, or a sentence where it would be too large to look at. A program of many operations is
drawn with one box for each kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ingot.frontend.jit.api.report.drawing import Box, drawn
from ingot.frontend.jit.lowering.partition import Region
from ingot.frontend.jit.lowering.recorded_program import RecordedProgram
from ingot.frontend.jit.trace.ssa import OperationKind, Version
from ingot.ir.node import Node
from ingot.ops import Kind
from ingot.runtime.compiler import CompiledModule
from ingot.runtime.kernels import Kernel

MOST_OPERATIONS, MOST_BOXES = 120, 400
"""More operations than the first are drawn by kernel; more boxes than the second are not drawn."""
_ARGUMENT, _CALL, _VIEW, _GENERATED = "#ffffff", "#e3e3e3", "#f6f6f6", "#d9e8d0"
COLOURS = ("#cfe2f3", "#fde2c8", "#dcd3ee", "#cdebe2", "#f8d3da", "#f3ecc2", "#d0e6ef", "#e6d7c8", "#dcebc5", "#ead1e6")
"""Fills of kernels, in turn."""


def colour_of(kernel: int) -> str:
    """The fill of a kernel's operations, by the kernel's number in the program."""
    return COLOURS[kernel % len(COLOURS)]


def picture_of(program: RecordedProgram) -> str:
    """The picture of a program that decides nothing, as SVG; or why there is none."""
    counts = [len(module.optimized_graph.nodes) for module in program.modules]
    drawing = _Drawing(program, is_by_kernel=sum(counts) > MOST_OPERATIONS)
    drawing.draw()
    if len(drawing.boxes) > MOST_BOXES:
        return f"<p>{len(drawing.boxes)} boxes are too many for a picture; the stages below have all of it.</p>"
    used = sorted({index for arrow in drawing.arrows for index in arrow})  # what is only written has another box
    place = {index: number for number, index in enumerate(used)}
    arrows = [(place[first], place[second]) for first, second in drawing.arrows]
    return drawn([drawing.boxes[index] for index in used], arrows, "the graph of the program")


@dataclass(slots=True)
class _Drawing:
    program: RecordedProgram
    is_by_kernel: bool
    boxes: list[Box] = field(default_factory=list)
    arrows: list[tuple[int, int]] = field(default_factory=list)
    made: dict[Version, int] = field(default_factory=dict)
    """The box that each version comes from."""
    kernels: int = 0

    def draw(self) -> None:
        steps = self.program.steps
        for leaf in steps.leaves:
            self.made[leaf] = self._box(Box(leaf.name, str(leaf.note), _ARGUMENT))
        modules = iter(self.program.modules)
        for step in steps.steps:
            if isinstance(step, Region):
                self._region(step, next(modules))
            else:
                operation = step.operation
                is_view, is_ours = operation.kind is not OperationKind.CALL, operation in self.program.generated
                name = str(operation.target).removeprefix("aten.").removesuffix(".default")
                colour = _GENERATED if is_ours else _VIEW if is_view else _CALL
                detail = str(operation.products[0].note) if operation.products else ""
                box = self._box(Box(name, detail, colour, f"{operation.target} at {operation.event.place}"))
                self._lead([self.made[one] for one in operation.operands if one in self.made], box)
                self.made |= dict.fromkeys(operation.products, box)
        for version in dict.fromkeys(steps.versions.results):
            if version in self.made and version not in steps.leaves:
                self._lead([self.made[version]], self._box(Box("result", str(version.note), _ARGUMENT)))

    def _region(self, region: Region, module: CompiledModule) -> None:
        graph = module.optimized_graph
        found: dict[Node, int] = {}
        for node, version in zip(graph.inputs, region.inputs, strict=False):
            if version in self.made:
                found[node] = self.made[version]
        kernels = {node: kernel for kernel in module.kernels() for node in kernel.cluster.nodes}
        numbers: dict[int, int] = {}
        drawn_kernels: dict[int, int] = {}
        for node in graph.nodes:
            kernel = kernels.get(node)
            sources = [found[operand] for operand in node.operands if operand in found]
            if node.op.kind is Kind.VIEW and len(sources) == 1:
                found[node] = sources[0]  # costs nothing, and says little
                continue
            if kernel is None:
                found[node] = self._box(Box(node.op.name, str(node.type), _VIEW))
            else:
                number = numbers.setdefault(id(kernel), self.kernels + len(numbers))
                if not self.is_by_kernel:
                    found[node] = self._box(Box(node.op.name, str(node.type), colour_of(number), kernel.name))
                elif id(kernel) in drawn_kernels:
                    found[node] = drawn_kernels[id(kernel)]
                else:
                    found[node] = drawn_kernels[id(kernel)] = self._box(_kernel_box(kernel, number))
            self._lead(sources, found[node])
        self.kernels += len(module.kernels())
        for output, version in zip(graph.outputs, (*region.outputs, *region.writes), strict=False):
            if output.node in found:
                self.made[version] = found[output.node]
        for version in region.writes:
            if version in self.made:
                home = self.program.steps.homes.get(version, version).name
                self._lead([self.made[version]], self._box(Box(f"into {home}", str(version.note), _ARGUMENT)))

    def _box(self, box: Box) -> int:
        self.boxes.append(box)
        return len(self.boxes) - 1

    def _lead(self, sources: Sequence[int], target: int) -> None:
        self.arrows += [(source, target) for source in sources if source != target]


def _kernel_box(kernel: Kernel, number: int) -> Box:
    count = len(kernel.program.statements)
    return Box(kernel.name.rpartition("_")[0], f"{count} operations", colour_of(number), kernel.name)
