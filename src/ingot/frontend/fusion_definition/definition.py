"""FusionDefinition: a fusion under definition, and then ready to execute.

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

from ingot.base.dtypes import DataType
from ingot.base.environment_variables import environment
from ingot.base.errors import ArgumentError, DefinitionError, IngotError
from ingot.base.forks import new_lock
from ingot.base.numbers import Number, number_type
from ingot.frontend.fusion_definition.absent import absent_from_definitions
from ingot.frontend.fusion_definition.defined_values import (
    FusionScalar,
    FusionTensor,
    FusionValue,
    FusionVector,
    handle_of,
    value_for,
)
from ingot.frontend.fusion_definition.execution import ExecutionOptions, flatten, named_device
from ingot.frontend.fusion_definition.fixed_sizes import FixedSizes, replayed, sizes_to_fix
from ingot.frontend.fusion_definition.manager import FusionManager
from ingot.frontend.fusion_definition.recorded_statements import (
    AddOutput,
    Apply,
    DefineScalar,
    DefineTensor,
    DefineVector,
    Statement,
    TensorDeclaration,
    mapped,
    mapped_values,
    python_text,
)
from ingot.frontend.fusion_definition.scripts import declared_as_text, inputs_as_text, script
from ingot.frontend.fusion_definition.tensor_declaration import declare_like, declare_tensor
from ingot.frontend.fusion_definition.validation import require_as_eager, require_close_to
from ingot.ir.builder import Builder
from ingot.ir.graph import Graph
from ingot.ir.operators import Operators
from ingot.ir.verifier import verify
from ingot.ops import lookup
from ingot.ops.parameters import data_type, is_data_type
from ingot.ops.promotion import Dialect
from ingot.runtime.compiler import CompiledModule, JitCompiler
from ingot.runtime.runner import Shortcut


class FusionDefinition:
    """A fusion under definition, and then ready to execute.

    Half-precision arithmetic yields float32 until it is cast, as in nvFuser. Definitions that are equal share one
    compiled module. A subclass may override `definition` instead of using a `with` block. `device` is where a fusion
    without tensor inputs runs, if a call does not name another one.
    """

    Operators = Operators

    def __init__(
        self,
        manager: FusionManager | None = None,
        *,
        config: Mapping[str, Any] | None = None,
        device: torch.device | str | int | None = None,
    ):
        self._manager = manager or FusionManager.get()
        self._compiler = self._manager.compiler if config is None else JitCompiler(config)
        self._device = named_device(device)
        self._statements: list[Statement] = []
        self._inputs: list[FusionValue | FusionVector] = []
        self._values = 0
        self._builder = Builder(Dialect.NVFUSER)
        self._builder.close("a fusion is defined inside its `with FusionDefinition() as fd:` block")
        self._is_open = False
        self._graph: Graph | None = None
        self._module: CompiledModule | None = None
        self._failure: str | None = None
        self._last_inputs: list[str] | None = None
        self._lock = new_lock()
        self._specialised: dict[FixedSizes, CompiledModule | None] = {}
        execute, answer = FusionDefinition.execute, FusionDefinition._execute
        self._shortcut = Shortcut(self, execute, answer, ExecutionOptions.signature())
        self.ops = Operators(self)

    # --- defining -----------------------------------------------------------------------------------------------------

    def __enter__(self) -> FusionDefinition:
        if self._graph is not None or self._failure is not None or self._is_open:
            raise DefinitionError("a FusionDefinition is defined once; make a new one")
        self._is_open = True
        self._builder = Builder(Dialect.NVFUSER)
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
    ) -> FusionTensor:
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

    def from_pytorch(self, tensor: torch.Tensor, static_sizes: bool = False) -> FusionTensor:
        """An input tensor declared like an existing one: its dtype, rank and layout, and sizes 1 fixed."""
        return self._declare(declare_like(tensor, static_sizes))

    def define_scalar(self, value: Any = None, dtype: Any = None) -> FusionScalar:
        """A number: known if a value is given, otherwise an input of its own.

        define_scalar(3.0), define_scalar(3, DataType.Int)     a known number
        define_scalar(DataType.Int), define_scalar()           given at every call; a double unless a type is named
        """
        if is_data_type(value) and dtype is None:
            value, dtype = None, value
        known = data_type(dtype)
        if value is None:
            handle = self._builder.scalar_input(known or DataType.Double)
        else:
            if not isinstance(value, bool | int | float | complex):
                raise ArgumentError(f"a scalar is a Python number, not {value!r}")
            handle = self._builder.constant(value, known or number_type(value))
        scalar = FusionScalar(self, handle, self._next_number())
        self._statements.append(DefineScalar(value, handle.dtype, scalar))
        self._inputs += [scalar] if value is None else []
        return scalar

    def define_constant(self, value: Number | complex, dtype: Any = None) -> FusionScalar:
        """A known number, the older name of define_scalar(value)."""
        return self.define_scalar(value, dtype)

    def define_vector(self, size: int | Sequence[Any], dtype: Any = DataType.Int) -> FusionVector:
        """A list of sizes: known elements, or, for a single int n, n integers given as one list at every call."""
        if data_type(dtype) is not DataType.Int:
            raise ArgumentError(f"a vector holds sizes, which are {DataType.Int!r}, not {dtype!r}")
        if isinstance(size, int):
            given: int | list[Any] = size
            elements: list[Any] = [self._builder.scalar_input(DataType.Int) for _ in range(size)]
        else:
            given = list(size)
            elements = [handle_of(element) for element in given]
        handle = self._builder.vector([self._builder.size_of(element) for element in elements])
        vector = FusionVector(self, handle, self._next_number())
        self._statements.append(DefineVector(given, vector))
        self._inputs += [vector] if isinstance(size, int) else []
        return vector

    def add_output(
        self,
        value: FusionValue,
        alias_input: FusionValue | Sequence[int] | None = None,
        stride_order: Sequence[int] | None = None,
    ) -> None:
        """Make a value a result. With `alias_input` it is written into that input in place and not returned.

        A list in the second place is the order of strides, as in add_output(t, [0, 1]).
        """
        if isinstance(alias_input, list | tuple) and stride_order is None:
            alias_input, stride_order = None, alias_input
        self._builder.add_output(handle_of(value), handle_of(alias_input), stride_order)
        assert alias_input is None or isinstance(alias_input, FusionValue)
        order = None if stride_order is None else tuple(stride_order)
        self._statements.append(AddOutput(value, alias_input, order))

    def call(self, name: str, arguments: Sequence[Any] = (), keywords: Mapping[str, Any] | None = None) -> Any:
        """Apply an operator of the table, as `fd.ops.<name>` does."""
        given = dict(keywords or {})
        result = self._builder.call(name, mapped(list(arguments), handle_of), mapped_values(given, handle_of))
        op = lookup(name)
        assert op.signature is not None
        bound = mapped_values(op.signature.bind(arguments, given), lambda value: value)
        wrapped = tuple(map(self._wrap, result)) if isinstance(result, tuple) else self._wrap(result)
        self._statements.append(Apply(op, bound, wrapped))
        return wrapped

    def validate_definition(self) -> None:
        """Raise an error unless the definition has ended well and its graph keeps all rules of graphs."""
        verify(self.graph)

    # --- executing ----------------------------------------------------------------------------------------------------

    def execute(
        self,
        inputs: Sequence[Any],
        *,
        device: torch.device | str | int | None = None,
        print_repro: bool = False,
        save_repro_inputs: bool = False,
        override_user_schedule: bool = False,
        _enable_options: Sequence[str] = (),
        _disable_options: Sequence[str] = (),
        **unknown: Any,
    ) -> list[Any]:
        """Results for a list or tuple of tensors and numbers, in the order of definition.

        `device` says where to run if no input is a tensor; a number is the index of a GPU. `print_repro` prints a
        script that reproduces the call, and `save_repro_inputs` keeps what `last_repro_script` needs for one. The other
        options choose among nvFuser's own ways to compute something, and are without effect. Calls like earlier ones
        are answered by a builtin function of the same name, where nothing in them needs Python.
        """
        options = {
            "device": device,
            "print_repro": print_repro,
            "save_repro_inputs": save_repro_inputs,
            "override_user_schedule": override_user_schedule,
            "_enable_options": _enable_options,
            "_disable_options": _disable_options,
            **unknown,
        }
        if any(options.values()) or device is not None:
            return self._execute(inputs, **options)
        answer = self._shortcut.function or self._execute
        return answer(inputs)

    def _execute(self, inputs: Sequence[Any], **options: Any) -> list[Any]:
        chosen = ExecutionOptions.of(options)
        graph = self.graph
        flattened = flatten(inputs)
        if chosen.save_repro_inputs:
            self._last_inputs = inputs_as_text(inputs)
        if chosen.print_repro:
            print(self.repro_script_for(inputs), file=sys.stderr)
        device = chosen.device or self._device
        module = self._module_for(graph, flattened)
        if device is not None:
            return module.execute(flattened, device)
        results = module.execute(flattened)
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

    # --- comparing with PyTorch ---------------------------------------------------------------------------------------

    def validate(
        self,
        inputs: Sequence[Any],
        reference_outputs: Sequence[Any] | None = None,
        device: torch.device | str | int | None = None,
    ) -> list[Any]:
        """Execute, and raise ValidationError unless the results are what PyTorch computes from the same calls.

        `reference_outputs` takes the place of PyTorch's results. The inputs are left as they were; the results are
        returned.
        """
        graph, flattened, place = self.graph, flatten(inputs), named_device(device) or self._device
        copies = [value.clone() if isinstance(value, torch.Tensor) else value for value in flattened]
        with torch.random.fork_rng():
            torch.manual_seed(0)
            results = self._module_for(graph, copies).execute(copies, place)
        if reference_outputs is None:
            require_as_eager(self._statements, flattened, results, place)
        else:
            require_close_to(self._statements, flattened, results, reference_outputs, place)
        return results

    def validate_with_auto_inferred_outputs(self, fusion_outputs: Sequence[Any], inputs: Sequence[Any]) -> None:
        """Raise ValidationError unless these results are what PyTorch computes from the same calls.

        Random numbers are drawn as after torch.manual_seed(0).
        """
        require_as_eager(self._statements, flatten(inputs), fusion_outputs, self._device)

    # --- looking inside -----------------------------------------------------------------------------------------------

    def id(self) -> int:
        """The number of this fusion among those defined in this process; equal definitions have the same."""
        return self._manager.number_of(self.graph)

    def inputs(self) -> list[FusionValue | FusionVector]:
        """The tensors, numbers and vectors that a call gives, in order."""
        return list(self._inputs)

    def __repr__(self) -> str:
        """Python code that makes the same definition."""
        return python_text(self._statements)

    def fusion_ir(self, optimized: bool = False) -> str:
        """The graph as text, as defined or after optimisation."""
        return self.module.optimized_graph.text if optimized else self.graph.text

    def print_ir(self, optimized: bool = False) -> None:
        print(self.fusion_ir(optimized))

    def repro_script_for(self, inputs: Sequence[Any] | None = None) -> str:
        """A Python script that defines this fusion and executes it on inputs like the given ones, or as declared."""
        if inputs is not None:
            return script(repr(self), inputs_as_text(inputs))
        return script(repr(self), declared_as_text(self.graph), "# Sizes that the definition leaves open are 2 here.\n")

    def last_repro_script(self) -> str:
        """The script for the last call that was made with save_repro_inputs=True."""
        if self._last_inputs is None:
            raise DefinitionError("no inputs are kept; call execute(inputs, save_repro_inputs=True) first")
        return script(repr(self), self._last_inputs)

    def __getattr__(self, name: str) -> Any:
        raise absent_from_definitions(name)

    # --- recording ----------------------------------------------------------------------------------------------------

    def _declare(self, declaration: TensorDeclaration) -> FusionTensor:
        handle = self._builder.tensor_input(declaration.shape, declaration.dtype)
        tensor = FusionTensor(self, handle, self._next_number())
        self._statements.append(DefineTensor(declaration, tensor))
        self._inputs.append(tensor)
        return tensor

    def _wrap(self, result: Any) -> Any:
        return value_for(self, result, self._next_number())

    def _next_number(self) -> int:
        self._values += 1
        return self._values - 1

    def _fail(self, error: BaseException) -> None:
        self._failure = f"{type(error).__name__}: {error}"
        self._builder.close(f"this definition failed and cannot be used: {self._failure}")

    # --- specialisations ----------------------------------------------------------------------------------------------

    def _module_for(self, graph: Graph, inputs: list[Any]) -> CompiledModule:
        """The module for these inputs: usually the one of the definition itself."""
        if len(inputs) != len(graph.inputs):
            return self.module  # which reports it
        fixed = sizes_to_fix(graph, inputs)
        if fixed is None:
            return self.module
        with self._lock:
            if fixed not in self._specialised:
                self._specialised[fixed] = self._specialise(fixed)
            return self._specialised[fixed] or self.module

    def _specialise(self, fixed: FixedSizes) -> CompiledModule | None:
        """The definition with some sizes fixed; None where it makes no sense then."""
        try:
            return self._compiler.compile(replayed(self._statements, fixed))
        except IngotError:
            return None
