"""Several traces of one function become one that holds for all of them, and for more.

In: traces of calls that differ in sizes of arguments or in numbers passed. Out: one trace with expressions for
the sizes that vary and variables for the numbers that vary, or the reason why there is none. The rules:

    sizes of arguments that take the same values in all calls are one symbol; those that never vary are constants
    any other int that varies is one expression of these symbols, which gives its value in every call
    a number that varies is the number that was passed, exactly, in every call, and was handed to torch there
    everything else is equal

An int among an operator's arguments must have only one such expression. A size of a result may have several: code that
uses the trace finds out whether the one that was chosen is right.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations, combinations_with_replacement, pairwise
from typing import Any

import torch

from ingot.base import sizes
from ingot.base.sizes import Size
from ingot.frontend.jit.cache.size_facts import Contradiction, ReadSizes
from ingot.frontend.jit.proof import SizeFacts
from ingot.frontend.jit.trace.index_bounds import part_of_axis
from ingot.frontend.jit.trace.trace import TensorMeta, Trace, TraceArgument, TraceOp, TraceValue, Variable, stride_order

_aten: Any = torch.ops.aten
Values = tuple[Any, ...]
"""What one place of a trace holds in each of the traces."""


@dataclass(frozen=True, slots=True)
class Unified:
    """A trace that holds for many calls, and the conditions for them."""

    trace: Trace
    """The last of the traces, with expressions and variables in it."""
    variables: tuple[int, ...]
    """The numbers that vary, by their place among the arguments; variables are counted in this order."""
    divisors: tuple[tuple[str, int], ...]
    """Symbols and what they must be multiples of."""
    ranges: tuple[SizeRange, ...] = ()
    """The ranges that expressions must lie in."""


@dataclass(frozen=True, slots=True)
class SizeRange:
    """What a size that stays open may be. PyTorch does other things to axes of sizes 0 and 1, and to slices that reach
    beyond the end of an axis."""

    size: Size
    lowest: int
    highest: int

    def holds(self, bound: Mapping[str, int]) -> bool:
        """Whether the size is in the range for these values of the symbols."""
        return self.lowest <= sizes.evaluate(self.size, bound) <= self.highest


class CannotGeneralise(Exception):
    """Traces that are not the same function of sizes and numbers; the text says where they differ."""


def generalise(
    traces: Sequence[Trace], numbers: Mapping[int, Values] | None = None, facts: Sequence[SizeFacts] = ()
) -> Unified:
    """One trace for calls like these; raises CannotGeneralise.

    `numbers` holds those that were passed and may vary, by their place among the arguments. `facts` says, call by call,
    how Python used the sizes that it read, if it read any.
    """
    try:
        return _Unifier(traces, numbers or {}, ReadSizes.of(facts, traces)).generalise()
    except Contradiction as error:
        raise CannotGeneralise(str(error)) from error


@dataclass(slots=True)
class _Unifier:
    traces: Sequence[Trace]
    numbers: Mapping[int, Values]
    reads: ReadSizes
    symbols: dict[Values, Size] = field(default_factory=dict)
    """The sizes that stay open, by their values."""
    origins: dict[str, tuple[int, int]] = field(default_factory=dict)
    variables: dict[str, list[tuple[int, Variable]]] = field(default_factory=dict)
    """By the text of their values, which tells -0.0 from 0.0 and 1 from 1.0; some may have been equal in all calls."""
    handed: frozenset[int] = frozenset()
    """The numbers that were handed to torch in the operation at hand."""
    divisors: dict[tuple[str, int], None] = field(default_factory=dict)
    explained: dict[Values, list[Size]] = field(default_factory=dict)
    told: dict[Values, list[Size]] = field(default_factory=dict)
    """Expressions of numbers that Python handed to torch, by their values."""

    def generalise(self) -> Unified:
        last = self.traces[-1]
        if any(trace.reads_constants for trace in self.traces):
            raise CannotGeneralise("Python read the value of a tensor that was made of sizes and numbers")
        for what in ("tensors", "events", "environment_tensors"):
            self._require_equal([len(getattr(trace, what)) for trace in self.traces], f"the number of {what}")
        varying = self._find_variables()
        for index in range(len(last.tensors)):
            if isinstance(last.tensors[index].origin, TraceArgument):
                self._find_symbols(index)
        notes = [self._read_note(index) for index in range(len(last.tensors))]
        self.reads.check(self._bound())
        events = [self._event(index) for index in range(len(last.events))]
        for values in zip(*(trace.environment_tensors for trace in self.traces), strict=True):
            _require_equal_tensors(values)
        results = self._value([trace.results for trace in self.traces], "a result", allow=False)
        asked = [[(one.register, one.event, one.asked_by, one.decisions) for one in t.questions] for t in self.traces]
        self._require_equal(asked, "what is decided by values of tensors")
        made = notes, events, results, last.environment_tensors
        trace = Trace(*made, casts=last.casts, questions=last.questions, symbols=self.origins)
        ranges = dict.fromkeys([*self._ranges(notes), *_ranges_of_parts(trace), *_ranges_of_views(trace)])
        return Unified(trace, tuple(varying), tuple(self.divisors), tuple(ranges))

    def _ranges(self, notes: Sequence[TensorMeta]) -> tuple[SizeRange, ...]:
        """Open sizes are at least 2, and slices reach beyond the ends of axes if they always did."""
        found = dict.fromkeys(size for note in notes for size in note.sizes if not isinstance(size, int))
        ranges = dict.fromkeys(SizeRange(size, _LOWEST, _HIGHEST) for size in found)
        if self.reads.facts:  # slices are among what is known of sizes
            return (*ranges, *(SizeRange(*one) for one in self.reads.ranges()))
        bounds = [trace.slices for trace in self.traces]
        self._require_equal(list(map(len, bounds)), "the number of slices")
        for taken in zip(*bounds, strict=True):
            one = self._require_equal(taken, "a slice")
            size = notes[one.register.index].sizes[one.axis]
            if isinstance(size, int):
                continue
            shapes = [trace.tensors[one.register.index].shape[one.axis] for trace in self.traces]
            for end in (one.start, one.stop):
                if end is not None:
                    ranges.setdefault(_range_of_end(size, int(end), shapes))
        return tuple(ranges)

    # --- what varies --------------------------------------------------------------------------------------------------

    def _find_variables(self) -> list[int]:
        varying = [leaf for leaf, values in self.numbers.items() if len(set(map(repr, values))) > 1]
        for position, leaf in enumerate(varying):
            values = self.numbers[leaf]
            kind = self._require_equal([type(value) for value in values], "the type of a number")
            self.variables.setdefault(repr(values), []).append((leaf, Variable(position, kind)))
        return varying

    def _find_symbols(self, index: int) -> None:
        origin = self.traces[-1].tensors[index].origin
        assert isinstance(origin, TraceArgument)
        shapes = [trace.tensors[index].shape for trace in self.traces]
        self._require_equal(list(map(len, shapes)), "the rank of an argument")
        for axis, values in enumerate(zip(*shapes, strict=True)):
            if len(set(values)) > 1 and values not in self.symbols:
                name = f"size{len(self.symbols)}"
                self.symbols[values] = sizes.symbol(name)
                self.origins[name] = (origin.position, axis)

    # --- places -------------------------------------------------------------------------------------------------------

    def _read_note(self, index: int) -> TensorMeta:
        """A tensor whose sizes Python may have read: then each size has exactly one expression."""
        note = self._note(index)
        if index in self.reads.registers and not isinstance(note.origin, TraceArgument):
            for values in zip(*(trace.tensors[index].shape for trace in self.traces), strict=True):
                if len(set(values)) > 1 and len(self._explanations(values)) > 1:
                    raise CannotGeneralise(f"a size that Python reads is {_listed(values)}, for more than one reason")
        for values, size in self.reads.know(index, note.sizes):
            self.told.setdefault(values, []).append(size)
            self.explained.pop(values, None)
        return note

    def _bound(self) -> list[dict[str, int]]:
        """What the symbols stand for in each call."""
        names = [(str(size), values) for values, size in self.symbols.items()]
        return [{name: values[index] for name, values in names} for index in range(len(self.traces))]

    def _note(self, index: int) -> TensorMeta:
        notes = [trace.tensors[index] for trace in self.traces]
        where = f"tensor %{index}"
        for what in ("origin", "dtype", "storage", "device"):
            self._require_equal([getattr(note, what) for note in notes], f"the {what} of {where}")
        self._require_equal([len(note.shape) for note in notes], f"the rank of {where}")
        self._require_equal([stride_order(note) for note in notes], f"the layout of {where}")
        open_sizes = tuple(self._size(values, where) for values in zip(*(note.shape for note in notes), strict=True))
        is_open = not all(isinstance(size, int) for size in open_sizes)
        return replace(notes[-1], open_sizes=open_sizes if is_open else None)

    def _size(self, values: Values, where: str) -> Size:
        """A size of a tensor: the simplest expression will do, for arguments always one that stands for itself."""
        if len(set(values)) == 1:
            return values[0]
        if values in self.symbols:
            return self.symbols[values]
        found = self._explanations(values)
        if not found:
            raise CannotGeneralise(f"a size of {where} is {_listed(values)}, which no size of an argument explains")
        return self._chosen(found[0])

    def _event(self, index: int) -> TraceOp:
        events = [trace.events[index] for trace in self.traces]
        target = self._require_equal([event.target for event in events], f"operation {index}")
        where = f"{target} ({events[-1].place})"
        self.handed = self._require_equal([event.numbers for event in events], f"the numbers handed to {where}")
        return TraceOp(
            target,
            self._value([event.arguments for event in events], where),
            self._value([event.keywords for event in events], where),
            self._value([event.results for event in events], where, allow=False),
            events[-1].place,
            self.handed,
        )

    def _value(self, values: Sequence[Any], where: str, allow: bool = True) -> Any:
        """One value for what a place holds; unless `allow`, nothing in it may vary."""
        first = values[0]
        self._require_equal([type(value) for value in values], f"the type of an argument of {where}")
        if isinstance(first, list | tuple):
            self._require_equal(list(map(len, values)), f"the length of a list in {where}")
            parts = [self._value(parts, where, allow) for parts in zip(*values, strict=True)]
            return parts if isinstance(first, list) else tuple(parts)
        if isinstance(first, dict):
            self._require_equal([list(value) for value in values], f"the keywords of {where}")
            return {key: self._value([value[key] for value in values], where, allow) for key in first}
        if isinstance(first, int | float) and len(set(map(repr, values))) > 1:
            if not allow or isinstance(first, bool):
                raise CannotGeneralise(f"{where} holds {_listed(values)}")
            return self._number(tuple(values), where)
        if isinstance(first, float):
            return first
        return self._require_equal(values, f"an argument of {where}")

    def _number(self, values: Values, where: str) -> Variable | Size:
        # Those that were not handed to torch here are equal by chance.
        handed = [variable for leaf, variable in self.variables.get(repr(values), ()) if leaf in self.handed]
        if len(handed) > 1:
            raise CannotGeneralise("two numbers were the same in every call, so that they cannot be told apart")
        variable = handed[0] if handed else None
        found = self._explanations(values) if isinstance(values[0], int) else []
        if len(found) + (variable is not None) > 1:
            raise CannotGeneralise(f"an argument of {where} is {_listed(values)}, which can be explained in two ways")
        if variable is not None:
            return variable
        if not found:
            raise CannotGeneralise(f"an argument of {where} is {_listed(values)}, which nothing explains")
        return self._chosen(found[0])

    def _require_equal(self, values: Sequence[Any], what: str) -> Any:
        if any(value != values[0] for value in values[1:]):
            raise CannotGeneralise(f"{what} differs: {_listed(values)}")
        return values[0]

    # --- expressions --------------------------------------------------------------------------------------------------

    def _explanations(self, values: Values) -> list[Size]:
        """The expressions that have these values, simplest first."""
        found = self.explained.get(values)
        if found is None:
            found = list(dict.fromkeys(self._products(values)))
            if not found and not self.told.get(values):
                found = list(dict.fromkeys(self._lines(values)))
            found = self.explained[values] = list(dict.fromkeys([*self.told.get(values, ()), *found]))
        return found

    def _products(self, values: Values) -> Iterator[Size]:
        """Multiples of symbols and of products of up to three, quotients and sums of symbols."""
        for count in (1, 2, 3):
            for factors in combinations_with_replacement(self.symbols.items(), count):
                seen = tuple(math.prod(one) for one in zip(*(values for values, _ in factors), strict=True))
                factor = _quotient(values, seen)
                if factor is not None:
                    yield sizes.product(tuple(size for _, size in factors)) * factor
        for seen, size in self.symbols.items():
            divisor = _quotient(seen, values)
            if divisor is not None and divisor > 1:
                yield sizes.divide(size, divisor)
        for (one, one_size), (other, other_size) in combinations(self.symbols.items(), 2):
            if values == tuple(a + b for a, b in zip(one, other, strict=True)):
                yield one_size + other_size

    def _lines(self, values: Values) -> Iterator[Size]:
        """A factor times a symbol plus an offset: easily met by chance, so it counts only where nothing else does."""
        for seen, size in self.symbols.items():
            yield from _line(values, seen, size)

    def _chosen(self, size: Size) -> Size:
        """An expression that becomes part of the trace; the divisions in it must stay exact."""
        if not isinstance(size, int):
            for monomial, _ in size.terms:
                for atom in monomial:
                    if isinstance(atom, sizes.SizeCall):
                        assert isinstance(atom.right, int)
                        self.divisors[str(atom.left), atom.right] = None
        return size


_LOWEST, _HIGHEST = 2, 2**62


def _range_of_end(size: Size, end: int, seen: Sequence[int]) -> SizeRange:
    """On which side of an axis's end one end of a slice is, in all of these calls."""
    reach = end if end >= 0 else -end
    if all(one >= reach for one in seen):
        return SizeRange(size, reach, _HIGHEST)
    if all(one <= reach for one in seen):
        return SizeRange(size, 0, reach)
    raise CannotGeneralise(f"a slice to {end} reaches beyond the end of an axis in some calls")


