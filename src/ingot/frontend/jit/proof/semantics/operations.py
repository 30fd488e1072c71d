"""Operations of PyTorch on abstract tensors.

In: an operation and its arguments. Out: what it gives: tensors with known shape and dtype, or plain values. Operations
run on tensors without memory ("meta"), under which everything that reads values raises; tensors that were made of
constants alone also have their values, as long as those are integers or truth values. What always holds: no operation
runs on a tensor of the user's, and none draws random numbers.
"""

from __future__ import annotations

import builtins
import types
import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from ingot.frontend.jit.proof.domain import answers, open_sizes
from ingot.frontend.jit.proof.domain.abstract_values import (
    AbstractTensor,
    AbstractValue,
    Determined,
    Fresh,
    Known,
    Open,
    OpenTuple,
    ReadNumber,
    Tuple,
    Union,
    is_tensor,
    known,
    plain,
)
from ingot.frontend.jit.proof.domain.place_guards import ABSENT, TensorMetadata, WholeDict, is_plain
from ingot.frontend.jit.proof.semantics import indices, result_shapes, torch_names, torchs_own
from ingot.frontend.jit.python_code.library_code import is_librarys_own

if TYPE_CHECKING:
    from ingot.frontend.jit.proof.walk.walker import Walker

__all__ = [
    "ABSENT",
    "OperationCall",
    "UnknownArgument",
    "constant_of",
    "index",
    "is_operation",
    "meta_of",
    "metadata",
    "opaque",
    "operate",
    "store",
]

LARGEST_CONSTANT = 1 << 20


class UnknownArgument(Exception):
    """An argument is not known well enough to try an operation."""


def is_operation(called: Any) -> bool:
    """Whether a native function is one of PyTorch's operations."""
    if isinstance(called, types.MethodDescriptorType | types.WrapperDescriptorType | types.GetSetDescriptorType):
        return called.__objclass__ in (torch._C.TensorBase, torch.Tensor)
    if isinstance(called, torch._ops.OpOverload | torch._ops.OpOverloadPacket):
        return str(called).startswith("aten.")
    return id(called) in torch_names.OPERATIONS


# --- tensors ----------------------------------------------------------------------------------------------------------


def meta_of(walker: Walker, value: AbstractValue) -> AbstractTensor:
    """What is known of a tensor."""
    if isinstance(value, AbstractTensor):
        return value
    assert isinstance(value, Known)
    tensor = value.value
    found = walker.metas.get(id(tensor))
    if found is None:
        found = walker.metas[id(tensor)] = tensor_value(walker, tensor)
        walker.guard((TensorMetadata, id(tensor)), lambda: TensorMetadata.of(tensor, value.name))
    return found


def tensor_value(walker: Walker, tensor: torch.Tensor) -> AbstractTensor:
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter):
        walker.refuse(f"uses a tensor of the class {type(tensor).__qualname__}")
    if tensor.layout != torch.strided or tensor.is_nested or tensor.is_quantized:
        walker.refuse("uses a tensor that is sparse, nested or quantized")
    meta = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")
    return AbstractTensor(meta, tensor.device, cls=type(tensor))


def constant_of(walker: Walker, value: AbstractValue) -> torch.Tensor | None:
    """The values of a tensor, where they are known."""
    if isinstance(value, AbstractTensor) and value.constant is not None and value.written == walker.writes:
        return value.constant
    return None


def guard_methods(walker: Walker, values: Sequence[AbstractValue], *names: str) -> None:
    """Guards that operators of tensors are PyTorch's own."""
    for value in values:
        cls = walker.class_of(value)
        if cls is None or not issubclass(cls, torch.Tensor):
            continue
        for name in names:
            found = walker.type_attribute(cls, name)
            if found is not ABSENT and not is_librarys_own(found):
                walker.refuse(f"uses {name} of tensors, which is replaced")


def read(walker: Walker, value: AbstractValue, method: str) -> ReadNumber:
    """A number that Python reads from a tensor."""
    meta = meta_of(walker, value).meta
    return walker.answers.ask(walker, method, None if meta is None else meta.numel())


# --- operating --------------------------------------------------------------------------------------------------------


