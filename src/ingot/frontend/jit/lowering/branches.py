"""Programs that decide: the pieces of recorded paths, and the function that runs one after the other.

In: a tree of pieces. Out: a program that runs a piece, reads the tensor that Python would have asked, and goes on with
the piece for that answer. An answer for which there is no piece ends it with `UnseenAnswer`; pieces before the last
question have no effects, so that the call can begin again with Python. What always holds: a path of the tree is what
Python would do with those answers.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from ingot.frontend.grad_mode import without_gradients
from ingot.frontend.jit.lowering.faults import reporting_faults
from ingot.frontend.jit.lowering.pieces import Choice, Piece, tree_of
from ingot.frontend.jit.lowering.recorded_program import RecordedProgram, compile_trace
from ingot.frontend.jit.proof.domain.answers import expression
from ingot.frontend.jit.trace.questions import draws, ready_to_cut, writes_leaves
from ingot.frontend.jit.trace.trace import Trace
from ingot.runtime.compiler import JitCompiler

Build = Callable[[Sequence[Any]], Any]
"""Puts the result of a function together from its flattened parts."""
Finish = Callable[[RecordedProgram, int], RecordedProgram]
"""Makes what ends a path of the program of its last piece, and the number of the path."""


class UnseenAnswer(Exception):
    """A tensor's value leads to a path that was never recorded. Nothing that could be noticed has happened yet."""


@dataclass(eq=False, slots=True)
class BranchNode:
    """A piece, compiled, or what is decided after it."""

    after: BranchNode | None = None
    """What comes next, where nothing is decided."""
    program: RecordedProgram | None = None
    function: Callable[[Sequence[Any], Sequence[Any], Sequence[Any]], list[Any]] | None = None
    """Runs a piece; None where something is decided."""
    path: int = 0
    """The first of the paths that it is part of; at the end of a path the only one."""
    kept: tuple[int, ...] | None = None
    """Which of the tensors that earlier pieces have made go on to the next; None if all of them do."""
    build: Build | None = None
    """At the end of a path: makes the result."""
    text: str = ""
    decide: Callable[[Sequence[Any]], bool] | None = None
    """Decides by the answers so far."""
    following: dict[bool, BranchNode] = field(default_factory=dict)
    """What comes next, where something is decided."""

    def nodes(self) -> Iterator[BranchNode]:
        yield self
        for node in (*self.following.values(), *([] if self.after is None else [self.after])):
            yield from node.nodes()


@dataclass(frozen=True, slots=True)
class Ending:
    """A call that knows its path: what remains to be run of it."""

    node: BranchNode
    given: Sequence[Any]
    environment_tensors: Sequence[Any]
    seconds: float
    """What finding the path has cost."""

    def run(self) -> Any:
        assert self.node.build is not None and self.node.function is not None
        return self.node.build(self.node.function(self.given, self.environment_tensors, ()))


@dataclass(slots=True)
class BranchingProgram(RecordedProgram):
    """A program whose function gives the result as it is returned, not in parts."""

    root: BranchNode | None = None
    paths: int = 0
    writes_leaves: bool = False
    """Whether the end of a path writes into memory that existed before the call."""
    draws: bool = False
    """Whether the end of a path draws random numbers."""

    @property
    def parts(self) -> list[RecordedProgram]:
        assert self.root is not None
        found = [node.program for node in self.root.nodes() if node.program is not None]
        return list({id(program): program for program in found}.values())

    @property
    def has_effects(self) -> bool:
        return self.draws or self.writes_leaves

    @property
    def mutates_leaves(self) -> bool:
        return self.writes_leaves

    @property
    def is_single_region(self) -> bool:
        return False

    def find(self, arguments: Sequence[Any], environment_tensors: Sequence[Any]) -> Ending:
        """Run all but the last piece of a call."""
        assert self.root is not None
        start = time.perf_counter()
        node, given = _find(self.root, arguments, environment_tensors, ())
        return Ending(node, given, environment_tensors, time.perf_counter() - start)


