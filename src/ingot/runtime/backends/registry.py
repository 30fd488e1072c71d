"""The backends there are, and which of them runs kernels on a device.

In: backends, in order of preference, and INGOT_BACKEND, which may name those to use. Out: the backend for a device, or
None where PyTorch computes everything. Always holds: a backend is asked whether it is available when a tensor on a
device of its kind is first met, or when it is named, and not before: asking may initialise a driver. The backend for
GPUs is not even imported until then, as most processes use none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from itertools import chain

import torch

from ingot.base.environment_variables import environment
from ingot.base.errors import ConfigError
from ingot.runtime.backends.interface import Backend
from ingot.runtime.cpu.backend import CpuBackend


@dataclass(frozen=True, slots=True)
class _NotImported:
    """A backend that nothing has asked for yet."""

    device_type: str
    module: str
    cls: str

    def made(self) -> Backend:
        return getattr(import_module(self.module), self.cls)()


_registered: dict[str, Backend | _NotImported] = {
    "cpu": CpuBackend(),
    "cuda": _NotImported("cuda", "ingot.runtime.cuda.backend", "CudaBackend"),
}
"""All backends; of several for one kind of device the first that is available is used."""
_chosen: dict[str, Backend | None] = {}
"""The backend that was chosen for each kind of device."""
_preferred: list[Backend] = []
"""Backends that `using` prefers to all others, the last one first."""


def register(backend: Backend) -> None:
    """Add a backend, after those there are, or put it in the place of the one of its name."""
    _registered[backend.name] = backend
    _chosen.clear()


def registered() -> tuple[Backend, ...]:
    return tuple(map(_named_backend, _registered))


def _named_backend(name: str) -> Backend:
    found = _registered[name]
    if isinstance(found, _NotImported):
        found = _registered[name] = found.made()
    return found


def _of_kind(device_type: str, names: Iterable[str]) -> Iterator[Backend]:
    """The backends of these names for a kind of device, in order."""
    return (_named_backend(name) for name in names if _registered[name].device_type == device_type)


def backend_for(device: torch.device) -> Backend | None:
    """What runs kernels on a device; None if PyTorch computes everything there."""
    kind = device.type
    if kind not in _chosen:
        _chosen[kind] = _choose(kind)
    return _chosen[kind]


def backend_of_kind(device_type: str) -> Backend | None:
    """A backend for a kind of device, whether it is to be used or not: it knows how to time what happens there."""
    return next(_of_kind(device_type, tuple(_registered)), None)


@contextmanager
def using(backend: Backend) -> Iterator[None]:
    """A context in which a backend, registered or not, is preferred to all others, in all threads."""
    _preferred.insert(0, backend)
    _chosen.clear()
    try:
        yield
    finally:
        _preferred.remove(backend)
        _chosen.clear()


def _choose(device_type: str) -> Backend | None:
    preferred = (backend for backend in _preferred if backend.device_type == device_type)
    for backend in chain(preferred, _of_kind(device_type, _names())):
        if backend.why_unavailable() is None:
            return backend
    return None


def _names() -> tuple[str, ...]:
    """The names of the backends to use: those of INGOT_BACKEND, in its order, or of all there are."""
    names = environment().backend
    if not names:
        return tuple(_registered)
    for name in names:
        fault = _fault(name)
        if fault is not None:
            found = [each.name for each in registered() if each.why_unavailable() is None]
            raise ConfigError(f"INGOT_BACKEND: {fault}; available are {', '.join(found)} (see `ingot backends`)")
    return tuple(names)


def _fault(name: str) -> str | None:
    """Why a backend of a name cannot be used."""
    if name not in _registered:
        return f"there is no backend {name!r}"
    reason = _named_backend(name).why_unavailable()
    return None if reason is None else f"{name} is not available: {reason}"
