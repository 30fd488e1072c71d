"""Whether methods of tensors are not PyTorch's own any more, because a program or a tool has replaced them.

While a mode is active, PyTorch's native code tells it of a method by looking its name up in `torch.Tensor`. Where that
holds a function of somebody else's, which calls the method it has replaced, a mode is told of that function once more,
and would run it twice. So nothing is recorded or followed then: functions run as they are.
"""

from __future__ import annotations

import ctypes

import torch

from ingot.base.logs import log
from ingot.frontend.jit.python_code.class_versions import version_half
from ingot.frontend.jit.python_code.library_code import is_librarys_own

_SHOWING = frozenset({"__repr__", "__format__", "__dir__", "__deepcopy__", "__reduce_ex__", "__setstate__"})
"""Methods that compute nothing: tools replace them to show tensors in another way."""
_TABLE = vars(torch.Tensor)
_OWN = {name for name, held in _TABLE.items() if is_librarys_own(held)}
_NAMES = (_OWN | set(vars(torch._C.TensorBase))) - _SHOWING
"""What PyTorch looks up; further attributes that a program adds are its own affair."""


class _Look:
    """What was found when `torch.Tensor` had a version, 0 if that is not known."""

    last: tuple[int, str | None] = (0, None)


def _version(half: int | None) -> int:
    return 0 if half is None else ctypes.c_uint32.from_address(id(torch.Tensor) + 4 * half).value


def replaced_method() -> str | None:
    """The name of a method or an attribute of tensors that runs code which is no library's; None if there is none."""
    half = version_half()
    version = _version(half)
    seen, found = _Look.last
    if version and version == seen:
        return found
    getattr(torch.Tensor, "__ingot_looks__", None)  # looking something up gives a class its version
    version = _version(half)
    found = min((name for name in _NAMES & _TABLE.keys() if not is_librarys_own(_TABLE[name])), default=None)
    _Look.last = (version, found)
    if found is not None:
        log("fallbacks", f"compiled functions run as they are, since {REPLACED.format(found)}")
    return found


REPLACED = "torch.Tensor.{} is not PyTorch's own any more"
"""Why nothing is compiled."""
