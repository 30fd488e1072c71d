"""A script that shows a difference again: the function, the inputs as they were, both calls, and the comparison.

In: a function and the inputs of a call. Out: a folder with `repro.py` and `inputs.pt`, below INGOT_WORKDIR or a new
directory that no other user can read; or why there is none. Inputs are saved by torch.save and loaded with
weights_only=True, which runs no code.
"""

from __future__ import annotations

import inspect
import tempfile
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from ingot.base.environment_variables import environment
from ingot.base.working_directory import digest_of, working_directory

_SCRIPT = """\
\"\"\"Shows again what ingot's verification found: {found}\"\"\"

import pathlib
import sys

import torch

import ingot

sys.path[:0] = {path!r}
{function}

args, kwargs = torch.load(pathlib.Path(__file__).parent / "inputs.pt", weights_only=True)
compiled = ingot.jit(function, python={python!r}, config={{"verify": True}})
with torch.set_grad_enabled({gradients}):
    for _ in range(8):
        compiled(*args, **kwargs)
print("no difference")
"""


def written_script(
    function: Any, python: str, args: Sequence[Any], kwargs: Mapping[str, Any], found: str, path: Sequence[str]
) -> str:
    """Write the script; a sentence that says where it is, or why there is none."""
    source = _source_of(function)
    if source is None:
        return "There is no script: the function cannot be imported, and has no source that stands alone"
    if not _is_plain((list(args), dict(kwargs))):
        return "There is no script: arguments other than tensors, numbers, texts and containers of them are not saved"
    text = _SCRIPT.format(
        found=found.replace("\\", "/").replace('"', "'"),
        path=list(path),
        function=source,
        python=python,
        gradients=torch.is_grad_enabled(),
    )
    try:
        folder = _folder(text)
        torch.save(_detached((list(args), dict(kwargs))), folder / "inputs.pt")
        (folder / "repro.py").write_text(text, encoding="utf-8")
    except OSError as error:
        return f"The script could not be written: {error}"
    return f"python {folder / 'repro.py'} shows it again"


def _folder(text: str) -> Path:
    named = working_directory() if environment().workdir is not None else None
    if named is None:
        return Path(tempfile.mkdtemp(prefix="ingot-verify-"))
    folder = named / "verify" / digest_of(text)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _source_of(function: Any) -> str | None:
    """Lines that define `function`: an import, or the source of a function that uses nothing but torch."""
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", "")
    if inspect.ismethod(function) or not inspect.isfunction(function):
        return None
    if module not in (None, "__main__") and "<" not in name:
        unwrapped = "function = getattr(function, '__wrapped__', function)"
        return f"import {module} as module\n\nfunction = module.{name}\n{unwrapped}"
    if function.__closure__ or name.endswith("<lambda>"):
        return None
    try:
        lines = textwrap.dedent(inspect.getsource(function)).splitlines()
    except (OSError, TypeError):
        return None
    while lines and lines[0].startswith("@"):
        lines.pop(0)
    if not lines or not lines[0].startswith("def ") or set(inspect.getclosurevars(function).globals) - {"torch"}:
        return None
    return "\n".join([*lines, "", "", f"function = {function.__name__}"])


def _detached(value: Any) -> Any:
    """The same without the history of tensors; those that need gradients still do."""
    if isinstance(value, torch.Tensor):
        return value.detach().requires_grad_(value.requires_grad)
    if isinstance(value, list | tuple):
        return type(value)(map(_detached, value))
    return {name: _detached(one) for name, one in value.items()} if isinstance(value, dict) else value


def _is_plain(value: Any) -> bool:
    """Whether torch.load gives a value back without running code."""
    if isinstance(value, list | tuple) and type(value) in (list, tuple):
        return all(map(_is_plain, value))
    if type(value) is dict:
        return all(isinstance(name, str) for name in value) and all(map(_is_plain, value.values()))
    return isinstance(value, torch.Tensor) or type(value) in (bool, int, float, str, type(None))
