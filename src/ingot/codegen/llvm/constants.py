"""Constants in LLVM's text, the same in every lane.

llvmlite would spell a vector lane by lane; LLVM's `splat` says it once, so that text stays short, quick to write and
quick to parse, for vectors of any length.
"""

from __future__ import annotations

import math
import struct
from fractions import Fraction
from typing import Any

from ingot.codegen.llvm import ir

_LETTERS = {"half": "e", "float": "f", "double": "d"}


def rounded_to(lane: ir.Type, value: float | Fraction) -> float:
    """The number of a floating-point type nearest to `value`, as a Python float."""
    letter = _LETTERS[str(lane)]
    try:
        return struct.unpack(f"<{letter}", struct.pack(f"<{letter}", float(value)))[0]
    except OverflowError:
        return math.copysign(math.inf, value)


def constant(type: Any, value: float | Fraction) -> ir.Value:
    """A number as a scalar of the type, or in every lane of it."""
    is_vector = isinstance(type, ir.VectorType)
    lane = type.element if is_vector else type
    if isinstance(lane, ir.IntType):
        text = str(int(value))
    else:
        text = f"0x{struct.unpack('<Q', struct.pack('<d', rounded_to(lane, value)))[0]:016X}"
    single = ir.Value(lane, text)
    return ir.Spread(type, f"splat ({lane} {text})", single) if is_vector else single
