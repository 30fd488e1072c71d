"""Running a call again in its backward pass, as it was.

In: a call, at the time it is made. Out: later, the same outputs with PyTorch's own graph behind them. Random numbers
are drawn again as they were, autocast is as it was, and what the call writes into besides its results is left as it is
found. What always holds: where anything that the call read has changed in between, an error says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch

from ingot.runtime.torch_state import state_of_torch

_DEVICES = ("cpu", "cuda")


class Moment:
    """The state that a call found."""

    def __init__(self, tensors: Iterable[torch.Tensor], written: Sequence[torch.Tensor], draws: bool):
        """Of the tensors that it reads, those it has `written` into itself. `draws` says whether it draws numbers."""
        own = {id(one) for one in written}
        self._versions = [(one, _version(one)) for one in tensors if id(one) not in own]
        self._written = written
        self._random_state = _random_states(one.device for one, _ in self._versions) if draws else ()
        self._casts = [
            (device, torch.is_autocast_enabled(device), torch.get_autocast_dtype(device)) for device in _DEVICES
        ]
        self._caches_casts = torch.is_autocast_cache_enabled()

    def again(self, run: Callable[[], Any], state: Any, still_holds: Callable[[], bool]) -> Any:
        """What the call gives, with a graph; `state` is what torch's settings were."""
        if any(_version(one) != version for one, version in self._versions):
            raise RuntimeError(_CHANGED.format("a tensor that the call had read was modified in place"))
        with ExitStack() as stack:
            for device, is_enabled, dtype in self._casts:
                cast = torch.autocast(device, dtype, is_enabled, self._caches_casts)
                if is_enabled or torch.is_autocast_enabled(device):
                    stack.enter_context(cast)
            stack.enter_context(torch.enable_grad())
            if state_of_torch() != state or not still_holds():
                raise RuntimeError(_CHANGED.format("a setting or an object that the call depends on has changed"))
            stack.enter_context(_random_numbers(self._random_state))
            stack.enter_context(_unwritten(self._written))
            return run()


_CHANGED = (
    "ingot has to run the compiled function again for this backward pass, and cannot: {} since. Gradients of "
    "gradients, and of other outputs than before, need it as it was; call the function without ingot.jit for them"
)


def _version(tensor: torch.Tensor) -> tuple[int, int]:
    """What a write changes, or `.data` that is set."""
    return 0 if tensor.is_inference() else tensor._version, tensor.data_ptr()


def _random_states(devices: Iterable[torch.device]) -> tuple[tuple[torch.device, torch.Tensor], ...]:
    found = {torch.device("cpu"): torch.get_rng_state()}
    found |= {device: torch.cuda.get_rng_state(device) for device in set(devices) if device.type == "cuda"}
    return tuple(found.items())


@contextmanager
def _random_numbers(states: Sequence[tuple[torch.device, torch.Tensor]]) -> Iterator[None]:
    """A block that begins with these states of the generators, and leaves them as they are outside."""
    if not states:
        yield
        return
    with torch.random.fork_rng([device for device, _ in states if device.type == "cuda"]):
        for device, state in states:
            if device.type == "cuda":
                torch.cuda.set_rng_state(state, device)
            else:
                torch.set_rng_state(state)
        yield


@contextmanager
def _unwritten(tensors: Sequence[torch.Tensor]) -> Iterator[None]:
    """A block after which tensors hold what they held before."""
    before = [one.clone() for one in tensors]
    try:
        yield
    finally:
        with torch.no_grad():
            for one, value in zip(tensors, before, strict=True):
                one.data.copy_(value)  # not counted as a write: the graph may have the tensor, which it does not read
