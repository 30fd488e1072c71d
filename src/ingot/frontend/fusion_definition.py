"""FusionDefinition: nvFuser's way to write a fusion, operation by operation.

    with FusionDefinition() as fd:
        t0 = fd.define_tensor(shape=[-1, -1])
        fd.add_output(fd.ops.softmax(t0, -1))
    (result,) = fd.execute([x])

A definition is made once, inside its `with` block, by one thread; executing it is safe from any number of threads.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from ingot.base import sizes
from ingot.base.dtypes import DataType
from ingot.base.environment_variables import environment
from ingot.base.errors import ArgumentError, DefinitionError, IngotError
from ingot.base.forks import new_lock
from ingot.base.numbers import Number, number_type
from ingot.base.sizes import SizeExpression
from ingot.base.types import TensorType
from ingot.frontend.fusion_manager import FusionManager
from ingot.frontend.fusion_statements import (
    AddOutput,
    Apply,
    DefineScalar,
    DefineTensor,
    DefineVector,
    Statement,
    TensorDeclaration,
    flat,
    mapped,
    python_text,
)
from ingot.frontend.tensor_declaration import declare_like, declare_tensor
from ingot.frontend.validation import require_close, run_eagerly
from ingot.ir.builder import Builder
from ingot.ir.graph import Graph
from ingot.ir.handles import Handle, Scalar, Tensor, Vector
from ingot.ir.operators import Operators
from ingot.ops import Op
from ingot.ops.parameters import data_type
from ingot.ops.promotion import Dialect
from ingot.runtime.compiler import CompiledModule, JitCompiler
from ingot.runtime.runner import Shortcut

FixedSizes = tuple[tuple[int | None, ...], ...]
"""Per input and axis, a size that is fixed; None for those left as declared."""


class FusionDefinition:
    """A fusion under definition, and then ready to execute.

    Half-precision arithmetic yields float32 until it is cast, as in nvFuser. Definitions that are equal share one
    compiled module. A subclass may override `definition` instead of using a `with` block.
    """

    Operators = Operators

    def __init__(self, manager: FusionManager | None = None, *, config: Mapping[str, Any] | None = None):
        self._manager = manager or FusionManager.get()
        self._compiler = self._manager.compiler if config is None else JitCompiler(config)
        self._statements: list[Statement] = []
        self._builder = Builder(Dialect.NVFUSER, recorder=self._record)
        self._builder.close("a fusion is defined inside its `with FusionDefinition() as fd:` block")
        self._is_open = False
        self._graph: Graph | None = None
        self._module: CompiledModule | None = None
        self._failure: str | None = None
        self._lock = new_lock()
        self._specialised: dict[FixedSizes, CompiledModule | None] = {}
        execute, answer = FusionDefinition.execute, FusionDefinition._execute
        self._shortcut = Shortcut(self, execute, answer, "(inputs, *, device=None)")
        self.ops = Operators(self._builder)

    # --- defining -----------------------------------------------------------------------------------------------------

    def __enter__(self) -> FusionDefinition:
        if self._graph is not None or self._failure is not None or self._is_open:
            raise DefinitionError("a FusionDefinition is defined once; make a new one")
        self._is_open = True
        self._builder = Builder(Dialect.NVFUSER, recorder=self._record)
        self.ops = Operators(self._builder)
        return self

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        self._is_open = False
        if error is not None:
            self._fail(error)
            return
        try:
            self._graph = self._builder.build()
        except IngotError as problem:
            self._fail(problem)
            raise
        self._builder.close("the definition has ended; make a new FusionDefinition to define something else")
        self._manager.remember(self)
        if "python_definition" in environment().dump:
            print(repr(self), file=sys.stderr)

    def definition(self) -> None:
        """Override this in a subclass to define the fusion without a `with` block."""
        raise DefinitionError("nothing is defined yet; define the fusion inside `with FusionDefinition() as fd:`")

    def define_tensor(
        self,
        shape: int | Sequence[int] | None = None,
        contiguity: bool | Sequence[bool | None] | None = None,
        dtype: Any = DataType.Float,
        is_cpu: bool = False,
        stride_order: Sequence[int] | None = None,
        *,
        ndims: int | None = None,
        symbolic_sizes: Sequence[int] | None = None,
        contiguous: bool | Sequence[bool | None] | None = None,
        sizes: Sequence[int] | None = None,
        strides: Sequence[int] | None = None,
        static_sizes: bool = False,
    ) -> Tensor:
        """An input tensor, in any of nvFuser's spellings.

            define_tensor(3)                                                 rank 3, any sizes
            define_tensor(shape=[-1, 1, 8], contiguity=True, dtype=DataType.Half)
            define_tensor(symbolic_sizes=[-1, 1, 8], contiguous=[True] * 3)  the older names
            define_tensor(sizes=t.size(), strides=t.stride())                like a tensor; static_sizes=True fixes it

        In a shape, -1 is any size, 1 a dimension that broadcasts, anything else a fixed size. Contiguity and
        stride_order describe the layout that is expected; tensors of any other layout are read as they are.
        """
        return self._declare(
            declare_tensor(
                shape=shape,
                contiguity=contiguity,
                dtype=dtype,
                is_cpu=is_cpu,
                stride_order=stride_order,
                ndims=ndims,
                symbolic_sizes=symbolic_sizes,
                contiguous=contiguous,
                sizes=sizes,
                strides=strides,
                static_sizes=static_sizes,
            )
        )

    def from_pytorch(self, tensor: torch.Tensor, static_sizes: bool = False) -> Tensor:
        """An input tensor declared like an existing one: its dtype, rank and layout, and sizes 1 fixed."""
        return self._declare(declare_like(tensor, static_sizes))

    def define_scalar(self, value: Number | None = None, dtype: Any = None) -> Scalar:
        """A number: known if a value is given, otherwise an input of its own."""
        known = data_type(dtype)
        if value is None:
            scalar = self._builder.scalar_input(known or DataType.Double)
        else:
            if not isinstance(value, bool | int | float):
                raise ArgumentError(f"a scalar is a Python number, not {value!r}")
            known = known or number_type(value)
            scalar = self._builder.constant(value, known)
        self._record_statement(DefineScalar(value, scalar.dtype, scalar))
        return scalar

    def define_constant(self, value: Number, dtype: Any = None) -> Scalar:
        """A known number, the older name of define_scalar(value)."""
        return self.define_scalar(value, dtype)

    def define_vector(self, values: int | Sequence[Any]) -> Vector:
        """A list of sizes: known elements, or, for a single int n, n integers given as one list at every call."""
        if isinstance(values, int):
            scalars = [self._builder.scalar_input(DataType.Int) for _ in range(values)]
            vector = self._builder.vector([self._builder.size_of(scalar) for scalar in scalars])
        else:
            vector = self._builder.vector([self._builder.size_of(value) for value in values])
            values = list(values)
        self._record_statement(DefineVector(values, vector))
        return vector

    def add_output(
        self,
        output: Handle,
        alias_input: Handle | None = None,
        stride_order: Sequence[int] | None = None,
    ) -> None:
        """Make a value a result. With `alias_input` it is written into that input in place and not returned."""
        self._builder.add_output(output, alias_input, stride_order)
        order = None if stride_order is None else tuple(stride_order)
        self._record_statement(AddOutput(output, alias_input, order))

    # --- executing ----------------------------------------------------------------------------------------------------

    def execute(self, inputs: Sequence[Any], *, device: torch.device | str | None = None) -> list[Any]:
        """Results for a list or tuple of tensors and numbers, in the order of definition.

        `device` says where to run if no input is a tensor. Calls like earlier ones are answered by a builtin function
        of the same name, where nothing in them needs Python.
        """
        answer = self._shortcut.function or self._execute
        return answer(inputs) if device is None else answer(inputs, device=device)

    def _execute(self, inputs: Sequence[Any], *, device: torch.device | str | None = None) -> list[Any]:
        graph = self.graph
        flattened = self._flatten(inputs)
        module = self._module_for(graph, flattened)
        results = module.execute(flattened) if device is None else module.execute(flattened, device)
        record = module.record_for(flattened)
        if record is not None:
            self._shortcut.add(record)
        return results

    @property
    def graph(self) -> Graph:
        """The graph of this definition, as it was written."""
        with self._lock:
            if self._failure is not None:
                raise DefinitionError(f"this definition failed and cannot be used: {self._failure}")
            if self._is_open:
                raise DefinitionError("the definition is still open; use it after its `with` block")
            if self._graph is None:
                with self:
                    self.definition()
            assert self._graph is not None
            return self._graph

    @property
    def module(self) -> CompiledModule:
        """The compiled module, shared by all equal definitions."""
        if self._module is None:
            self._module = self._compiler.compile(self.graph)
        return self._module

    def validate(self, inputs: Sequence[Any], reference_outputs: Sequence[Any] | None = None) -> list[Any]:
        """Execute, and raise ValidationError unless the results are what PyTorch computes from the same calls.

        `reference_outputs` takes the place of PyTorch's results. The inputs are left as they were; the results are
        returned.
        """
        flattened = self._flatten(inputs)
        copies = [value.clone() if isinstance(value, torch.Tensor) else value for value in flattened]
        with torch.random.fork_rng():
            torch.manual_seed(0)
            results = self._module_for(self.graph, copies).execute(copies)
            torch.manual_seed(0)
            expected = reference_outputs if reference_outputs is not None else run_eagerly(self._statements, flattened)
        require_close(results, expected)
        return results

    # --- looking inside -----------------------------------------------------------------------------------------------

    def __repr__(self) -> str:
        """Python code that makes the same definition."""
        return python_text(self._statements)

    def fusion_ir(self, optimized: bool = False) -> str:
        """The graph as text, as defined or after optimisation."""
        return self.module.optimized_graph.text if optimized else self.graph.text

    def print_ir(self, optimized: bool = False) -> None:
        print(self.fusion_ir(optimized))

    def repro_script_for(self, inputs: Sequence[Any]) -> str:
        """A Python script that defines this fusion and executes it on inputs like the given ones."""
        made = ",\n    ".join(_input_text(value) for value in inputs)
        return (
            "import torch\n\nfrom ingot import DataType, FusionDefinition\n\n\n"
            f"{self!r}\n\n\n"
            "with FusionDefinition() as fd:\n    nvfuser_fusion(fd)\n\n"
            f"inputs = [\n    {made},\n]\nprint(fd.execute(inputs))\n"
        )

    # --- recording ----------------------------------------------------------------------------------------------------

    def _declare(self, declaration: TensorDeclaration) -> Tensor:
        tensor = self._builder.tensor_input(declaration.shape, declaration.dtype)
        self._record_statement(DefineTensor(declaration, tensor))
        return tensor

    def _record(self, op: Op, arguments: dict[str, Any], result: Any) -> None:
        self._record_statement(Apply(op, arguments, result))

    def _record_statement(self, statement: Statement) -> None:
        self._statements.append(statement)

    def _fail(self, error: BaseException) -> None:
        self._failure = f"{type(error).__name__}: {error}"
        self._builder.close(f"this definition failed and cannot be used: {self._failure}")

    # --- inputs and specialisations -----------------------------------------------------------------------------------

    def _flatten(self, inputs: Sequence[Any]) -> list[Any]:
        """The inputs with the numbers of each vector input in a row."""
        if not isinstance(inputs, list | tuple):
            raise ArgumentError(f"inputs must be a list or tuple of tensors and numbers, not {type(inputs).__name__}")
        flattened: list[Any] = []
        for value in inputs:
            flattened.extend(value if isinstance(value, list | tuple) else [value])
        return flattened

    def _module_for(self, graph: Graph, inputs: list[Any]) -> CompiledModule:
        """The module for these inputs: usually the one of the definition itself.

        A size declared as -1 is taken neither to broadcast nor to be empty. Where it turns out to be 1 and equal sizes
        were assumed, or to be 0, the definition is replayed with that size fixed, so that it does what PyTorch does.
        """
        if len(inputs) != len(graph.inputs):
            return self.module  # which reports it
        special = (0, 1) if graph.assumptions else (0,)
        fixed = tuple(
            _special_sizes(node.type, value, special) for node, value in zip(graph.inputs, inputs, strict=True)
        )
        if all(size is None for sizes_ in fixed for size in sizes_):
            return self.module
        with self._lock:
            if fixed not in self._specialised:
                self._specialised[fixed] = self._specialise(fixed)
            return self._specialised[fixed] or self.module

    def _specialise(self, fixed: FixedSizes) -> CompiledModule | None:
        """The definition with some sizes fixed; None where it makes no sense then."""
        builder = Builder(Dialect.NVFUSER)
        try:
            replay(self._statements, builder, fixed)
            return self._compiler.compile(builder.build())
        except IngotError:
            return None


def replay(statements: Sequence[Statement], builder: Builder, fixed_sizes: FixedSizes) -> None:
    """Make a recorded definition again, with some sizes of its inputs fixed."""
    values: dict[int, Any] = {}
    fixed: dict[str, sizes.Size] = {}
    position = 0

    def replace(value: Any) -> Any:
        if isinstance(value, Handle | Vector):
            return values[id(value)]
        return sizes.substitute(value, fixed) if isinstance(value, SizeExpression) else value

    for statement in statements:
        match statement:
            case DefineTensor(declaration, result):
                for number, size in zip(fixed_sizes[position], result.shape, strict=True):
                    if number is not None:
                        fixed[str(size)] = number
                values[id(result)] = builder.tensor_input([replace(size) for size in result.shape], declaration.dtype)
                position += 1
            case DefineScalar(value, dtype, result):
                values[id(result)] = builder.scalar_input(dtype) if value is None else builder.constant(value, dtype)
                position += value is None
            case DefineVector(given, result):
                if isinstance(given, int):
                    elements = [builder.size_of(builder.scalar_input(DataType.Int)) for _ in range(given)]
                    position += given
                else:
                    elements = [builder.size_of(replace(value)) for value in given]
                values[id(result)] = builder.vector(elements)
            case Apply(op, arguments, result):
                again = builder.call(op.name, (), {name: mapped(v, replace) for name, v in arguments.items()})
                values.update((id(old), new) for old, new in zip(flat(result), flat(again), strict=True))
            case AddOutput(value, alias_input, stride_order):
                target = None if alias_input is None else replace(alias_input)
                builder.add_output(replace(value), target, stride_order)


def _special_sizes(declared: Any, value: Any, special: Sequence[int]) -> tuple[int | None, ...]:
    """Per axis of an input, the symbolic size that turned out to be one of the special ones, or None."""
    if not isinstance(declared, TensorType):
        return ()
    if not isinstance(value, torch.Tensor) or value.dim() != declared.rank:
        return (None,) * declared.rank  # a wrong input, which the call itself reports
    return tuple(
        actual if actual in special and isinstance(size, SizeExpression) else None
        for size, actual in zip(declared.shape, value.shape, strict=True)
    )


def _input_text(value: Any) -> str:
    """Python code for an input like a given one: same dtype, shape, strides and device, other values."""
    if not isinstance(value, torch.Tensor):
        return repr(value)
    made = f"torch.testing.make_tensor({tuple(value.shape)}, dtype={value.dtype}, device={str(value.device)!r})"
    if value.is_contiguous():
        return made
    options = f"dtype={value.dtype}, device={str(value.device)!r}"
    return f"torch.empty_strided({tuple(value.shape)}, {value.stride()}, {options}).copy_({made})"