def operate(
    walker: Walker,
    function: Callable[..., Any],
    args: list[AbstractValue],
    kwargs: dict[str, AbstractValue],
    name: str,
    writes: bool = False,
) -> AbstractValue:
    short = getattr(function, "__name__", name).split(".")[0]
    if short == "item" and len(args) == 1 and not kwargs:
        return read(walker, args[0], "item")
    if any(answers.holds_read(walker, value) for value in (*args, *kwargs.values())):
        answers.refuse_read(walker)
    if short in torch_names.REFUSED or (short.startswith("_") and not short.startswith(torch_names.PRIVATE)):
        walker.refuse(f"calls {name}, which is not an operation on tensors alone")
    if "out" in kwargs and not (isinstance(kwargs["out"], Known) and kwargs["out"].value is None):
        walker.refuse(f"calls {name} with 'out'")
    walker.operation_may_raise()
    for value in (*args, *kwargs.values()):
        if isinstance(value, Union):
            walker.refuse(f"calls {name} with what may be one of several objects")
    if writes or _is_in_place(short):
        walker.writes += 1
    if short in open_sizes.READERS:
        found = indices.sizes_of(walker, short, args, kwargs)
        if found is not None:
            return found
    if short == "to" and _is_cast(args, kwargs):
        tensor = meta_of(walker, args[0])
        return AbstractTensor(tensor.meta, tensor.device, has_dtype=False)
    call = OperationCall(walker, name, short)
    constant = call.computed(function, args, kwargs)
    if constant is not None:
        return constant
    try:
        real_args = [call.real(value) for value in args]
        real_kwargs = {key: call.real(value) for key, value in kwargs.items()}
    except UnknownArgument:
        open_sizes.pin(walker, *args, *kwargs.values())
        return call.unknown(short)
    call.place_on_meta(real_args, real_kwargs)
    return call.value_of(call.run(function, real_args, real_kwargs))


def _is_cast(args: list[AbstractValue], kwargs: dict[str, AbstractValue]) -> bool:
    """Whether a tensor is cast to a dtype that is not known here, which keeps its sizes."""
    given = [*args[1:], *kwargs.values()]
    return is_tensor(args[0]) and all(isinstance(one, Determined) and one.cls is torch.dtype for one in given)


def _is_in_place(name: str) -> bool:
    return (name.endswith("_") and not name.endswith("__")) or name == "__setitem__"


