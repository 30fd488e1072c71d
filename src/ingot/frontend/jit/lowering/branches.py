"""Programs that decide: the pieces of recorded paths, and who runs one after the other.

In: a tree of pieces. Out: a program that runs a piece, reads the tensor that Python would have asked, and goes on with
the piece for that answer. An answer for which there is no piece ends it with `UnseenAnswer`; pieces before the last
question have no effects, so that the call can be begun again in another way. What always holds: a path of the tree is
what Python would do with those answers.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from ingot.frontend.jit.lowering.pieces import Piece, tree_of
from ingot.frontend.jit.lowering.program import Program, compile_trace
from ingot.frontend.jit.trace.questions import draws, writes_leaves
from ingot.frontend.jit.trace.trace import Trace
from ingot.runtime.compiler import JitCompiler

Build = Callable[[Sequence[Any]], Any]
"""Makes what a function returns of its flattened parts."""


class UnseenAnswer(Exception):
    """A tensor's value leads to a path that was never recorded. Nothing has happened yet that anybody can see."""


@dataclass(eq=False, slots=True)
class Node:
    """A piece, compiled."""

    program: Program
    function: Callable[[Sequence[Any], Sequence[Any], Sequence[Any]], list[Any]]
    path: int
    """The first of the paths that it is part of; at the end of a path the only one."""
    kept: tuple[int, ...] | None
    """Which of the tensors that earlier pieces have made go on to the next; None if all of them do."""
    build: Build | None
    """At the end of a path: makes the result."""
    following: dict[bool, Node] = field(default_factory=dict)

    def nodes(self) -> Iterator[Node]:
        yield self
        for node in self.following.values():
            yield from node.nodes()


@dataclass(frozen=True, slots=True)
class Ending:
    """A call that knows its path: what remains to be run of it."""

    node: Node
    given: Sequence[Any]
    surroundings: Sequence[Any]
    seconds: float
    """What finding the path has cost."""

    def run(self) -> Any:
        assert self.node.build is not None
        return self.node.build(self.node.function(self.given, self.surroundings, ()))


@dataclass(slots=True)
class BranchingProgram(Program):
    """A program whose function gives the result as it is returned, not in parts."""

    root: Node | None = None
    paths: int = 0
    writes_leaves: bool = False
    """Whether the end of a path writes into memory that existed before the call."""
    draws: bool = False
    """Whether the end of a path draws random numbers."""

    @property
    def parts(self) -> list[Program]:
        assert self.root is not None
        return list({id(node.program): node.program for node in self.root.nodes()}.values())

    @property
    def has_effects(self) -> bool:
        return self.draws or self.writes_leaves

    @property
    def mutates_leaves(self) -> bool:
        return self.writes_leaves

    @property
    def is_single_region(self) -> bool:
        return False

    def find(self, arguments: Sequence[Any], surroundings: Sequence[Any]) -> Ending:
        """Run all but the last piece of a call."""
        assert self.root is not None
        start = time.perf_counter()
        node, given = _find(self.root, arguments, surroundings)
        return Ending(node, given, surroundings, time.perf_counter() - start)


def branching_program(
    paths: Sequence[Trace], arguments: int, builds: Sequence[Build], compiler: JitCompiler, is_frozen: bool
) -> BranchingProgram:
    """The program of paths whose surroundings are the same list, given so many tensors; `builds` make their results."""
    programs: dict[str, Program] = {}

    def compiled(trace: Trace) -> Program:
        key = f"{trace.text}\n{trace.tensors}"
        if key not in programs:
            programs[key] = compile_trace(trace, compiler, is_frozen)
        return programs[key]

    def node_of(piece: Piece, held: int) -> Node:
        program = compiled(piece.trace)
        following = {}
        for answer, after in piece.following.items():
            following[answer] = node_of(after, len(piece.kept) + len(piece.trace.results) - 1)
        kept = None if len(piece.kept) == held else piece.kept
        build = None if following else builds[piece.path]
        return Node(program, program.function, piece.path, kept, build, following)

    root = node_of(tree_of(paths, arguments), 0)
    used = list(programs.values())
    text = "\n".join([*_tree_text(root, used), *(_named(used, part) for part in used)])
    modules = [module for part in used for module in part.modules]
    generated = tuple(one for part in used for one in part.generated)

    def function(arguments: Sequence[Any], surroundings: Sequence[Any], numbers: Sequence[Any]) -> Any:
        node, given = _find(root, arguments, surroundings)
        return node.build(node.function(given, surroundings, ()))  # type: ignore[misc]

    return BranchingProgram(
        text,
        function,
        root.program.steps,
        modules,
        generated=generated,
        root=root,
        paths=len(paths),
        writes_leaves=any(map(writes_leaves, paths)),
        draws=any(map(draws, paths)),
    )


def _find(node: Node, arguments: Sequence[Any], surroundings: Sequence[Any]) -> tuple[Node, Sequence[Any]]:
    """The end of the path that the values of tensors lead to, and what its piece is given."""
    given, held = arguments, ()
    while node.following:
        asked, *made = node.function(given, surroundings, ())
        following = node.following.get(bool(asked.item()))
        if following is None:
            raise UnseenAnswer
        kept = node.kept
        held = (*held, *made) if kept is None else (*[held[slot] for slot in kept], *made)
        given, node = (*arguments, *held), following
    return node, given


# --- text -------------------------------------------------------------------------------------------------------------


def _tree_text(node: Node, programs: Sequence[Program], depth: int = 0) -> list[str]:
    margin, name = "    " * depth, f"program_{programs.index(node.program)}"
    if not node.following:
        return [f"{margin}return {name}"]
    lines = [f"{margin}run {name}"]
    for answer, following in node.following.items():
        lines += [f"{margin}if {'it is true' if answer else 'it is false'}:"]
        lines += _tree_text(following, programs, depth + 1)
    return lines


def _named(programs: Sequence[Program], part: Program) -> str:
    return "\n" + part.text.replace("def program(", f"def program_{programs.index(part)}(", 1)
