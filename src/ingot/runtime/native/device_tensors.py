"""New tensors on a device, made natively, and given up.

In: sizes, strides and dtype. Out: a handle, the address of a C++ tensor, as torch's C interface has them. There are two
ways to the same tensor: torch's C interface, which asks torch's dispatcher as every operator does, and the function at
the end of that way, which takes the allocator of the device itself. The second saves what the first does on its way; it
is C++, may throw, and is there where torch exports it under the name known here.

Both give tensors of torch's own: their memory is in its allocator's books, for the stream that is current. Inside
torch.func's transforms new tensors may have to be wrappers, which is for the dispatcher to say.
"""

from __future__ import annotations

from dataclasses import dataclass

from ingot.runtime.native import device_records
from ingot.runtime.native.addresses import TRANSFORMS, exception_catching, torch_function, torch_variable
from ingot.runtime.native.routines import Catching, Foreign, Library, Routine, Value

_HANDLE_BYTES = 8
"""A C++ tensor is the address of what it stands for."""


@dataclass(frozen=True, slots=True)
class DirectWay:
    """What it takes to make a tensor without torch's dispatcher."""

    make: Foreign
    """make(where to put the tensor, sizes, rank, strides, rank, allocator, keys, dtype); it may throw."""
    catching: Catching
    transforms: Foreign
    """See `addresses.TRANSFORMS`."""
    new: Foreign
    """new(bytes, anything): memory such as C++ gives back with a handle, or 0."""
    delete: Foreign
    allocator: int
    """Where the address of the device's allocator is: it may be exchanged."""

    @classmethod
    def through(cls, allocator: int | None) -> DirectWay | None:
        """With the allocator whose address is there; None where this version of torch lacks a function."""
        types = "EN3c108ArrayRefIlEES3_PNS1_9AllocatorENS1_14DispatchKeySetENS1_10ScalarTypeE"
        make = torch_function("torch_cpu", f"_ZN2at6detail21empty_strided_generic{types}")
        new, delete = (torch_function("torch_cpu", name) for name in ("_ZnwmRKSt9nothrow_t", "_ZdlPv"))
        catching, transforms = exception_catching(), torch_function(*TRANSFORMS)
        if allocator is None or make is None or catching is None:
            return None
        if transforms is None or new is None or delete is None:
            return None
        return cls(make, catching, transforms, new, delete, allocator)

    @classmethod
    def of_cuda(cls) -> DirectWay | None:
        return cls.through(torch_variable("c10_cuda", "_ZN3c104cuda20CUDACachingAllocator9allocatorE"))


@dataclass(frozen=True, slots=True)
class TensorFunctions:
    """torch's functions for tensors by handles."""

    make: Foreign
    """make(rank, sizes, strides, dtype, device type, device index, where to put a handle): 0 for success."""
    delete: Foreign
    """delete(handle): 0 for success."""
    wrap: Foreign
    """wrap(handle): a Python object, which shares the tensor."""
    direct: DirectWay | None
    """A quicker way to make one."""

    @classmethod
    def find(cls, direct: DirectWay | None) -> TensorFunctions | None:
        """These functions; None where this version of torch lacks one."""
        make = torch_function("torch_cpu", "aoti_torch_empty_strided", 32)
        delete = torch_function("torch_cpu", "aoti_torch_delete_tensor_object", 32)
        wrap = torch_function("torch_python", "_Z16THPVariable_WrapRKN2at10TensorBaseE")
        if make is None or delete is None or wrap is None:
            return None
        return cls(make, delete, wrap, direct)


def emit_new_tensor(library: Library, functions: TensorFunctions) -> Routine:
    """new_tensor(site, tensor, target): put the handle of a new tensor there, as the tensor's words say; 0, or another
    word if memory is short."""
    routine = library.routine("new_tensor", 3)
    site, tensor, target = routine.parameters
    rank, sizes, strides, dtype = (routine.load(tensor, word) for word in range(device_records.TENSOR_WORDS))
    direct = functions.direct
    if direct is not None:
        transforms = routine.call(direct.transforms)
        with routine.when(routine.compare(routine.load(transforms, 0), "==", routine.load(transforms, 1))):
            _make_directly(routine, direct, sizes, strides, rank, dtype)
    kind, number = (routine.load(site, word) for word in (device_records.KIND, device_records.INDEX))
    routine.give_back(routine.call(functions.make, rank, sizes, strides, dtype, kind, number, target))
    return routine


def _make_directly(
    routine: Routine, direct: DirectWay, sizes: Value, strides: Value, rank: Value, dtype: Value
) -> None:
    """End the routine with a tensor that asked nobody."""
    site, _, target = routine.parameters
    handle = routine.call(direct.new, _HANDLE_BYTES, target)
    with routine.when(routine.compare(handle, "==", 0)):
        routine.give_back(1)
    keys, allocator = routine.load(site, device_records.INFERENCE_KEYS), routine.load(direct.allocator)
    arguments = (handle, sizes, rank, strides, rank, allocator, keys, dtype)
    with routine.when(routine.throws(direct.catching, direct.make, *arguments)):
        routine.call(direct.delete, handle)
        routine.give_back(1)
    routine.store(handle, target)
    routine.give_back(0)
