"""Tensors of a bundle: parameters, buffers and constants, with their names, written as safetensors.

In: the tensors that recordings found in their environment. Out: records of them and the bytes of a safetensors file,
and back. Tensors that share memory are stored once and share memory again when they are loaded; a tensor that is not
row-major keeps its strides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

import safetensors.torch
import torch

from ingot.base.errors import BundleError, UnsupportedError

Kind = Literal["parameter", "buffer", "constant"]
_MOST_DIMENSIONS = 64


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """One tensor: its name, and which part of which stored memory it is."""

    name: str
    kind: Kind
    memory: str
    """The entry of the safetensors file."""
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    """Where it begins in the memory, in elements."""
    device: str

    def to_json(self) -> dict[str, Any]:
        """The record as plain data."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Any) -> StoredTensor:
        """The record from plain data that anyone may have written."""
        if not isinstance(data, dict) or set(data) != {*cls.__dataclass_fields__}:
            raise BundleError("the manifest describes a tensor in a way that is not known")
        texts = [data["name"], data["kind"], data["memory"], data["device"]]
        numbers = [data["offset"], *_listed(data["sizes"]), *_listed(data["strides"])]
        if not all(type(text) is str for text in texts) or data["kind"] not in get_args(Kind):
            raise BundleError("the manifest describes a tensor in a way that is not known")
        if not all(type(number) is int and 0 <= number < 2**62 for number in numbers):
            raise BundleError(f"sizes and strides of {data['name'][:80]!r} are no numbers of at least 0")
        if len(data["sizes"]) != len(data["strides"]) or len(data["sizes"]) > _MOST_DIMENSIONS:
            raise BundleError(f"{data['name'][:80]!r} has another number of strides than of sizes, or too many")
        place = tuple(data["sizes"]), tuple(data["strides"]), data["offset"]
        return cls(data["name"], data["kind"], data["memory"], *place, data["device"])


def _listed(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise BundleError("the sizes of a tensor are a list")
    return value


def pack(tensors: Mapping[str, tuple[Kind, torch.Tensor]]) -> tuple[list[StoredTensor], bytes]:
    """Records of tensors, by their name, and the bytes that hold them."""
    groups: dict[int, list[str]] = {}
    for name, (_, tensor) in tensors.items():
        groups.setdefault(tensor.untyped_storage()._cdata, []).append(name)
    records: list[StoredTensor] = []
    memories: dict[str, torch.Tensor] = {}
    for names in groups.values():
        members = [tensors[name][1] for name in names]
        memory, lowest = _memory(members, names)
        memories[names[0]] = memory
        for name, tensor in zip(names, members, strict=True):
            place = tuple(tensor.shape), tuple(tensor.stride()), int(tensor.storage_offset()) - lowest
            records.append(StoredTensor(name, tensors[name][0], names[0], *place, str(tensor.device)))
    try:
        return records, safetensors.torch.save(memories)
    except Exception as error:  # whatever safetensors cannot hold, such as a dtype that it does not know
        raise UnsupportedError(f"the weights cannot be stored: {error}") from error


def _memory(tensors: Sequence[torch.Tensor], names: Sequence[str]) -> tuple[torch.Tensor, int]:
    """What has to be stored of memory that tensors share, and the position in it where that begins."""
    first = tensors[0]
    if any(tensor.dtype is not first.dtype for tensor in tensors):
        raise UnsupportedError(f"{', '.join(names)} are views of the same memory with different dtypes")
    if len(tensors) == 1 and first.is_contiguous():
        return first.detach().cpu(), int(first.storage_offset())
    filled = [tensor for tensor in tensors if tensor.numel()] or [first]
    lowest = min(int(tensor.storage_offset()) for tensor in filled)
    length = max(tensor.storage_offset() - lowest + _extent(tensor.shape, tensor.stride()) for tensor in filled)
    return first.detach().as_strided((length,), (1,), lowest).cpu().contiguous(), lowest


def _extent(sizes: Sequence[int], strides: Sequence[int]) -> int:
    """How many elements lie between the first and the last of a tensor, both included."""
    if 0 in sizes:
        return 0
    return 1 + sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=True))


def unpack(records: Sequence[StoredTensor], data: bytes) -> dict[str, torch.Tensor]:
    """The tensors of a bundle, by name, on their devices."""
    try:
        memories = safetensors.torch.load(data)
    except Exception as error:  # the package has errors of many kinds for damaged files
        raise BundleError(f"the weights are damaged: {error}") from error
    placed: dict[tuple[str, str], torch.Tensor] = {}
    found: dict[str, torch.Tensor] = {}
    for record in records:
        memory = memories.get(record.memory)
        if memory is None or record.name in found:
            raise BundleError(f"the weights hold no {record.memory[:80]!r}, or the manifest names it twice")
        if 0 not in record.sizes and record.offset + _extent(record.sizes, record.strides) > memory.numel():
            raise BundleError(f"{record.name[:80]!r} reaches beyond the memory that is stored for it")
        key = record.memory, record.device
        if key not in placed:
            placed[key] = _on_device(memory, record)
        base = placed[key].view(-1)
        offset = record.offset if 0 not in record.sizes else 0
        tensor = base.as_strided(record.sizes, record.strides, offset)
        is_parameter = record.kind == "parameter"
        found[record.name] = torch.nn.Parameter(tensor, requires_grad=False) if is_parameter else tensor
    return found


def _on_device(memory: torch.Tensor, record: StoredTensor) -> torch.Tensor:
    if record.device.partition(":")[0] not in ("cpu", "cuda"):
        raise BundleError(f"{record.name[:80]!r} is on {record.device[:40]!r}, for which there are no bundles")
    try:
        return memory.clone() if record.device == "cpu" else memory.to(record.device)
    except Exception as error:  # torch has an error of its own for every reason why there is no such device
        raise BundleError(f"the bundle was saved for {record.device}, which cannot be used here: {error}") from error