class OperationCall:
    """One operation: what its arguments say of its results."""

    def __init__(self, walker: Walker, name: str, short: str):
        self.walker, self.name, self.short = walker, name, short
        self.metas: list[torch.Tensor] = []
        self.devices: set[torch.device | None] = set()
        self.has_dtype = not walker.is_autocast
        self.given_device: Any = ABSENT

    def real(self, value: AbstractValue) -> Any:
        """An argument as the operation takes it, with tensors without memory."""
        match value:
            case Open():
                return self.hand(value)
            case OpenTuple():
                items = [self.real(item) for item in value.items]
                return slice(*items) if value.cls is slice else tuple(items)
            case Known() if isinstance(value.value, torch.Tensor):
                return self.real(meta_of(self.walker, value))
            case Known() if is_plain(value.value) or any(value.value is one for one in torch_names.ARGUMENT_TYPES):
                return value.value
            case AbstractTensor():
                self.devices.add(value.device)
                self.has_dtype = self.has_dtype and value.has_dtype
                if value.meta is None:
                    raise UnknownArgument
                self.metas.append(value.meta)
                return value.meta
            case Tuple() if value.cls is slice:
                return slice(*(self.real(item) for item in value.items))
        if isinstance(value, Known) and isinstance(value.value, torch.Generator):
            self.walker.refuse(f"calls {self.name} with a generator")
        items = self.walker.sequence(value)
        if items is not None:
            made = [self.real(item) for item in items]
            return made if self.walker.class_of(value) is list else tuple(made)
        if self.walker.class_of(value) is None or not isinstance(value, Known | Fresh):
            raise UnknownArgument
        return self.walker.refuse(f"calls {self.name} with an object that is not understood")

    def hand(self, value: Open) -> int:
        """An integer that depends on sizes, as the operation takes it."""
        if self.short in torch_names.TAKES_SIZES or self.short in torch_names.TAKES_NUMBERS:
            return self.walker.sizes.hand(value, is_number=self.short in torch_names.TAKES_NUMBERS)
        if self.short in indices.INDEXING:  # what it means has been noted before
            return value.concrete
        return value.value

    def place_on_meta(self, args: list[Any], kwargs: dict[str, Any]) -> None:
        """Devices among the arguments are noted and replaced, so that results have no memory either."""
        for index, argument in enumerate(args):
            is_text = (
                isinstance(argument, str) and self.short in ("to", "new_tensor") and not argument.startswith("torch")
            )
            if isinstance(argument, torch.device) or is_text:
                self.given_device, args[index] = torch.device(argument), torch.device("meta")
        if kwargs.get("device") is not None:
            self.given_device, kwargs["device"] = torch.device(kwargs["device"]), torch.device("meta")
        elif self.short in torch_names.FACTORIES:
            self.given_device, kwargs["device"] = None, torch.device("meta")

    def run(self, function: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]) -> Any:
        if self.short in ("cuda", "cpu", "pin_memory"):
            self.given_device = torch.device("cpu") if self.short == "cpu" else None
            return args[0]
        found = result_shapes.result_of(self.short, args, kwargs)
        if found is not None:
            return found
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                return function(*args, **kwargs)
        except Exception as error:
            self.walker.refuse(
                f"calls {self.name}, which is not possible without values: {str(error).splitlines()[0][:100]}"
            )

    def computed(
        self, function: Callable[..., Any], args: list[AbstractValue], kwargs: dict[str, AbstractValue]
    ) -> AbstractValue | None:
        """The result with its values, if it is made of constants alone; None otherwise."""
        tensors = [value for value in _flat(self.walker, [*args, *kwargs.values()]) if not plain(value)]
        constants = [constant_of(self.walker, value) for value in tensors]
        if None in constants or (not constants and self.short not in torch_names.DETERMINISTIC_FACTORIES):
            return None
        if self.short in torch_names.RANDOM or _is_in_place(self.short) or ("device" in kwargs and constants):
            return None
        try:
            real_args = [_filled(self, value) for value in args]
            real_kwargs = {key: _filled(self, value) for key, value in kwargs.items() if key != "device"}
            given = kwargs.get("device")
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                if (
                    not constants
                    and function(*real_args, **real_kwargs | {"device": "meta"}).numel() > LARGEST_CONSTANT
                ):
                    return None
                result = function(*real_args, **real_kwargs)
        except Exception:
            return None
        if (
            not isinstance(result, torch.Tensor)
            or result.dtype not in torch_names.EXACT
            or result.numel() > LARGEST_CONSTANT
        ):
            return None
        device = tensors[0].device if tensors else None  # type: ignore[attr-defined]
        if isinstance(given, Known) and given.value is not None:
            device = torch.device(given.value)
        meta = torch.empty_strided(result.shape, result.stride(), dtype=result.dtype, device="meta")
        is_new = self.short not in torch_names.MAY_RETURN_ARGUMENT
        return AbstractTensor(meta, device, constant=result, written=self.walker.writes, is_new=is_new)

    def value_of(self, result: Any) -> AbstractValue:
        if isinstance(result, torch.Tensor):
            if result.layout != torch.strided or type(result) is not torch.Tensor:
                self.walker.refuse(f"calls {self.name}, which gives a tensor of another kind")
            device = next(iter(self.devices)) if len(self.devices) == 1 else None
            device = device if self.given_device is ABSENT else self.given_device
            return AbstractTensor(result, device, self.has_dtype, is_new=self.is_new(result))
        if is_plain(result):
            if self.metas and self.short not in torch_names.SAYS_NOTHING_OF_SIZES:
                self.walker.sizes.forbid(f"the result of {self.name} may depend on sizes")
            if self.short in torch_names.UNSURE or (self.short in torch_names.BY_DTYPE and not self.has_dtype):
                return self.walker.determined(type(result))
            return known(result)
        if isinstance(result, tuple):
            return Tuple([self.value_of(item) for item in result], type(result))
        if isinstance(result, list):
            return self.walker.new_list([self.value_of(item) for item in result])
        return self.walker.refuse(f"calls {self.name}, which gives an object that is not understood")

    def is_new(self, result: torch.Tensor) -> bool:
        """Whether a result is none of the arguments: their dtypes differ, or the operation never gives one of them."""
        if self.has_dtype and all(result.dtype != one.dtype for one in self.metas):
            return True
        return self.short not in torch_names.MAY_RETURN_ARGUMENT and not any(result is one for one in self.metas)

    def unknown(self, short: str) -> AbstractValue:
        """The result of an operation that could not be tried: a tensor, if it always gives one."""
        packet = getattr(torch.ops.aten, short, None) if not short.startswith("__") else None
        if short in torch_names.OPERATORS or short in torch_names.CASTS:
            return AbstractTensor(has_dtype=False)
        if packet is None:
            self.walker.refuse(f"calls {self.name} with sizes that are not known here")
        for overload in packet.overloads():
            returns = getattr(packet, overload)._schema.returns
            if len(returns) != 1 or str(returns[0].type) != "Tensor":
                self.walker.refuse(f"calls {self.name} with sizes that are not known here")
        return AbstractTensor(has_dtype=False)


def _flat(walker: Walker, values: list[AbstractValue]) -> list[AbstractValue]:
    """The parts of lists and tuples."""
    found: list[AbstractValue] = []
    for value in values:
        items = None if plain(value) else walker.sequence(value)
        found += [value] if items is None else _flat(walker, list(items))
    return found


def _filled(call: OperationCall, value: AbstractValue) -> Any:
    """An argument with its values."""
    if isinstance(value, Open):
        return call.hand(value)
    if isinstance(value, OpenTuple):
        items = [_filled(call, item) for item in value.items]
        return slice(*items) if value.cls is slice else tuple(items)
    if isinstance(value, Known):
        return value.value
    if isinstance(value, AbstractTensor):
        return value.constant
    if isinstance(value, Tuple) and value.cls is slice:
        return slice(*(_filled(call, item) for item in value.items))
    items = call.walker.sequence(value)
    if items is None:
        raise UnknownArgument
    filled = [_filled(call, item) for item in items]
    return filled if isinstance(value, Fresh) else tuple(filled)


