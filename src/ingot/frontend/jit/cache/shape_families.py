"""Calls that differ in sizes and numbers alone, and what has been generalised from their recordings.

In: recordings, as they are made. Out: for a call that was not recorded, a specialisation that holds for it all the same
and the numbers to run it with. Two recordings that differ in numbers are enough; for sizes it takes three, or two where
the user says that sizes vary. Recordings that cannot be generalised stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from ingot.base import sizes
from ingot.base.errors import IngotError
from ingot.base.forks import new_lock
from ingot.base.logs import log
from ingot.base.sizes import Size
from ingot.frontend.jit.arguments.call_key import CallKey
from ingot.frontend.jit.arguments.structure import Shape
from ingot.frontend.jit.arguments.variable_numbers import arithmetic_parameters, positions_of
from ingot.frontend.jit.cache.audits import Audits
from ingot.frontend.jit.cache.foretelling import foretold, is_same
from ingot.frontend.jit.cache.generalisation import CannotGeneralise, Unified, generalise
from ingot.frontend.jit.cache.specialisation import Specialisation
from ingot.frontend.jit.trace.trace import Trace, TraceArgument
from ingot.runtime.compiler import JitCompiler

MOST_MEMBERS = 8
"""Recordings that a family compares; the oldest goes first."""
MOST_FAILURES = 4
"""After this many failures to generalise the recordings of a family it is not tried again."""
_MOST_FAMILIES = 128
"""Families of one function; the oldest goes first."""
_SHAPES_NEEDED = {None: 3, True: 2}

Numbers = dict[int, int | float]
"""Numbers that may vary, by their place among the leaves of the arguments."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """A recording that holds for one shape and one set of numbers."""

    key: Hashable
    specialisation: Specialisation
    shapes: tuple[tuple[int, ...], ...]
    numbers: Numbers

    @property
    def trace(self) -> Trace:
        assert self.specialisation.trace is not None
        return self.specialisation.trace


@dataclass(eq=False, slots=True)
class Generalised:
    """What was generalised from several recordings, and the calls for which it holds."""

    specialisation: Specialisation
    unified: Unified
    members: Sequence[Recorded]
    """The recordings that it was generalised from."""
    fixed: Numbers
    """Numbers that never varied."""
    declared: dict[int, tuple[Size, ...]] = field(init=False)
    """The sizes of the arguments, by position."""
    range: tuple[int, int] = field(init=False)
    """What ints that vary may be: what all integer types of the trace can hold."""
    replaces: list[Generalised] = field(default_factory=list)
    """Earlier generalisations of some of the same recordings."""
    misses: int = 0
    """How many calls fitted it and turned out to differ."""

    def __post_init__(self) -> None:
        notes = self.unified.trace.tensors
        self.declared = {n.origin.position: n.sizes for n in notes if isinstance(n.origin, TraceArgument)}
        held = [torch.iinfo(dtype) for dtype in (torch.int64, *(note.dtype for note in notes)) if dtype in _INTEGERS]
        self.range = (max(info.min for info in held), min(info.max for info in held))

    def fits(self, shapes: Sequence[Sequence[int]], numbers: Numbers) -> bool:
        """Whether sizes and numbers are in the ranges of this generalisation; open sizes are at least 2."""
        bound: dict[str, int] = {}
        for position, declared in self.declared.items():
            for size, actual in zip(declared, shapes[position], strict=True):
                if (size if isinstance(size, int) else bound.setdefault(size.text, actual)) != actual:
                    return False
        lowest, highest = self.range
        return (
            all(value >= 2 for value in bound.values())
            and all(one.holds(bound) for one in self.unified.ranges)
            and all(bound[name] % divisor == 0 for name, divisor in self.unified.divisors)
            and all(is_same(numbers[leaf], value) for leaf, value in self.fixed.items())
            and all(isinstance(value, float) or lowest <= value <= highest for value in self.values(numbers))
            and self._meets_conditions(bound)
        )

    def values(self, numbers: Numbers) -> list[int | float]:
        """The variables of the program, in order."""
        return [numbers[leaf] for leaf in self.unified.variables]

    def _meets_conditions(self, bound: dict[str, int]) -> bool:
        program = self.specialisation.program
        conditions = () if program is None else program.conditions
        return all(sizes.evaluate(left, bound) == sizes.evaluate(right, bound) for left, right in conditions)


_INTEGERS = (torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8)


@dataclass(slots=True)
class Family:
    members: list[Recorded] = field(default_factory=list)
    generals: list[Generalised] = field(default_factory=list)
    """The newest first."""
    failures: int = 0


@dataclass(slots=True)
class ShapeFamilies:
    """The families of one function."""

    function: Callable[..., Any]
    compiler: JitCompiler
    dynamic: bool | None
    is_replayed: bool
    """Whether programs become CUDA graphs."""
    name: str
    table: dict[Hashable, Family] = field(default_factory=dict)
    positions: dict[Shape, dict[int, int | str]] = field(default_factory=dict)
    parameters: frozenset[str] | None = None

    def find(
        self, described: CallKey, state: Hashable, tried: Sequence[Generalised] = ()
    ) -> tuple[Generalised, Numbers] | None:
        """What holds for a call that was not recorded, as far as its sizes tell, apart from what was tried."""
        if not self.table:
            return None
        family = self.table.get((self._key(described), state))
        if family is None or not family.generals:
            return None
        numbers, shapes = self._numbers(described), [tensor.shape for tensor in described.tensors]
        for general in list(family.generals):
            found = general.specialisation
            if (
                found.trace is not None
                and general not in tried
                and general.fits(shapes, numbers)
                and found.changed() is None
            ):
                return general, numbers
        return None

    def add(self, key: Hashable, described: CallKey, state: Hashable, made: Specialisation) -> Generalised | None:
        """Take note of a recording; what could be generalised with it, if anything could."""
        if made.trace is None:
            return None
        family = self.table.setdefault((self._key(described), state), Family())
        while len(self.table) > _MOST_FAMILIES:
            del self.table[next(iter(self.table))]
        shapes = tuple(tuple(tensor.shape) for tensor in described.tensors)
        family.members.append(Recorded(key, made, shapes, self._numbers(described)))
        del family.members[:-MOST_MEMBERS]
        if family.failures >= MOST_FAILURES:
            return None
        return self._generalise(family)

    def adopt(
        self, key: Hashable, described: CallKey, state: Hashable, made: Specialisation, unified: Unified
    ) -> Generalised:
        """Take a recording together with what is known to hold for more sizes than its own; raises CannotGeneralise."""
        family = self.table.setdefault((self._key(described), state), Family())
        shapes = tuple(tuple(tensor.shape) for tensor in described.tensors)
        opened = replace(made, trace=unified.trace, program=None, calls=0, lock=new_lock())
        general = Generalised(opened, unified, [Recorded(key, made, shapes, {})], {})
        self._write_program(general)
        family.generals.insert(0, general)
        return general

    def foretell(self, described: CallKey, state: Hashable) -> tuple[Generalised, Numbers] | None:
        """What holds for a call that differs in numbers alone from one that was recorded, where that recording tells
        what these numbers do. Python must have nothing to do with them."""
        family, numbers = self.table.get((self._key(described), state)), self._numbers(described)
        if family is None or not numbers:
            return None
        shapes = tuple(tuple(tensor.shape) for tensor in described.tensors)
        for member in reversed(family.members):
            made = member.specialisation
            if member.shapes != shapes or made.trace is None or made.changed() is not None:
                continue
            was = member.numbers
            changes = {leaf: (was[leaf], now) for leaf, now in numbers.items() if not is_same(was[leaf], now)}
            trace = foretold(made.trace, changes) if changes else None
            if trace is None:
                continue
            other = Recorded(None, replace(made, trace=trace), shapes, numbers)
            try:
                general = self._take(family, [member, other], [member])
            except CannotGeneralise:
                continue
            if general.fits(shapes, numbers):
                return general, numbers
        return None

    def miss(self, general: Generalised) -> bool:
        """Note that something does not hold for a call that it fitted; whether it is forgotten for that."""
        general.misses += 1
        if general.misses < MOST_FAILURES:
            return False
        for family in self.table.values():
            family.generals = [one for one in family.generals if one is not general]
        return True

    def drop(self, gone: Specialisation) -> None:
        """Forget a recording, or what was generalised."""
        for key, family in list(self.table.items()):
            family.members = [one for one in family.members if one.specialisation is not gone]
            family.generals = [one for one in family.generals if one.specialisation is not gone]
            if not family.members and not family.generals:
                del self.table[key]

    def clear(self) -> None:
        """Forget all recordings."""
        self.table.clear()
        self.positions.clear()

    def marked_positions(self, described: CallKey) -> dict[int, int | str]:
        """Where the numbers that may vary are: by leaf, their position or keyword."""
        if not any(type(leaf) in (int, float) for leaf in described.leaves):
            return {}  # the function's text is not even read
        if self.parameters is None:
            self.parameters = arithmetic_parameters(self.function)
        if not self.parameters:
            return {}
        found = self.positions.get(described.shape)
        if found is None:
            if len(self.positions) >= _MOST_FAMILIES:
                self.positions.clear()
            found = self.positions[described.shape] = positions_of(self.parameters, self.function, described.shape)
        return found

    # --- what calls have in common ------------------------------------------------------------------------------------

    def _key(self, described: CallKey) -> Hashable:
        """What two calls of one family have in common."""
        numbers = self._numbers(described)
        parts: list[Hashable] = []
        for leaf, (value, part) in enumerate(zip(described.leaves, described.parts, strict=True)):
            if leaf in numbers:
                parts.append(type(value))
            elif self.dynamic is not False and isinstance(value, torch.Tensor) and value.is_contiguous():
                parts.append((value.dtype, value.dim(), value.device, *part[4:]))
            else:
                parts.append(part)
        return (described.shape, *parts)

    def _numbers(self, described: CallKey) -> Numbers:
        leaves = described.leaves
        return {leaf: leaves[leaf] for leaf in self.marked_positions(described) if type(leaves[leaf]) in (int, float)}

    # --- generalising -------------------------------------------------------------------------------------------------

    def _generalise(self, family: Family) -> Generalised | None:
        alive = [member for member in family.members if member.specialisation.trace is not None]
        alive = [member for member in alive if member.specialisation.changed() is None]
        if not alive:
            return None
        reason = None
        for group in self._groups(alive):
            try:
                return self._take(family, group, group)
            except CannotGeneralise as error:
                reason = str(error)
        if reason is not None:
            family.failures += 1
            log("recompiles", f"{self.name}: recordings cannot be taken together: {reason}")
        return None

    def _take(self, family: Family, group: Sequence[Recorded], members: Sequence[Recorded]) -> Generalised:
        """What these calls have in common, some of which were recorded; raises CannotGeneralise."""
        general = _unify(group, members)
        self._write_program(general)
        alike = [g for g in family.generals if _decided(g.unified.trace) == _decided(general.unified.trace)]
        replaced = [g for g in alike if all(general.fits(m.shapes, m.numbers) for m in g.members)]
        general.replaces = replaced
        family.generals = [general, *(one for one in family.generals if one not in replaced)]
        return general

    def _groups(self, members: Sequence[Recorded]) -> Iterator[list[Recorded]]:
        """Groups of members that may be generalised, the most promising first; the newest member is in each."""
        newest = members[-1]
        members = [member for member in members if _decided(member.trace) == _decided(newest.trace)]
        needed = _SHAPES_NEEDED.get(self.dynamic, MOST_MEMBERS + 1)
        oblivious = [member for member in members if _takes_same_way(member, newest)]
        if newest in oblivious:
            plain = [member for member in oblivious if not _has_ones(member, oblivious)]
            for group in (oblivious, plain):
                if newest in group and len({member.shapes for member in group}) >= needed:
                    yield group
        same = [member for member in members if member.shapes == newest.shapes]
        if len(same) > 1:
            yield same

    def _write_program(self, general: Generalised) -> None:
        """The program says under what conditions it holds."""
        try:
            program = general.specialisation.prepare(self.compiler, is_replayed=self.is_replayed)
        except IngotError as error:
            raise CannotGeneralise(f"no program can be written for it: {type(error).__name__}: {error}") from error
        if program.has_guesses and program.has_effects:
            raise CannotGeneralise("results of library calls have sizes that cannot be foretold")


def _takes_same_way(member: Recorded, newest: Recorded) -> bool:
    """Whether Python does the same in two calls for all sizes: it read none, or the proof knows how it uses them."""
    if not member.trace.reads_sizes and not newest.trace.reads_sizes:
        return True
    ours, theirs = member.specialisation.sizes, newest.specialisation.sizes
    return ours is not None and theirs is not None and ours.way == theirs.way


def _decided(trace: Trace) -> list[object]:
    """What was decided by values of tensors."""
    return [question.decisions for question in trace.questions]


def _has_ones(member: Recorded, others: Sequence[Recorded]) -> bool:
    """Whether a size that varies is 0 or 1, for which PyTorch often does something else."""
    return any(
        size < 2 and any(other.shapes[position][axis] != size for other in others)
        for position, shape in enumerate(member.shapes)
        for axis, size in enumerate(shape)
    )


def _unify(calls: Sequence[Recorded], members: Sequence[Recorded]) -> Generalised:
    newest = calls[-1]
    looked_at = frozenset().union(*(member.specialisation.looked_at for member in calls))
    values = {leaf: tuple(member.numbers[leaf] for member in calls) for leaf in newest.numbers}
    for leaf in looked_at & values.keys():
        if not all(is_same(value, values[leaf][0]) for value in values[leaf]):
            raise CannotGeneralise("Python looks at the value of a number")
    if any(member.specialisation.result_shape != newest.specialisation.result_shape for member in calls):
        raise CannotGeneralise("results are nested in another way")
    if any(member.specialisation.changes != newest.specialisation.changes for member in calls):
        raise CannotGeneralise("objects that are given are changed in another way")
    numbers = {leaf: value for leaf, value in values.items() if leaf not in looked_at}
    are_needed = newest.trace.reads_sizes and any(member.shapes != newest.shapes for member in calls)
    facts = [member.specialisation.sizes for member in calls if member.specialisation.sizes] if are_needed else []
    unified = generalise([member.trace for member in calls], numbers, facts)
    specialisation = replace(newest.specialisation, trace=unified.trace, program=None, calls=0, lock=new_lock())
    if specialisation.audits is not None:
        specialisation.audits = Audits()
    fixed = {leaf: value for leaf, value in newest.numbers.items() if leaf not in unified.variables}
    return Generalised(specialisation, unified, members, fixed)