def _ranges_of_parts(trace: Trace) -> Iterator[SizeRange]:
    """What keeps slices and elements at open positions within their axes: then results have the sizes they seem to."""
    for event in trace.events:
        if event.target not in (_aten.slice.Tensor, _aten.select.int) or event.keywords:
            continue
        source, result = (trace.note(one) for one in (event.arguments[0], event.results))
        if event.target is _aten.select.int:
            _, dim, start = event.arguments
            found = (start, start + 1, source.sizes[dim]) if not isinstance(start, int) else None
        else:
            found = part_of_axis(event.arguments, source.sizes, result.sizes)
        for lower, upper in pairwise((0, *found)) if found is not None else ():
            room = upper + lower * -1
            if not isinstance(room, int):
                yield SizeRange(room, 0, _HIGHEST)


def _ranges_of_views(trace: Trace) -> Iterator[SizeRange]:
    """What lets a tensor be seen with other sizes: elsewhere PyTorch raises an error, even if the view is unused."""
    for event in trace.events:
        if event.target in _VIEWS:
            source, result = (sizes.product(trace.note(one).sizes) for one in (event.arguments[0], event.results))
            room = result + source * -1
            if not isinstance(room, int):
                yield SizeRange(room, 0, 0)


_VIEWS = frozenset({_aten.view.default, _aten._unsafe_view.default, _aten.reshape.default})


