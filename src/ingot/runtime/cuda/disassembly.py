"""The instructions that a GPU executes for a kernel, for people who want to look at them.

In: PTX and the generation of GPUs that it is for. Out: the text of its machine code. The driver makes that code by
itself; showing it takes two tools of the CUDA toolkit, which nothing else needs.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

from ingot.base.errors import UnsupportedError

_DISASSEMBLERS = (("nvdisasm",), ("cuobjdump", "-sass"))


def disassembled(ptx: str, architecture: str) -> str:
    """The machine code that PTX becomes for GPUs of an architecture, such as sm_90."""
    found = [command for command in _DISASSEMBLERS if shutil.which(command[0])]
    if not found or not shutil.which("ptxas"):
        raise UnsupportedError(
            "machine code of GPUs is shown with tools of the CUDA toolkit, ptxas and nvdisasm or cuobjdump, which "
            "cannot be found; put the toolkit's bin folder on PATH, or look at the PTX"
        )
    with tempfile.TemporaryDirectory() as folder:
        source, binary = Path(folder, "kernel.ptx"), Path(folder, "kernel.cubin")
        source.write_text(ptx)
        _run("ptxas", f"--gpu-name={architecture}", "-o", str(binary), str(source))
        return _run(*found[0], str(binary))


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise UnsupportedError(f"{command[0]} does not take this kernel: {done.stderr.strip()}")
    return done.stdout
