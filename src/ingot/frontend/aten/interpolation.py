"""Interpolation by the nearest element: by whole factors, where each element is repeated.

    upsample_nearest2d(x[n, c, h, w], [2 * h, 3 * w])  ->  x[n, c, h, 1, w, 1] expanded to [n, c, h, 2, w, 3], reshaped

Other factors need an index for each element, and are left to PyTorch.
"""

from __future__ import annotations

from typing import Any

import numpy

from ingot.frontend.aten.table import Row, lowers, unsupported
from ingot.ir.builder import Builder


def _repeated(offset: float) -> Row:
    """How each element comes several times; PyTorch looks at where an element's index and the offset lie."""

    def row(b: Builder, x: Any, sizes: Any, *scales: Any) -> Any:
        leading, shape = x.shape[:2], x.shape[2:]
        if not all(isinstance(size, int) and size for size in (*shape, *sizes)):
            unsupported("interpolation between symbolic sizes is not lowered")
        narrow, wide, joined = list(leading), list(leading), list(leading)
        for size, wanted, scale in zip(shape, sizes, scales, strict=True):
            if wanted % size or not _is_repetition(size, wanted, scale, offset):
                unsupported("only interpolation by whole factors is lowered")
            narrow += [size, 1]
            wide += [size, wanted // size]
            joined.append(wanted)
        return b.reshape(b.expand(b.reshape(x, narrow), wide), joined)

    return row


def _is_repetition(size: int, wanted: int, scale: float | None, offset: float) -> bool:
    """Whether PyTorch, which computes places in float32, takes every element equally often."""
    step = numpy.float32(1 / scale if scale else size / wanted)
    places = numpy.arange(wanted, dtype=numpy.float32) + numpy.float32(offset)
    found = numpy.minimum(numpy.floor(places * step), size - 1)
    return bool((found == numpy.arange(wanted) // (wanted // size)).all())


for _axes in (1, 2, 3):
    lowers(f"upsample_nearest{_axes}d.default")(_repeated(0.0))
    lowers(f"_upsample_nearest_exact{_axes}d.default")(_repeated(0.5))