def _quotient(values: Values, seen: Values) -> int | None:
    """The whole number, not 0, that makes each of these values out of the other one."""
    if 0 in seen or 0 in values:
        return None
    factor, rest = divmod(values[0], seen[0])
    return factor if not rest and all(v == factor * s for v, s in zip(values, seen, strict=True)) else None


def _line(values: Values, seen: Values, size: Size) -> Iterator[Size]:
    """factor * size + offset, if three different sizes or more lie on that line."""
    if len(set(seen)) < 3:
        return
    other = next(index for index, value in enumerate(seen) if value != seen[0])
    factor, rest = divmod(values[other] - values[0], seen[other] - seen[0])
    offset = values[0] - factor * seen[0]
    if not rest and factor and offset and all(v == factor * s + offset for v, s in zip(values, seen, strict=True)):
        yield size * factor + offset


def _require_equal_tensors(values: Sequence[torch.Tensor]) -> None:
    """Tensors around the function are the same ones, or constants that hold the same."""
    first = values[0]
    for other in values[1:]:
        is_alike = other.dtype is first.dtype and other.shape == first.shape and other.stride() == first.stride()
        is_alike = is_alike and other.device == first.device
        if other is not first and not (is_alike and torch.equal(other, first)):
            raise CannotGeneralise("a tensor around the function differs from call to call")


def _listed(values: Sequence[Any]) -> str:
    return ", ".join(str(value) if not isinstance(value, TraceValue) else repr(value) for value in values)
