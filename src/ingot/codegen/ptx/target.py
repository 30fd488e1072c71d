"""GPUs that code is made for, and LLVM making PTX for them: text that the driver turns into machine code.

A GPU is a `Host` like any other processor, so that everything that is written for one asks the same questions of both.
No toolkit takes part: the LLVM in this process knows GPUs, and the driver has an assembler.
"""

from __future__ import annotations

import re
from functools import lru_cache

from llvmlite import binding

from ingot.codegen.llvm import unlocked
from ingot.codegen.llvm.host import Host, optimized, target_machine

_TRIPLE = "nvptx64-nvidia-cuda"
OLDEST = (7, 0)
"""The first generation whose threads are scheduled independently and whose shuffles name the threads that take part."""
_NEWEST_KNOWN = (12, 0)


@lru_cache
def gpu(capability: tuple[int, int]) -> Host:
    """A GPU by its compute capability; those newer than LLVM knows run code for the newest it does."""
    _initialize()
    major, minor = min(capability, _NEWEST_KNOWN)
    name = f"sm_{major}{minor}"
    return Host(
        _TRIPLE,
        name,
        "",
        vector_bits=128,
        converts_half=True,
        has_fma=True,
        has_rounding=True,
        level=0,  # the driver's assembler does everything again: code is no better for what LLVM did before
        has_approximations=True,
        packs_bfloat16=capability >= (8, 0),
        has_extrema=capability >= (8, 0),
        extrema_commute=True,
        computes_halves=capability >= (9, 0),
        overlaps_launches=capability >= (9, 0),
    )


@lru_cache(maxsize=1)
def _initialize() -> None:
    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()


def ptx_of(text: str, host: Host) -> str:
    """The PTX of a module's text.

    LLVM ends the process where it fails to select instructions, and nothing can keep it from that. No program is known
    for which it does: every operator has been tried in every type, form and number of lanes, and thousands of random
    programs. The remaining risk is that of any unknown fault in a compiler.
    """
    return _without_short_extrema(unlocked.emit(target_machine(host), optimized(text, host), assembly=True).decode())


_VERSION = re.compile(r"^\.version (\d+)\.(\d+)$", re.MULTILINE)
_FIRST_VERSION_WITH_HINTS = (7, 4)


def past_the_cache(ptx: str) -> str:
    """The same with loads of several elements that leave nothing in the first cache. LLVM has no word for that, and
    writes PTX of a version without one for GPUs before compute capability 8.7."""
    version = _VERSION.search(ptx)
    if version is None or tuple(map(int, version.groups())) < _FIRST_VERSION_WITH_HINTS:
        return ptx
    return ptx.replace("ld.global.v", "ld.global.L1::no_allocate.v")


_SHORT_EXTREMUM = re.compile(r"(max|min)\.([su])16[ \t]+([^,\s]+), ([^,\s]+), ([^;\s]+);")


def _without_short_extrema(ptx: str) -> str:
    """The same with comparisons and choices in place of 16-bit maxima and minima, which bytes have, too.

    NVIDIA's assembler (of CUDA 13.0, for sm_90) has an instruction that computes two at a time and says of each which
    operand it is. It also uses that instruction where a maximum is compared with the constant it was taken of, and
    writes both answers to one register: max(1, 0) == 0 is then true, since it is true of the upper halves, which are
    zeros.
    """

    def chosen(match: re.Match[str]) -> str:
        name, sign, result, left, right = match.groups()
        order = f"{right}, {left}" if name == "max" else f"{left}, {right}"
        comparison = f"setp.lt.{sign}16 %left_is_less, {left}, {right};"
        return f"{{ .reg .pred %left_is_less; {comparison} selp.b16 {result}, {order}, %left_is_less; }}"

    return _SHORT_EXTREMUM.sub(chosen, ptx)
