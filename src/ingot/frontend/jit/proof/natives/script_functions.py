"""Calls of TorchScript functions: what `torch.jit.script` makes of a function.

In: such a function, and arguments on the CPU. Out: what it gives. What always holds: its graph holds operations of
PyTorch's that a recording sees, and arithmetic of sizes and numbers; nothing in it reads values of tensors, writes into
tensors, draws random numbers or prints. Tensors that it makes of numbers (`torch.tensor`) no recording sees being made;
they are made of sizes and plain arguments alone, so they are the same at every call like the recorded one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch

from ingot.frontend.jit.proof.domain.abstract_values import AbstractValue, is_tensor, plain
from ingot.frontend.jit.proof.domain.place_guards import Switch
from ingot.frontend.jit.proof.semantics import operations, torch_names
from ingot.frontend.jit.proof.semantics.torch_names import words

if TYPE_CHECKING:
    from ingot.frontend.jit.proof.walk.walker import Walker

Arguments = dict[str, AbstractValue]
ScriptFunction: Any = torch.jit.ScriptFunction  # pyright: ignore[reportAttributeAccessIssue]
_STRUCTURE = words(
    """
    prim::Constant prim::ListConstruct prim::TupleConstruct prim::ListUnpack prim::TupleUnpack prim::If prim::Loop
    prim::RaiseException prim::unchecked_cast prim::Uninitialized prim::min prim::max
    """
)
_OF_NUMBERS = words(
    """
    __getitem__ slice len eq ne lt le gt ge add sub mul div floordiv remainder neg __not__ __and__ __or__ __is__
    __isnot__ Int Float Bool sqrt ceil floor log pow min max tensor
    """
)
"""What is done with numbers and lists of them: it depends on nothing else, and changes nothing."""
_OF_METADATA = words("aten::size aten::dim aten::len prim::dtype prim::device")
"""What is asked of a tensor without reading its values."""
_FUSERS = tuple(
    getattr(torch._C, name) for name in ("_jit_can_fuse_on_cpu", "_jit_llga_enabled") if hasattr(torch._C, name)
)
"""Whether TorchScript may run code of its own in place of operations."""


def handler_of(called: Any) -> Callable[[Any, list[AbstractValue], Arguments], AbstractValue]:
    def handle(walker: Walker, args: list[AbstractValue], kwargs: Arguments) -> AbstractValue:
        name = f"the TorchScript function {called.name}"
        for value in (*args, *kwargs.values()):
            if not (plain(value) or is_tensor(value)):
                walker.refuse(f"calls {name} with an object that is not understood")
            device = operations.meta_of(walker, value).device if is_tensor(value) else None
            if is_tensor(value) and (device is None or device.type != "cpu"):
                walker.refuse(f"calls {name} with tensors that are not known to be on the CPU")
        if walker.is_autocast or any(may_fuse() for may_fuse in _FUSERS):
            walker.refuse(f"calls {name} where it is not certain which operations it runs")
        for may_fuse in _FUSERS:
            walker.guard((Switch, id(may_fuse)), lambda: Switch(may_fuse, False, may_fuse.__name__))  # noqa: B023
        graph = called.inlined_graph
        unknown = next((node for node in _nodes(graph) if not _is_known(node)), None)
        if unknown is not None:
            walker.refuse(f"calls {name}, in which {unknown.kind()} is not an operation on tensors alone")
        walker.may_raise()
        walker.sizes.forbid(f"{name} may look at sizes")
        walker.calls_script = True
        call = operations.OperationCall(walker, name, "script")
        try:
            real_args = [call.real(value) for value in args]
            real_kwargs = {key: call.real(value) for key, value in kwargs.items()}
        except operations.UnknownArgument:
            walker.refuse(f"calls {name} with tensors whose sizes are not known here")
        twin = torch._C._create_function_from_graph("twin", graph.copy())  # which notes no calls in the user's function
        return call.value_of(_without_memory(call.run(twin, real_args, real_kwargs)))

    return handle


def _nodes(block: Any) -> Iterator[Any]:
    for node in block.nodes():
        yield node
        for inner in node.blocks():
            yield from _nodes(inner)


def _is_known(node: Any) -> bool:
    kind, short = node.kind(), node.kind().rpartition("::")[2]
    takes, gives = (any(map(_holds_tensor, values)) for values in (node.inputs(), node.outputs()))
    if kind == "prim::Constant":
        return not gives
    if kind in _STRUCTURE or kind in _OF_METADATA:
        return True
    if not kind.startswith("aten::") or (gives and all(map(_is_constant, node.inputs()))):
        return False
    if not takes and short not in torch_names.DETERMINISTIC_FACTORIES - {"tensor"}:
        return short in _OF_NUMBERS
    return gives and _is_operation(node.schema(), short)


def _is_constant(value: Any) -> bool:
    """Whether a value is the same at every call: TorchScript makes tensors of such values once, after a few calls."""
    node = value.node()
    if node.kind() in ("prim::Constant", "prim::Param"):
        return node.kind() == "prim::Constant"
    return all(map(_is_constant, node.inputs()))


def _holds_tensor(value: Any) -> bool:
    return "Tensor" in str(value.type())


def _is_operation(text: str, short: str) -> bool:
    """Whether a schema is that of an operation which goes through PyTorch's dispatcher and only computes."""
    schema = torch._C.parse_schema(text)
    if short in torch_names.REFUSED or short in torch_names.RANDOM or schema.is_mutable:
        return False
    if any(str(returned.type) not in ("Tensor", "Tensor[]") for returned in schema.returns):
        return False
    name = f"{schema.name}.{schema.overload_name}" if schema.overload_name else schema.name
    overload: Any = getattr(torch.ops.aten, short, None)
    overload = getattr(overload, schema.overload_name or "default", None)
    is_random = overload is None or torch.Tag.nondeterministic_seeded in overload.tags
    return not is_random and torch._C._dispatch_has_kernel(name)


def _without_memory(result: Any) -> Any:
    if isinstance(result, torch.Tensor):
        return result.to("meta")
    if isinstance(result, list | tuple):
        return type(result)(map(_without_memory, result))
    return result
