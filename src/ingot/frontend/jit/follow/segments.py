"""Segments: what is pending, as one function of tensors and numbers that depends on nothing else.

In: the steps from the root of a trace to a node, and which of their results are still needed. Out: a function that
takes the tensors from outside, the open numbers and the shells to be filled, in that order. It is compiled like any
function whose recording may stand in for its Python: it has none of its own.

    def segment(t0, t1, n0, d4):
        t2 = f0(t0, t1)
        t3 = f1(t2, n0)
        t4 = f2(t3)
        d4.copy_(t4)
        return ()
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import starmap
from typing import Any

from ingot.frontend.jit.arguments.call_key import KeyedCall
from ingot.frontend.jit.cache.recorded_function import RecordedFunction
from ingot.frontend.jit.cache.shape_families import Generalised, Numbers
from ingot.frontend.jit.follow.protection.uninterrupted import uninterrupted
from ingot.frontend.jit.follow.steps.step_tree import (
    ConstantArgument,
    ContainerArgument,
    OpenNumber,
    Reference,
    StepNode,
    Wait,
)
from ingot.frontend.jit.guards.environment import Environment
from ingot.frontend.jit.settings.options import Options
from ingot.runtime.compiler import JitCompiler
from ingot.runtime.native.following.native_following import NativeFollowing, Writes


@dataclass(slots=True)
class Segment:
    """A compiled function for everything pending, and what to pass to it."""

    recorded: SegmentFunction
    inputs: tuple[int, ...]
    """The tensors that it takes, by number."""
    destinations: tuple[int, ...]
    """The shells that it fills, by number."""
    text: str
    writes: Writes
    """Which arguments are written, and how often their version counters tell that. For shells that is how often they
    are written in place after they were made."""

    def run(self, native: NativeFollowing, given: tuple[Any, ...], begun: list[Segment]) -> None:
        """Run the pending operations, given the inputs, the open numbers and the shells. Once it has `begun` it runs to
        its end, even if KeyboardInterrupt is raised: native code is not interrupted, and Python code that writes inputs
        delays the signal."""
        recorded, thread, done = self.recorded, threading.get_ident(), []
        recorded.ended.discard(thread)
        try:
            begun.append(self)
            # As one native call: what has run is in the list.
            done.extend(starmap(native.run, ((recorded, given, self.writes.address),)))
        except KeyboardInterrupt:
            if not done and thread not in recorded.ended:
                native.run(recorded, given, self.writes.address)
            raise


class SegmentFunction(RecordedFunction):
    """The recordings of a segment. A call that they do not answer runs in Python, a step at a time: where it writes
    tensors from before the call, which cannot be done twice, it is done to its end."""

    is_segment = True
    writes_inputs = False

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.reads_attributes = False
        self.ended: set[int] = set()
        """The threads whose last such call ran to its end, with or without an interrupt raised afterwards."""

    def __call__(self, *args: Any) -> Any:
        return uninterrupted(self._to_the_end, *args) if self.writes_inputs else super().__call__(*args)

    def _foretell(self, call: KeyedCall) -> tuple[Generalised, Numbers] | None:
        with self._lock:
            found = self._table.families.foretell(call.described, call.key[1])
            if found is not None:
                self._make_room()
                self._table.put_general(found[0])
            return found

    def _find_environment(self) -> Environment:
        return Environment()

    def _to_the_end(self, *args: Any) -> Any:
        result = super().__call__(*args)
        self.ended.add(threading.get_ident())
        return result


@dataclass(slots=True)
class Writer:
    """Writes steps as lines of Python."""

    names: dict[str, Any] = field(default_factory=dict)
    bound: dict[int, str] = field(default_factory=dict)
    """The names of functions and constants, by identity."""
    lines: list[str] = field(default_factory=list)
    inputs: dict[int, None] = field(default_factory=dict)
    made: set[int] = field(default_factory=set)
    numbers: int = 0

    def step(self, node: StepNode) -> None:
        skeleton: Any = node.skeleton
        function = self.bind("f", skeleton[0])
        given = [self.expression(part) for part in skeleton[1:]]
        if skeleton[1:] and isinstance(skeleton[-1], ContainerArgument) and skeleton[-1].kind is dict:
            named = zip(skeleton[-1].keys, map(self.expression, skeleton[-1].parts), strict=True)
            given[-1:] = [f"{name}={text}" for name, text in named]
        call = f"{function}({', '.join(given)})"
        results = [f"t{number}" for number in node.results]
        self.made.update(node.results)
        if not results:
            self.lines.append(call)
        elif node.is_container:
            self.lines.append(f"{', '.join(results)}, = {call}")
        else:
            self.lines.append(f"{results[0]} = {call}")

    def fill(self, destinations: Iterable[int]) -> None:
        """Write results into their shells."""
        self.lines += [f"d{number}.copy_(t{number})" for number in destinations]

    def expression(self, part: Any) -> str:
        if isinstance(part, Reference):
            if part.number not in self.made:
                self.inputs.setdefault(part.number)
            return f"t{part.number}"
        if isinstance(part, OpenNumber):
            self.numbers += 1
            return f"n{self.numbers - 1}"
        if isinstance(part, ConstantArgument):
            return self.bind("c", part.value)
        assert isinstance(part, ContainerArgument)
        if part.kind is dict:
            return ""  # keywords, which `step` writes
        inner = ", ".join(map(self.expression, part.parts))
        if part.kind is slice:
            return f"slice({inner})"
        return f"[{inner}]" if part.kind is list else f"({inner},)" if part.parts else "()"

    def bind(self, letter: str, value: Any) -> str:
        """A name for an object in the segment's text."""
        if letter == "c" and (value is None or type(value) in (bool, int, str)):
            return repr(value)
        name = self.bound.setdefault(id(value), f"{letter}{len(self.bound)}")
        self.names[name] = value
        return name


