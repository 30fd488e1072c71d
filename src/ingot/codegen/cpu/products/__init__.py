"""Products of matrices: rows times weights, plus a bias; and attention, which is two of them.

In: the vectors and registers of a processor. Out: functions for all sizes, compiled once per process. What always
holds: every element is summed in one order, for any number of threads.

    panels    a matrix in the order in which a product reads it: some columns, for each step along the inner axis side
              by side, then the next columns

In order of reading: `region` (what is computed at a time, and how threads come to it), `packing` (matrices into
panels), `tiles` (rows times panels, by one thread), `multiplying` (by all of them), `attention`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from ingot.codegen.cpu.common import provide
from ingot.codegen.cpu.products.attention import Attention, AttentionWord, scratch_floats
from ingot.codegen.cpu.products.multiplying import ProductWord, emit_multiply, emit_pack
from ingot.codegen.cpu.products.packing import emit_packing
from ingot.codegen.cpu.products.parallel_functions import ProductTile
from ingot.codegen.cpu.products.product_tiles import emit_tiles
from ingot.codegen.llvm.host import Compiled, Host, HostModule, host
from ingot.codegen.llvm.object_code import CodeStore


@dataclass(frozen=True, slots=True)
class CompiledProducts:
    """Addresses of functions that take an array of words."""

    tile: ProductTile
    code: Compiled
    multiply: int
    pack_transposed: int
    """For weights with a row for each column of the result, as layers have them."""
    pack_straight: int
    """For weights with a row for each step of the inner axis."""
    attention: int


_ENTRIES = ("multiply", "pack_transposed", "pack_straight", "attention")


def products_module(host: Host) -> HostModule:
    """The functions as LLVM has them, for any processor."""
    module, tile = HostModule(host), ProductTile.of(host)
    tiles = emit_tiles(module, tile)
    transposed, straight = (emit_packing(module, tile, is_transposed) for is_transposed in (True, False))
    emit_multiply(module, tile, "multiply", tiles)
    emit_pack(module, tile, "pack_transposed", transposed)
    emit_pack(module, tile, "pack_straight", straight)
    Attention(module, tile, tiles, transposed, straight).emit()
    return module


@lru_cache(maxsize=1)
def compiled_products(store: CodeStore | None = None) -> CompiledProducts:
    """Machine code for products on this processor."""
    provide(store)
    code = Compiled(lambda: products_module(host()), "products", ", ".join(_ENTRIES), store, "products")
    return CompiledProducts(ProductTile.of(host()), code, *map(code.address, _ENTRIES))


__all__ = [
    "AttentionWord",
    "CompiledProducts",
    "ProductTile",
    "ProductWord",
    "compiled_products",
    "products_module",
    "scratch_floats",
]
