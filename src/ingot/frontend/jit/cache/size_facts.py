"""What is proven of the sizes that Python read, in the symbols of a generalised trace.

In: the facts of several calls that took the same way, the recordings' own reads, and the sizes of the generalised
trace's tensors as they are found. Out: ranges that sizes of later calls must lie in, and expressions for the numbers
that Python handed to PyTorch. What always holds: an expression gives each call's own number, or nothing is generalised.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ingot.base import sizes
from ingot.base.sizes import Size
from ingot.frontend.jit.proof.domain.open_sizes import SizeFacts, symbol_of
from ingot.frontend.jit.trace.trace import Trace

Values = tuple[int, ...]


class Contradiction(Exception):
    """The facts do not fit the recordings; the text says how."""


@dataclass(slots=True)
class ReadSizes:
    """The reads of one way through a function, as far as the sizes that were read are known."""

    facts: Sequence[SizeFacts]
    """The facts of each call."""
    registers: frozenset[int] = frozenset()
    """The tensors that were asked for their sizes."""
    replacements: dict[str, Size] = field(default_factory=dict)
    _by_register: dict[int, list[int]] = field(default_factory=dict)
    _waiting: list[Size] = field(default_factory=list)

    @staticmethod
    def of(facts: Sequence[SizeFacts], traces: Sequence[Trace]) -> ReadSizes:
        found = ReadSizes(facts)
        queries = [trace.size_queries for trace in traces] if facts else [[]]
        if any(query != queries[0] for query in queries[1:]):
            raise Contradiction("Python asked other tensors for their sizes")
        for number, query in enumerate(queries[0]):
            found._by_register.setdefault(query.register.index, []).append(number)
        found.registers = frozenset(found._by_register)
        found._waiting = list(facts[0].handed) if facts else []
        return found

    def know(self, register: int, found: Sequence[Size]) -> list[tuple[Values, Size]]:
        """Take note of the sizes of a tensor; numbers that have become known by it, with their value in each call."""
        if register not in self._by_register:
            return []
        for number in self._by_register[register]:
            self.replacements |= {symbol_of(number, axis): size for axis, size in enumerate(found)}
        ready = [size for size in self._waiting if sizes.symbols(size) <= self.replacements.keys()]
        self._waiting = [size for size in self._waiting if size not in ready]
        return [(self.values_of(size), self.translated(size)) for size in ready]

    def translated(self, size: Size) -> Size:
        return sizes.substitute(size, self.replacements)

    def values_of(self, size: Size) -> Values:
        """What an expression over what was read was in each call."""
        return tuple(sizes.evaluate(size, facts.values) for facts in self.facts)

    def check(self, bound: Sequence[Mapping[str, int]]) -> None:
        """Whether the sizes of arguments give what was read in each call."""
        for facts, symbols in zip(self.facts, bound if self.facts else (), strict=True):
            for name, value in facts.values.items():
                if sizes.evaluate(self.replacements[name], symbols) != value:
                    raise Contradiction("a size that Python read is not what its expression says")

    def ranges(self) -> list[tuple[Size, int, int]]:
        """The ranges that expressions over sizes of arguments must lie in."""
        if not self.facts:
            return []
        wanted = [(guard.size, guard.lowest, guard.highest) for guard in self.facts[0].guards]
        for size in self.facts[0].handed:
            values = self.values_of(size)
            if len(set(values)) == 1:  # a constant of the recordings, which it need not be elsewhere
                wanted.append((size, values[0], values[0]))
        found: list[tuple[Size, int, int]] = []
        for size, lowest, highest in wanted:
            translated = self.translated(size)
            if not isinstance(translated, int):
                found.append((translated, lowest, highest))
            elif not lowest <= translated <= highest:
                raise Contradiction("sizes that never vary are not what the calls depend on")
        return found
