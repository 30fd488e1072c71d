"""Answers that a recorded call was given where it asked tensors for their values.

In: the questions of a recording, in order. Out: the answer to each, while the same code is walked, so that the walk
takes the path that the call took; and what was decided by them: calls for which all of it is decided in the same way
take the same path. What always holds: the n-th question of the walk is the n-th of the call. Where that is not certain,
the walk is refused: in code that may not run or that is walked ahead of time, and after two branches of which one has
left the function.
"""

from __future__ import annotations

import builtins
import math
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from ingot.frontend.jit.proof.domain.abstract_values import (
    AbstractValue,
    Fresh,
    Known,
    Raised,
    ReadNumber,
    Refused,
    Tuple,
    Union,
    computed,
)

if TYPE_CHECKING:
    from ingot.frontend.jit.proof.walk.walker import Walker

_BUILTINS = ("abs", "round", "min", "max", "int", "float", "bool")
FUNCTIONS: dict[str, Any] = {
    **{name: one for name, one in vars(math).items() if not name.startswith("_")},
    **{name: getattr(builtins, name) for name in _BUILTINS},
}
"""What expressions of answers may call, by name; with it they can be computed again."""
_ANSWER = re.compile(r"\br(\d+)\b")
_NUMBERS = (bool, int, float)
_CONVERSIONS = {"__bool__": "bool(r{})", "__float__": "float(r{})", "__int__": "int(r{})", "item": "r{}"}
_CONVERSIONS |= {"__contains__": "bool(r{})"}
"""What methods of tensors, such as `item`, turn a value into."""


_READS = "reads the value of a tensor, which is not an operation on tensors alone"


def expression(text: str) -> Callable[[Sequence[Any]], Any]:
    """An expression of answers r0, r1 ... as a function of the list of them; its text comes from a proof."""
    indexed = _ANSWER.sub(r"r[\1]", text)
    return eval(f"lambda r: {indexed}", dict(FUNCTIONS))


class Asked(Protocol):
    """A question as a recording knows it."""

    @property
    def asked_by(self) -> str:
        """The method of tensors that asked."""
        ...

    @property
    def answer(self) -> Any: ...

    @property
    def place(self) -> str:
        """The line that asked, as file:line."""
        ...


class Answers:
    """The answers of one recorded call, given in their order."""

    def __init__(self, questions: Sequence[Asked] = ()) -> None:
        self._questions = questions
        self.decisions: list[list[tuple[str, bool]]] = []
        """For each question that was asked, what was decided before the next: an expression, and its outcome."""
        self._unasked = 0
        """How many nested pieces of code that may not run, or run later, the walk is in."""
        self._asked: dict[int, AbstractValue] = {}
        """Values that were asked and went on as values, by their identity."""
        self.read_at: str | None = None
        """The line of the latest question."""
        self._lost: str | None = None
        """Why the order of questions is not known any more."""
        self.has_run_out = False
        """Whether the walk asked for more than the call."""

    @property
    def are_left(self) -> bool:
        """Whether the call asked for more than the walk."""
        return len(self.decisions) < len(self._questions)

    def ask(self, walker: Walker, asked_by: str, size: int | None) -> ReadNumber:
        """What a method made of the value of a tensor, of so many elements if that is known."""
        if not self.are_left:
            self.has_run_out = True
            walker.refuse("decides by the values of a tensor" if asked_by == "__bool__" else _READS)
        self._check(walker)
        number = len(self.decisions)
        asked = self._questions[number]
        if asked.asked_by != asked_by or not walker.is_at(asked.place) or size not in (None, 1):
            walker.refuse("reads the value of a tensor, and the recording does not say which one")
        walker.may_raise()
        self.decisions.append([])
        self.read_at = walker.place()
        convert = FUNCTIONS.get("bool" if asked_by == "__contains__" else asked_by.strip("_"), lambda answer: answer)
        return ReadNumber(_CONVERSIONS[asked_by].format(number), convert(asked.answer))

    def decide(self, walker: Walker, read: ReadNumber) -> bool:
        """Whether a number counted as true in the recorded call; from here on the path is that of calls where it does,
        or does not."""
        self._check(walker)
        outcome = bool(read.value)
        self.decisions[-1].append((read.text, outcome))
        return outcome

    def _check(self, walker: Walker) -> None:
        if self._unasked or self._lost is not None:
            walker.refuse(f"decides by the value of a tensor, and {self._lost or 'it is not certain when'}")

    def asked(self, value: AbstractValue) -> AbstractValue:
        """The value of `and`, `or` or a chain of comparisons, which was asked to find that out. Whether Python asks it
        again where the value is tested is up to Python's compiler: that is refused."""
        self._asked[id(value)] = value
        return value

    def refuse_asked(self, walker: Walker, value: AbstractValue) -> None:
        if id(value) in self._asked:
            walker.refuse("decides by the value of a tensor that was asked by 'and', 'or' or a comparison before")

    @contextmanager
    def unasked(self) -> Iterator[None]:
        """A block in which code is walked that may not run, or runs later."""
        self._unasked += 1
        try:
            yield
        finally:
            self._unasked -= 1

    @property
    def is_sure(self) -> bool:
        """Whether the call has run the code that is walked, once and at this place in the order of things."""
        return not self._unasked and self._lost is None

    def lose(self, reason: str) -> None:
        """Note that the walk goes on in code that the call may not have run."""
        self._lost = self._lost or reason


# --- numbers that were read -------------------------------------------------------------------------------------------


def is_number(value: AbstractValue) -> bool:
    """Whether a value is a number that was read, or one that is known."""
    return isinstance(value, ReadNumber) or (isinstance(value, Known) and type(value.value) in _NUMBERS)


def compute(walker: Walker, function: Callable[..., Any], form: str, operands: Sequence[AbstractValue]) -> ReadNumber:
    """The result of a function of numbers, some of which were read; `form` is its text, with {} for operands."""
    if not all(map(is_number, operands)):
        refuse_read(walker)
    texts = [one.text if isinstance(one, ReadNumber) else repr(one.value) for one in operands]  # type: ignore[attr-defined]
    try:
        found = computed(function, *(one.value for one in operands)).value  # type: ignore[attr-defined]
    except Raised:
        walker.refuse("computes with a number that was read from a tensor, which raises an exception")
    if type(found) not in _NUMBERS:
        refuse_read(walker)
    return ReadNumber(form.format(*texts), found)


def call(walker: Walker, function: Any, operands: Sequence[AbstractValue]) -> ReadNumber:
    """What a native function of numbers gives."""
    name = getattr(function, "__name__", "")
    if FUNCTIONS.get(name) is not function:
        refuse_read(walker)
    return compute(walker, function, f"{name}({', '.join(['{}'] * len(operands))})", operands)


def refuse_read(walker: Walker) -> NoReturn:
    """Refuse a use of a number that was read; the line of the refusal is where it was read."""
    reason = "turns a tensor's value into a Python value, and does more with it than decide"
    raise Refused(reason, walker.answers.read_at or walker.place())


def holds_read(walker: Walker, value: AbstractValue) -> bool:
    """Whether a value is, or holds in lists and tuples, a number that was read."""
    match value:
        case ReadNumber():
            return True
        case Tuple():
            return any(holds_read(walker, item) for item in value.items)
        case Union():
            return any(holds_read(walker, one) for one in value.values)
        case Fresh():
            held = walker.state.items.get(value.identity)
            parts = held.values() if isinstance(held, dict) else held if isinstance(held, tuple) else ()
            return any(holds_read(walker, part) for part in parts)
    return False
