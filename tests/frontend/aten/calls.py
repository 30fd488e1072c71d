"""Recorded calls of PyTorch's operators, and whether their lowering says the same.

In: a function that calls PyTorch. Out: the calls it made, with copies of arguments and results; each can be written as
a graph of its own, run by the interpreter and by compiled kernels, and compared with what PyTorch returned.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode

from ingot import DataType, GraphBuilder, IngotError, JitCompiler
from ingot.base.types import ScalarType, TensorType
from ingot.frontend.aten import lowering_for
from ingot.ir.graph import Graph
from ingot.ir.interpreter import Interpreter
from ingot.ir.node import Node
from ingot.ir.torch_types import from_torch
from ingot.ops import Kind
from ingot.ops.samples import EXACT, Tolerance
from tests.ops.generation import assert_matches

COMPUTED = Tolerance(ulps=64, scale=16.0, half_ulps=2)
COMPUTING = (Kind.POINTWISE, Kind.REDUCTION, Kind.SCAN)


@dataclass(frozen=True)
class Call:
    overload: OpOverload
    arguments: Sequence[Any]
    keywords: Mapping[str, Any]
    results: Sequence[torch.Tensor]

    @property
    def name(self) -> str:
        return str(self.overload).removeprefix("aten.")


class Recorder(TorchDispatchMode):
    """Remembers the calls made while it is active."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Call] = []

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Keeps torch._dynamo from being imported."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        arguments, keywords = _copied(args), _copied(kwargs or {})
        results = func(*args, **(kwargs or {}))
        listed = results if isinstance(results, tuple | list) else (results,)
        if all(isinstance(result, torch.Tensor) for result in listed):
            self.calls.append(Call(func, arguments, keywords, _copied(list(listed))))
        return results


def recorded(function: Callable[[], Any]) -> list[Call]:
    """The calls a function makes, whether it warns or not."""
    with warnings.catch_warnings(), Recorder() as recorder:
        warnings.simplefilter("ignore")
        function()
    return recorder.calls


def one_call(overload: OpOverload, *arguments: Any, **keywords: Any) -> Call:
    """A call of one overload, with what PyTorch returns."""
    with torch.no_grad():
        results = overload(*_copied(arguments), **_copied(keywords))
    listed = results if isinstance(results, tuple | list) else (results,)
    return Call(overload, arguments, keywords, _copied(list(listed)))


def _copied(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    if isinstance(value, list | tuple):
        return [_copied(element) for element in value]
    if isinstance(value, dict):
        return {name: _copied(element) for name, element in value.items()}
    return value


def graph_of(call: Call, device: str = "cpu") -> tuple[Graph, list[torch.Tensor]]:
    """The graph of one call as on a kind of device, and its inputs; an IngotError where it is left to PyTorch."""
    builder = GraphBuilder(from_torch(torch.get_default_dtype()) or DataType.Float)
    inputs: list[torch.Tensor] = []

    def handle(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            if value.layout is not torch.strided or value.is_conj() or value.is_neg():
                raise IngotError("not an ordinary tensor")
            inputs.append(value)
            return builder.tensor_input(value.shape, from_torch(value.dtype) or DataType.ComplexFloat)
        return [handle(element) for element in value] if isinstance(value, list | tuple) else value

    arguments = [handle(argument) for argument in call.arguments]
    keywords = {name: handle(value) for name, value in call.keywords.items()}
    lowering = lowering_for(call.overload, device)
    assert lowering is not None, f"{call.overload} has no lowering"
    results = lowering(builder, arguments, keywords)
    builder.output(*(results if isinstance(results, tuple) else (results,)))
    return builder.build(), inputs


def check(call: Call, compiler: JitCompiler | None, device: str = "cpu") -> bool:
    """Whether the call was lowered, and not left to PyTorch; an AssertionError where results differ."""
    try:
        graph, inputs = graph_of(call, device)
    except IngotError:
        return False
    exact = not any(map(_rounds, graph.nodes))
    runs = {"the interpreter": lambda: Interpreter(graph).run(inputs)}
    if compiler is not None:
        runs["kernels"] = lambda: compiler.compile(graph).execute(inputs)
    for runner, run in runs.items():
        about = f"by {runner} for {describe(call)}\n{graph.text}"
        actual = run()
        assert len(actual) == len(call.results), f"{len(actual)} results {about}"
        for ours, theirs in zip(actual, call.results, strict=True):
            assert_matches(ours, theirs, EXACT if exact else COMPUTED, signed_zeros=exact, about=about)
    return True


def _rounds(node: Node) -> bool:
    """Whether a node computes with floating-point numbers; of all others every bit must be the same."""
    is_float = isinstance(node.type, TensorType | ScalarType) and node.type.dtype.is_float
    return is_float and node.op.kind in COMPUTING and node.op.name not in ("where", "cast")


def describe(call: Call) -> str:
    def text(value: Any) -> str:
        if isinstance(value, torch.Tensor):
            return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
        return f"[{', '.join(map(text, value))}]" if isinstance(value, list | tuple) else repr(value)

    keywords = [f"{name}={text(value)}" for name, value in call.keywords.items()]
    return f"{call.overload}({', '.join([*map(text, call.arguments), *keywords])})"
