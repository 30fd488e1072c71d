"""Machine code for a step of Adam over many parameters of float32 at once.

Parameters lie in as many places as there are tensors. Threads share tasks, each of which is a part of one tensor: small
tensors are one task each, large ones many. Two functions:

    count   for each tensor: its step count is one more, and the factors that follow from it, in double precision
    update  for each task: parameters, averages and averages of squares, element by element

        gradient = sign * gradient (+ decay * parameter)        decay that is not apart goes into the gradient
        parameter = parameter * shrinking                       decay that is
        average = average + (1 - beta1) * (gradient - average)
        square = beta2 * square + (1 - beta2) * gradient * gradient
        parameter = parameter - step size * average / (sqrt(square) / root of correction + eps)
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from typing import Any

from ingot.codegen.cpu.common import provide
from ingot.codegen.cpu.frame import counted, minimum
from ingot.codegen.cpu.products.parallel_functions import FLOAT, ParallelFunction, ProductTile
from ingot.codegen.llvm import ir
from ingot.codegen.llvm.constants import constant
from ingot.codegen.llvm.host import Compiled, Host, HostModule, host
from ingot.codegen.llvm.object_code import CodeStore
from ingot.codegen.llvm.storage import BYTE_POINTER, WORD

CHUNK = 1 << 14
"""Elements of a task."""
_DOUBLE = ir.DoubleType()
_ENTRIES = ("count", "update")


class StepWord(IntEnum):
    """The array of words that the functions take: addresses of arrays, counts, and numbers of double precision."""

    PARAMETERS = 0
    """An address for each tensor; so are the next ones."""
    GRADIENTS = 1
    AVERAGES = 2
    SQUARES = 3
    COUNTS = 4
    FACTORS = 5
    """For each tensor two numbers of double precision: the step size, and the root of the second correction."""
    SIZES = 6
    """How many elements each tensor has."""
    TASK_TENSORS = 7
    """For each task its tensor, and in the next array its first element."""
    TASK_STARTS = 8
    TENSORS = 9
    TASKS = 10
    THREADS = 11
    RATE = 12
    BETA1 = 13
    BETA2 = 14
    SHRINKING = 15
    """1 - rate * decay, where weights decay apart from the gradients; otherwise 1."""
    DECAY = 16
    """What goes into gradients; 0 where weights decay apart from them."""
    EPS = 17
    SIGN = 18
    """-1 where the objective is maximized."""


@dataclass(frozen=True, slots=True)
class CompiledSteps:
    """Addresses of functions that take an array of words."""

    code: Compiled
    count: int
    update: int


@lru_cache(maxsize=1)
def compiled_steps(store: CodeStore | None = None) -> CompiledSteps:
    """Machine code for this processor."""
    provide(store)
    code = Compiled(lambda: steps_module(host()), "optimizer steps", ", ".join(_ENTRIES), store, "optimizer steps")
    return CompiledSteps(code, *map(code.address, _ENTRIES))


def steps_module(host: Host) -> HostModule:
    """The functions as LLVM has them, for any processor."""
    module = HostModule(host)
    _emit_count(module)
    _emit_update(module)
    return module


def _emit_count(module: HostModule) -> None:
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [ir.PointerType(WORD)]), "count")
    power = ir.Function(module, ir.FunctionType(_DOUBLE, [_DOUBLE, _DOUBLE]), "pow")
    root = ir.Function(module, ir.FunctionType(_DOUBLE, [_DOUBLE]), "llvm.sqrt.f64")
    builder: Any = ir.IRBuilder(function)
    words = function.arguments[0]
    word = lambda which: builder.load(builder.gep(words, WORD(which)))
    number = lambda which: builder.bitcast(word(which), _DOUBLE)
    counts = builder.inttoptr(word(StepWord.COUNTS), ir.PointerType(WORD))
    factors = builder.inttoptr(word(StepWord.FACTORS), ir.PointerType(_DOUBLE))
    one = constant(_DOUBLE, 1.0)
    with counted(builder, WORD(0), word(StepWord.TENSORS)) as tensor:
        place = builder.inttoptr(builder.load(builder.gep(counts, tensor)), ir.PointerType(FLOAT))
        steps = builder.fadd(builder.load(place), constant(FLOAT, 1.0))
        builder.store(steps, place)
        exact = builder.fpext(steps, _DOUBLE)
        corrections = [
            builder.fsub(one, builder.call(power, [number(beta), exact])) for beta in (StepWord.BETA1, StepWord.BETA2)
        ]
        first = builder.mul(tensor, WORD(2))
        builder.store(builder.fdiv(number(StepWord.RATE), corrections[0]), builder.gep(factors, first))
        builder.store(builder.call(root, [corrections[1]]), builder.gep(factors, builder.add(first, WORD(1))))
    builder.ret_void()


def _emit_update(module: HostModule) -> None:
    region = ParallelFunction(module, ProductTile.of(module.host), "update")
    builder = region.builder
    _, first, last = region.function.arguments
    with counted(builder, first, last) as task:
        tensor, begin = (_item(region, which, task) for which in (StepWord.TASK_TENSORS, StepWord.TASK_STARTS))
        end = minimum(builder, builder.add(begin, WORD(CHUNK)), _item(region, StepWord.SIZES, tensor))
        update = _Update(module, region, tensor)
        lanes = region.tile.lanes
        whole = builder.add(begin, builder.mul(builder.udiv(builder.sub(end, begin), WORD(lanes)), WORD(lanes)))
        for start, stop, width in ((begin, whole, lanes), (whole, end, 1)):
            with counted(builder, start, stop, width) as element:
                update.emit(element, width)
    region.finish(StepWord.THREADS, StepWord.TASKS)


def _item(region: ParallelFunction, which: StepWord, index: ir.Value) -> ir.Value:
    """An item of an array of words."""
    builder = region.builder
    return builder.load(builder.gep(builder.bitcast(region.pointer(which), ir.PointerType(WORD)), index))


class _Update:
    """What is done to elements of one tensor."""

    def __init__(self, module: HostModule, region: ParallelFunction, tensor: ir.Value):
        self._module, self._region, self._builder = module, region, region.builder
        arrays = (StepWord.PARAMETERS, StepWord.GRADIENTS, StepWord.AVERAGES, StepWord.SQUARES)
        self._places = [region.builder.inttoptr(_item(region, which, tensor), BYTE_POINTER) for which in arrays]
        factors = region.builder.bitcast(region.pointer(StepWord.FACTORS), ir.PointerType(_DOUBLE))
        at = region.builder.mul(tensor, WORD(2))
        read = lambda index: region.builder.load(region.builder.gep(factors, index))
        self._step_size, self._root = self._rounded(read(at)), self._rounded(read(region.builder.add(at, WORD(1))))
        one = constant(_DOUBLE, 1.0)
        betas = [self._number(which) for which in (StepWord.BETA1, StepWord.BETA2)]
        self._weights = [self._rounded(region.builder.fsub(one, beta)) for beta in betas]
        self._beta2 = self._rounded(betas[1])
        names = (StepWord.SHRINKING, StepWord.DECAY, StepWord.EPS, StepWord.SIGN)
        self._shrinking, self._decay, self._eps, self._sign = (self._rounded(self._number(name)) for name in names)

    def _number(self, which: StepWord) -> ir.Value:
        return self._builder.bitcast(self._region.word(which), _DOUBLE)

    def _rounded(self, number: ir.Value) -> ir.Value:
        """PyTorch computes such numbers in double precision, and rounds them when elements are multiplied by them."""
        return self._builder.fptrunc(number, FLOAT)

    def emit(self, element: ir.Value, lanes: int) -> None:
        builder = self._builder
        kind = FLOAT if lanes == 1 else ir.VectorType(FLOAT, lanes)
        spread = lambda value: value if lanes == 1 else self._region.spread(value)
        places = [builder.bitcast(self._region.further(one, element), ir.PointerType(kind)) for one in self._places]
        parameter, gradient, average, square = (builder.load(place, align=4) for place in places)
        gradient = builder.fmul(spread(self._sign), gradient)
        # 0 times a parameter that is infinite is not 0, so what does not decay is not multiplied.
        decayed = builder.fadd(gradient, builder.fmul(spread(self._decay), parameter))
        is_decaying = builder.fcmp_unordered("!=", self._decay, constant(FLOAT, 0.0))
        gradient = builder.select(is_decaying, decayed, gradient)
        parameter = builder.fmul(parameter, spread(self._shrinking))
        first, second = (spread(weight) for weight in self._weights)
        average = builder.fadd(average, builder.fmul(first, builder.fsub(gradient, average)))
        squared = builder.fmul(builder.fmul(second, gradient), gradient)
        square = builder.fadd(builder.fmul(spread(self._beta2), square), squared)
        divisor = builder.fadd(builder.fdiv(self._root_of(square, kind), spread(self._root)), spread(self._eps))
        change = builder.fmul(spread(self._step_size), builder.fdiv(average, divisor))
        updated = builder.fsub(parameter, change), average, square
        for value, place in zip(updated, (places[0], *places[2:]), strict=True):
            builder.store(value, place, align=4)

    def _root_of(self, value: ir.Value, kind: ir.Type) -> ir.Value:
        name = "llvm.sqrt.f32" if kind is FLOAT else f"llvm.sqrt.v{kind.count}f32"  # type: ignore[attr-defined]
        found = self._module.functions.get(name) or ir.Function(self._module, ir.FunctionType(kind, [kind]), name)
        return self._builder.call(found, [value])
