"""Products of matrices: rows times weights, plus a bias.

    panels             weights in the order in which a product reads them: some columns, for each step along the inner
                       axis side by side, then the next columns
    pack(words)        weights into panels
    multiply(words)    rows times panels, plus a bias, into results

In order of reading: `region` (what all of them are given, and what is computed at a time), `packing`, `multiplying`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from ingot.codegen.llvm.common import provide
from ingot.codegen.llvm.host import Compiled, Host, HostModule, host
from ingot.codegen.llvm.products.multiplying import Multiplication
from ingot.codegen.llvm.products.packing import PACK_DENSE_COLUMNS, PACK_DENSE_ROWS, emit_packing
from ingot.codegen.llvm.products.region import Tile, Word

MULTIPLY = "multiply"


@dataclass(frozen=True, slots=True)
class CompiledProducts:
    """Addresses of functions that take an array of words."""

    tile: Tile
    code: Compiled
    multiply: int
    pack_dense_rows: int
    """For weights with a row for each column of the result, as layers keep them."""
    pack_dense_columns: int
    """For weights with a row for each step of the inner axis."""


def products_module(host: Host) -> HostModule:
    """The functions as LLVM has them, for any processor."""
    module, tile = HostModule(host), Tile.of(host)
    Multiplication(module, tile).emit(MULTIPLY)
    emit_packing(module, tile)
    return module


@lru_cache(maxsize=1)
def compiled_products() -> CompiledProducts:
    """Machine code for products on this processor."""
    provide()
    code = Compiled(products_module(host()))
    tile = Tile.of(host())
    addresses = (code.address(name) for name in (MULTIPLY, PACK_DENSE_ROWS, PACK_DENSE_COLUMNS))
    return CompiledProducts(tile, code, *addresses)


__all__ = ["CompiledProducts", "Tile", "Word", "compiled_products", "products_module"]