# --- attributes and items ---------------------------------------------------------------------------------------------


def metadata(walker: Walker, value: AbstractValue, name: str) -> AbstractValue:
    """An attribute of a tensor that PyTorch computes."""
    tensor = meta_of(walker, value)
    if name == "device":
        return walker.determined(torch.device) if tensor.device is None else known(tensor.device)
    if name in torch_names.ON_DEVICE:
        return (
            walker.determined(bool)
            if tensor.device is None
            else known(tensor.device.type == torch_names.ON_DEVICE[name])
        )
    if name in ("requires_grad", "is_leaf"):
        return walker.determined(bool)
    if name == "__class__":
        return known(tensor.cls)
    is_length = name == "__len__"
    if name not in torch_names.METADATA and name not in torch_names.VIEWS and not is_length:
        walker.refuse(f"reads the attribute {name!r} of a tensor")
    if name in ("shape", "__len__") and isinstance(value, AbstractTensor) and tensor.meta is not None:
        return indices.shape_of(walker, value, name)
    if name in ("shape", "nbytes", "__len__") and isinstance(value, AbstractTensor):
        walker.sizes.forbid(f"{name} of a tensor is read whose sizes are not known")
    name = "shape" if is_length else name
    if tensor.meta is None:
        return (
            AbstractTensor(has_dtype=False)
            if name in torch_names.VIEWS
            else walker.determined(torch_names.METADATA[name])
        )
    if name in torch_names.METADATA:
        if name in torch_names.BY_DTYPE and not tensor.has_dtype:
            return walker.determined(torch_names.METADATA[name])
        return known(getattr(tensor.meta, name))
    return AbstractTensor(getattr(tensor.meta, name), tensor.device, tensor.has_dtype)


def index(walker: Walker, value: AbstractValue, key: AbstractValue) -> AbstractValue:
    tensor = meta_of(walker, value)
    if answers.holds_read(walker, key):
        answers.refuse_read(walker)
    guard_methods(walker, (value,), "__getitem__")
    if any(_may_be_mask(walker, part) for part in _flat(walker, [key])):
        walker.refuse("takes elements by a mask: how many there are depends on values")
    if tensor.meta is None:
        walker.sizes.forbid("a tensor is indexed whose sizes are not known")
        return AbstractTensor(has_dtype=tensor.has_dtype)
    indices.note(walker, value, tensor.meta, key)
    return operate(walker, torch.Tensor.__getitem__, [value, key], {}, "an index")


def store(walker: Walker, value: AbstractValue, key: AbstractValue, new: AbstractValue) -> None:
    if answers.holds_read(walker, key) or answers.holds_read(walker, new):
        answers.refuse_read(walker)
    guard_methods(walker, (value,), "__setitem__")
    has_mask = any(_may_be_mask(walker, part) for part in _flat(walker, [key]))
    if has_mask and not plain(new):
        walker.refuse("sets elements by a mask: how many there are depends on values")
    meta = meta_of(walker, value).meta
    if meta is None:
        walker.sizes.forbid("a tensor is indexed whose sizes are not known")
        walker.writes += 1
        return
    indices.note(walker, value, meta, key)
    operate(walker, torch.Tensor.__setitem__, [value, key, new], {}, "an index", writes=True)


def _may_be_mask(walker: Walker, part: AbstractValue) -> bool:
    if not is_tensor(part):
        return False
    tensor = meta_of(walker, part)
    return tensor.meta is None or not tensor.has_dtype or tensor.meta.dtype in (torch.bool, torch.uint8)


# --- functions of PyTorch's that are taken as one operation -----------------------------------------------------------


def opaque(
    walker: Walker, function: types.FunctionType, args: list[AbstractValue], kwargs: dict[str, AbstractValue]
) -> AbstractValue | None:
    """What a Python function of PyTorch's gives that is not walked; None for any other function."""
    if function not in torch_names.OPAQUE:
        return None
    replaced = torchs_own.replaced_within(walker, function)
    if replaced is not None:
        walker.refuse(f"calls {function.__qualname__} of PyTorch's, within which {replaced} is replaced")
    for name, names in torch_names.READ_BY_OPAQUE.items():
        walker.guard((WholeDict, name), lambda: WholeDict(names, dict(names), builtins.__dict__, name))  # noqa: B023
    return operate(walker, function, args, kwargs, function.__qualname__)


def field_index(cls: type, name: str) -> int | None:
    """The position of a named result, such as `values` of what torch.max gives."""
    fields = getattr(cls, "__match_args__", ())
    return fields.index(name) if name in fields else None