@reporting_faults
def branching_program(
    tree: Piece,
    paths: Sequence[Trace],
    builds: Sequence[Build],
    compiler: JitCompiler,
    is_frozen: bool,
    finish: Finish = lambda program, path: program,
) -> BranchingProgram:
    """The program of paths that were cut into a tree; `builds` make their results."""
    programs: dict[str, RecordedProgram] = {}

    def compiled(trace: Trace) -> RecordedProgram:
        key = f"{trace.text}\n{trace.tensors}\n{trace.symbols}"
        if key not in programs:
            programs[key] = compile_trace(trace, compiler, is_frozen)
        return programs[key]

    def node_of(piece: Piece | Choice, held: int) -> BranchNode:
        """The node of a piece that is given so many tensors by earlier ones."""
        if isinstance(piece, Choice):
            following = {outcome: node_of(after, held) for outcome, after in piece.following.items()}
            return BranchNode(text=piece.text, decide=_decision(piece.text), following=following)
        program = compiled(piece.trace)
        if piece.after is None:
            function = finish(program, piece.path).function
            return BranchNode(program=program, function=function, path=piece.path, build=builds[piece.path])
        after = node_of(piece.after, len(piece.kept) + len(piece.trace.results) - 1)
        kept = None if len(piece.kept) == held else piece.kept
        return BranchNode(after, program, program.function, piece.path, kept)

    root = node_of(tree, 0)
    used = list(programs.values())
    text = "\n".join([*_tree_text(root, used), *(_named(used, part) for part in used)])
    modules = [module for part in used for module in part.modules]
    generated = tuple(one for part in used for one in part.generated)

    def function(arguments: Sequence[Any], environment_tensors: Sequence[Any], numbers: Sequence[Any]) -> Any:
        node, given = _find(root, arguments, environment_tensors, numbers)
        return node.build(node.function(given, environment_tensors, numbers))  # type: ignore[misc]

    return BranchingProgram(
        text,
        function,
        next(iter(programs.values())).steps,
        modules,
        tuple(condition for part in used for condition in part.conditions),
        any(part.has_guesses for part in used),
        generated=generated,
        root=root,
        paths=len(paths),
        writes_leaves=any(map(writes_leaves, paths)),
        draws=any(map(draws, paths)),
    )


def single_path(trace: Trace, passed: int, compiler: JitCompiler, is_frozen: bool) -> BranchingProgram:
    """The program of one path alone, which gives its results in parts; so many tensors are passed."""
    return branching_program(tree_of(ready_to_cut([trace]), passed), [trace], [list], compiler, is_frozen)


def _decision(text: str) -> Callable[[Sequence[Any]], bool]:
    """What an expression of answers decides."""
    evaluate = expression(text)
    return lambda answers: bool(evaluate(answers))


def _find(
    node: BranchNode, arguments: Sequence[Any], environment_tensors: Sequence[Any], numbers: Sequence[Any]
) -> tuple[BranchNode, Sequence[Any]]:
    """The end of the path that the values of tensors lead to, and what its piece is given."""
    given, held, answers = arguments, (), []
    while True:
        if node.decide is not None:
            try:
                following = node.following.get(node.decide(answers))
            except Exception:  # Python raises the same when the call begins again
                following = None
            if following is None:
                raise UnseenAnswer
        else:
            following = node.after
            if following is None:
                return node, given
            # Answers need no history, and what is computed with them is differentiated as it was recorded, if it is.
            asked, *made = without_gradients(node.function, given, environment_tensors, numbers)  # type: ignore[arg-type]
            answers.append(asked.item())
            kept = node.kept
            held = (*held, *made) if kept is None else (*[held[slot] for slot in kept], *made)
            given = (*arguments, *held)
        node = following


# --- text -------------------------------------------------------------------------------------------------------------


def _tree_text(node: BranchNode, programs: Sequence[RecordedProgram], asked: int = 0, depth: int = 0) -> list[str]:
    margin = "    " * depth
    if node.decide is not None:
        lines = []
        for outcome, following in node.following.items():
            lines.append(f"{margin}if {node.text} is {outcome}:")
            lines += _tree_text(following, programs, asked, depth + 1)
        return lines
    assert node.program is not None
    name = f"program_{programs.index(node.program)}"
    if node.after is None:
        return [f"{margin}return {name}"]
    return [f"{margin}r{asked} = {name}", *_tree_text(node.after, programs, asked + 1, depth)]


def _named(programs: Sequence[RecordedProgram], part: RecordedProgram) -> str:
    return "\n" + part.text.replace("def program(", f"def program_{programs.index(part)}(", 1)