def write_segment(
    node: StepNode, destinations: Sequence[int], options: Options, compiler: JitCompiler, name: str
) -> Segment:
    """The segment of everything up to a node, which fills these shells."""
    writer = Writer()
    path = node.path()
    is_written_later = any(not step.results for step in path)
    for step in path:
        writer.step(step)
        if not is_written_later:  # a kernel that computes it can write it, too
            writer.fill(number for number in step.results if number in destinations)
    if is_written_later:
        writer.fill(destinations)
    numbers = [f"n{index}" for index in range(writer.numbers)]
    parameters = [*(f"t{n}" for n in writer.inputs), *numbers, *(f"d{n}" for n in destinations)]
    body = "\n".join(f"    {line}" for line in (*writer.lines, "return ()"))
    text = f"def segment({', '.join(parameters)}):\n{body}\n"
    exec(compile(text, "<ingot segment>", "exec"), writer.names)  # the text was written above, not by the user
    recorded = SegmentFunction(writer.names["segment"], options, compiler, f"a segment of {name}")
    recorded.checks_overlap = False  # tensors that are written are new, or share their memory with no other
    recorded.open_numbers(frozenset(numbers))
    written, wholes = _writes(path)
    counted = [(place, written[number]) for place, number in enumerate(writer.inputs) if written[number]]
    first = len(parameters) - len(destinations)
    counted += [(first + place, written[wholes.get(number, number)]) for place, number in enumerate(destinations)]
    recorded.writes_inputs = any(place < first for place, _ in counted)
    return Segment(recorded, tuple(writer.inputs), tuple(destinations), text, Writes(counted))


def _writes(path: Sequence[StepNode]) -> tuple[Counter[int], dict[int, int]]:
    """How often each tensor or a view of it is written in place, and what the views are views of."""
    wholes: dict[int, int] = {}
    written: Counter[int] = Counter()
    for step in path:
        first = step.operands[0]
        whole = wholes.get(first, first)
        if not step.results:
            written[whole] += 1
        elif step.known is not None and step.known.wait is Wait.VIEW:
            wholes |= dict.fromkeys(step.results, whole)
    return written, wholes
