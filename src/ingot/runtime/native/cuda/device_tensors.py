"""New tensors on a device, made natively, given up, and handed to Python.

In: sizes, strides and dtype. Out: a C++ tensor, which is one word, wherever the caller wants it. There are two ways to
the same tensor: torch's C interface, which asks torch's dispatcher as every operator does, and the function at the end
of that way, which takes the allocator of the device itself. The second saves what the first does on its way; it is C++,
may throw, and is there where torch exports it under the name known here.

Both give tensors of torch's own: their memory is in its allocator's books, for the stream that is current. Inside
torch.func's transforms new tensors may have to be wrappers, which is for the dispatcher to say.
"""

from __future__ import annotations

from dataclasses import dataclass

from ingot.runtime.native.abi.settings import Settings
from ingot.runtime.native.assembler.addresses import exception_catching, torch_function, torch_variable
from ingot.runtime.native.assembler.routines import Catching, Foreign, Library, Routine, Value, Word
from ingot.runtime.native.cuda.device_structs import NewTensorWords, SiteWords
from ingot.runtime.torch_state import TRANSFORM

_TENSOR_BYTES = 8
"""A C++ tensor is a word, the address of its implementation. It may be moved like any word: nothing refers to the place
it lies at."""


@dataclass(frozen=True, slots=True)
class DirectWay:
    """What it takes to make a tensor without torch's dispatcher."""

    make: Foreign
    """make(where to put the tensor, sizes, rank, strides, rank, allocator, keys, dtype); it may throw."""
    catching: Catching
    settings: Settings
    """Tells whether transforms of torch.func are active."""
    allocator: int
    """Where the address of the device's allocator is: it may be exchanged."""

    @classmethod
    def through(cls, allocator: int | None) -> DirectWay | None:
        """For the allocator whose address lies there; None where this version of torch lacks a function."""
        types = "EN3c108ArrayRefIlEES3_PNS1_9AllocatorENS1_14DispatchKeySetENS1_10ScalarTypeE"
        make = torch_function("torch_cpu", f"_ZN2at6detail21empty_strided_generic{types}")
        catching, settings = exception_catching(), Settings.find(TRANSFORM)
        if allocator is None or make is None or catching is None or settings is None:
            return None
        return cls(make, catching, settings, allocator)

    @classmethod
    def of_cuda(cls) -> DirectWay | None:
        return cls.through(torch_variable("c10_cuda", "_ZN3c104cuda20CUDACachingAllocator9allocatorE"))


@dataclass(frozen=True, slots=True)
class TensorFunctions:
    """torch's functions for tensors. A handle is the address of a C++ tensor in memory of its own."""

    make: Foreign
    """make(rank, sizes, strides, dtype, device type, device index, where to put a handle): 0 for success."""
    delete: Foreign
    """delete(handle): the tensor is given up, and its memory too; 0 for success."""
    wrap: Foreign
    """wrap(where a tensor is): a Python object, which shares the tensor; 0 if there is no memory."""
    hand_over: Foreign | None
    """The same, but the object takes the tensor over and leaves an undefined one in its place."""
    new: Foreign
    """new(bytes, anything): memory such as a handle is in, or 0."""
    free: Foreign
    """free(handle): the memory alone."""
    direct: DirectWay | None
    """A quicker way to make one."""

    @classmethod
    def find(cls, direct: DirectWay | None) -> TensorFunctions | None:
        """These functions; None where this version of torch lacks one that is needed."""
        make = torch_function("torch_cpu", "aoti_torch_empty_strided", 32)
        delete = torch_function("torch_cpu", "aoti_torch_delete_tensor_object", 32)
        wrap = torch_function("torch_python", "_Z16THPVariable_WrapRKN2at10TensorBaseE")
        hand_over = torch_function("torch_python", "_Z16THPVariable_WrapON2at10TensorBaseE")
        new, free = (torch_function("torch_cpu", name) for name in ("_ZnwmRKSt9nothrow_t", "_ZdlPv"))
        if make is None or delete is None or wrap is None or new is None or free is None:
            return None
        return cls(make, delete, wrap, hand_over, new, free, direct)


def emit_new_tensor(library: Library, functions: TensorFunctions) -> Routine:
    """new_tensor(site, tensor, target): put a new tensor there, as the tensor's words say; 0, or another word if memory
    is short."""
    routine = library.routine("new_tensor", 3)
    site, tensor, target = routine.parameters
    rank, dtype = routine.load(tensor, NewTensorWords.rank), routine.load(tensor, NewTensorWords.dtype)
    sizes, strides = routine.load(tensor, NewTensorWords.sizes), routine.load(tensor, NewTensorWords.strides)
    direct = functions.direct
    if direct is not None:
        with routine.when(routine.compare(direct.settings.is_active(routine, TRANSFORM), "==", 0)):
            keys, allocator = routine.load(site, SiteWords.inference_keys), routine.load(direct.allocator)
            arguments = (target, sizes, rank, strides, rank, allocator, keys, dtype)
            has_thrown = routine.throws(direct.catching, direct.make, *arguments)
            routine.give_back(routine.choose(has_thrown, 1, 0))
    kind, number = (routine.load(site, word) for word in (SiteWords.kind, SiteWords.index))
    cell = routine.stack(1)
    failure = routine.call(functions.make, rank, sizes, strides, dtype, kind, number, cell)
    with routine.when(routine.compare(failure, "!=", 0)):
        routine.give_back(failure)
    handle = routine.load(cell)
    routine.store(routine.load(handle), target)
    routine.call(functions.free, handle)
    routine.give_back(0)
    return routine


def emit_delete_tensors(library: Library, functions: TensorFunctions) -> Routine:
    """delete_tensors(tensors, first, end): give up some of the tensors that lie side by side.

    torch gives up a tensor together with the memory of its handle, so each is moved to such memory. If there are not
    even eight bytes for the handle, the tensor is leaked.
    """
    routine = library.routine("delete_tensors", 3)
    tensors, first, end = routine.parameters
    with routine.loop(routine.subtract(end, first)) as index:
        handle = routine.call(functions.new, _TENSOR_BYTES, tensors)
        with routine.when(routine.compare(handle, "!=", 0)):
            routine.store(routine.load(tensors, routine.add(first, index)), handle)
            routine.call(functions.delete, handle)
    routine.give_back()
    return routine


def wrapped(routine: Routine, functions: TensorFunctions, where: Value, delete: Routine) -> Word:
    """The Python object of a tensor, which it takes over; 0 if there is no memory for the object, and then the tensor
    is unchanged."""
    if functions.hand_over is not None:
        return routine.call(functions.hand_over, where)
    tensor = routine.call(functions.wrap, where)
    with routine.when(routine.compare(tensor, "!=", 0)):
        routine.call(delete, where, 0, 1)
    return tensor
