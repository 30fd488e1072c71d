"""The walk over a function's code: the state it is in, and what every part of it needs.

In: a function and its arguments. Out: what it returns, as an abstract value, and the guards on every place that was
read. What always holds: no code of the user's runs; code that is not understood ends the walk with `Refused`.
"""

from __future__ import annotations

import ast
import functools
import itertools
import types
from collections.abc import Callable, Hashable, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

import torch

from ingot.frontend.jit.arguments.given_objects import GivenObjects
from ingot.frontend.jit.proof.domain import answers
from ingot.frontend.jit.proof.domain.abstract_values import (
    AbstractTensor,
    AbstractValue,
    Closure,
    Determined,
    Frame,
    Fresh,
    Known,
    Open,
    OpenTuple,
    Raised,
    ReadNumber,
    Refused,
    Tuple,
    Union,
    WalkState,
    join,
    merge,
)
from ingot.frontend.jit.proof.domain.answers import Answers
from ingot.frontend.jit.proof.domain.open_sizes import OpenSizes
from ingot.frontend.jit.proof.domain.place_guards import (
    DictEntry,
    DictItems,
    FunctionCode,
    Guard,
    TypeAttribute,
    dict_items,
    type_lookup,
)
from ingot.frontend.jit.proof.domain.result_caches import KeptCall
from ingot.frontend.jit.proof.semantics import abstract_operators, attribute_lookup, containers
from ingot.frontend.jit.proof.walk import calls, expressions, statements
from ingot.frontend.jit.proof.walk.source import Source

STEPS = 400_000
"""How many nodes a walk visits at most, repeated visits included."""
DEPTH = 60
"""How deeply calls may be nested."""


class Walker:
    def __init__(self, answered: Answers | None = None, given: GivenObjects | None = None) -> None:
        self.state = WalkState()
        self.answers = Answers() if answered is None else answered
        self.given = given
        """The objects with state among the arguments, as they were when the call began."""
        self.given_places: dict[int, int] = {}
        """Their positions, by the identities of what stands for them."""
        self.given_before: dict[int, Any] = {}
        """What stood for their contents when the call began, by position."""
        self.told_by_parts: set[int] = set()
        """The identities of arguments such as dataclasses, which another call may have of its own: its key tells their
        parts, and not which objects they are."""
        self.guards: dict[Hashable, Guard] = {}
        self.stack: list[Frame] = []
        self.line = 0
        self.tries = 0
        """How many statements around the present place would catch an exception."""
        self.open_tries = 0
        """How many of them catch nothing that an operation may raise because of values."""
        self.writes = 0
        """Writes into tensors with known values: each makes all values that were known before unknown."""
        self.schedules: list[Any] = []
        """Schedules of learning rates that have taken a step, in order."""
        self.kept_calls: list[KeptCall] = []
        """Calls of functions that keep their results, in order."""
        self.calls_script = False
        """Whether it calls TorchScript functions, which make tensors of numbers that no recording sees being made."""
        self.mutations = 0
        """Changes of what was made during the call: generators are walked ahead of time, and must not notice."""
        self.sources: dict[int, Any] = {}
        """For each iterator: what must not have changed when it is used."""
        self.same_keys: dict[int, tuple[Any, Any]] = {}
        """For the contents of a dictionary that have come about by giving entries other values, by identity: these
        contents, and those before the first of such changes."""
        self.writers: dict[tuple[int, str | None], str] = {}
        """Where places of known objects were written."""
        self.written_at = "?:0"
        self.shown: dict[int, tuple[str, int, Any]] = {}
        """For each dictionary that shows the attributes or entries of an object: which, whose, and what they were."""
        self.tokens: dict[int, Any] = {}
        """For each token of a context variable: the variable, and its value before."""
        self.absent: dict[tuple[tuple[Any, ...], str], None] = {}
        """Attributes that tensors among the arguments must not have: where the tensor is, and the name."""
        self.goes_through_sets = False
        """Whether code goes through the members of a set, in an order that may be another one in another process."""
        self.metas: dict[int, AbstractTensor] = {}
        self.sizes = OpenSizes()
        self.is_autocast = any(torch.is_autocast_enabled(device) for device in ("cpu", "cuda"))
        self.given_tensors: dict[int, AbstractTensor] = {}
        """Tensors among the arguments, by identity."""
        self.changes_settings = False
        """Whether the call has made a context that changes grad mode, autocast or the like."""
        self._steps = STEPS
        self._identities = itertools.count()

    # --- refusing and guarding

    @property
    def frame(self) -> Frame:
        return self.stack[-1]

    def place(self) -> str:
        """Where the walk is: the innermost line that is not in PyTorch's own files."""
        line = self.line
        for frame in reversed(self.stack):
            if "/torch/" not in frame.file:
                return f"{frame.file}:{line}"
            line = frame.called_at
        return f"{self.frame.file}:{self.line}" if self.stack else self.written_at

    def is_at(self, place: str) -> bool:
        """Whether the statement that the walk is in, outside of PyTorch's own files, has a line."""
        line = int(place.rpartition(":")[2])
        first, last = next((frame.lines for frame in reversed(self.stack) if "/torch/" not in frame.file), (0, 0))
        return first <= line <= last if first else self.place().endswith(f":{line}")

    def refuse(self, reason: str) -> NoReturn:
        raise Refused(reason, self.place())

    def guard(self, key: Hashable, make: Callable[[], Guard]) -> None:
        """Adds a guard, unless there is one of this key."""
        if key not in self.guards:
            self.guards[key] = make()

    def type_attribute(self, cls: type, name: str) -> Any:
        """What a class and its bases hold under a name, guarded."""
        found = type_lookup(cls, name)
        if not _is_fixed(cls):
            self.guard(
                (TypeAttribute, cls, name), lambda: TypeAttribute(cls, name, found, f"{cls.__qualname__}.{name}")
            )
        return found

    def entry(self, dictionary: dict[Any, Any], key: Any, default: Any, text: str) -> Any:
        """An entry of a dictionary, guarded."""
        found = dict.get(dictionary, key, default)
        self.guard(
            (DictEntry, id(dictionary), type(key), key), lambda: DictEntry(dictionary, key, found, text or str(key))
        )
        return found

    def entries(self, dictionary: dict[Any, Any], text: str) -> tuple[tuple[Any, Any], ...]:
        """All entries of a dictionary, guarded."""
        found = dict_items(dictionary)
        self.guard((DictItems, id(dictionary)), lambda: DictItems(dictionary, found, text))
        return found

    def guard_function(self, function: types.FunctionType) -> None:
        self.guard((FunctionCode, id(function)), lambda: FunctionCode.of(function))

    def write(self, held: Any, name: str | None, new: Any) -> None:
        """Notes that an object that was not made during the call holds another value for now."""
        self.state.written[id(held), name] = (held, new)
        self.writers[id(held), name] = self.place()

    # --- branching

    def fork(self, actions: list[Callable[[], AbstractValue]]) -> AbstractValue:
        """The value of one of several actions, always the same one; an action that raises is not the one."""
        before, error = self.state, None
        results: list[tuple[WalkState, AbstractValue]] = []
        for action in actions:
            self.state = before.copy()
            try:
                with self.answers.unasked():
                    value = action()
            except Raised as raised:
                error = raised
                self.answers.lose("whether an exception is raised depends on a value that is not known")
                self.may_raise()
            else:
                results.append((self.state, value))
        if not results:
            assert error is not None
            raise error
        self.state = functools.reduce(merge, [state for state, _ in results])
        return functools.reduce(join, [value for _, value in results])

    @property
    def is_within_torch(self) -> bool:
        """Whether the walk is inside a function of PyTorch's whose call modes see, but not its operations."""
        return any(frame.is_dispatched for frame in self.stack)

    def may_raise(self) -> None:
        """Code that may raise can be walked only where no handler catches it: then the call itself would have raised,
        and would not be recorded."""
        if self.tries:
            self.refuse("whether an exception is raised inside a 'try' depends on a value that is not known here")

    def operation_may_raise(self) -> None:
        """The same for an operation of PyTorch's."""
        if self.tries > self.open_tries:
            self.may_raise()

    def determined(self, cls: type | None = None) -> Determined:
        self.may_raise()
        return Determined(cls)

    def each(self, value: Union, action: Callable[[AbstractValue], AbstractValue]) -> AbstractValue:
        return self.fork([functools.partial(action, one) for one in value.values])

    # --- making

    def new(self, cls: type, items: Any = None, attributes: dict[str, AbstractValue] | None = None) -> Fresh:
        fresh = Fresh(cls, next(self._identities))
        if items is not None:
            self.state.items[fresh.identity] = items
        if attributes is not None:
            self.state.attributes[fresh.identity] = attributes
        return fresh

    def new_showing(self, part: str, value: AbstractValue, entries: dict[Any, AbstractValue]) -> Fresh:
        """A dictionary that shows the `attributes` or `items` of an object as they are at each moment."""
        copy = self.new(dict, dict(entries))
        copy.is_callers = True
        if isinstance(value, Fresh):
            self.shown[copy.identity] = part, value.identity, getattr(self.state, part).get(value.identity)
        return copy

    def may_change(self, value: Fresh) -> bool:
        """Whether code may change an object: one that it made, or one that the proof says the changes of."""
        return not value.is_callers or value.identity in self.given_places

    def new_list(self, items: Any) -> Fresh:
        return self.new(list, tuple(items))

    def new_frame(self, source: Source, **more: Any) -> Frame:
        names, global_names = statements.local_names(source.node)
        return Frame(
            source.node,
            identity=next(self._identities),
            names=names,
            global_names=global_names,
            class_name=source.class_name,
            **more,
        )

    @contextmanager
    def entered(self, frame: Frame):
        if len(self.stack) >= DEPTH:
            self.refuse("calls are nested too deeply")
        frame.called_at = self.line
        self.stack.append(frame)
        try:
            yield
        finally:
            self.stack.pop()
            self.line = frame.called_at

    @contextmanager
    def unchanged(self):
        """Walks code ahead of time: it must not raise, and not change what was there before."""
        items, attributes = dict(self.state.items), dict(self.state.attributes)
        frames = {identity: dict(names) for identity, names in self.state.frames.items()}
        written = dict(self.state.written)
        self.sizes.ahead += 1
        try:
            with self.answers.unasked():
                yield
        except Raised:
            self.refuse("has a generator that raises an exception")
        finally:
            self.sizes.ahead -= 1
        state = self.state
        is_same = (
            all(state.items.get(identity) is held for identity, held in items.items())
            and all(state.attributes.get(identity) is held for identity, held in attributes.items())
            and all(state.frames.get(identity) == names for identity, names in frames.items())
            and state.written == written
        )
        if not is_same:
            self.refuse("has a generator that changes something")

    def step(self, node: ast.AST) -> None:
        self._steps -= 1
        if self._steps < 0:
            self.refuse("the function is too long to be walked")
        self.line = node.lineno  # type: ignore[attr-defined]

    # --- what the parts do

    def run(self, body: list[ast.stmt]) -> bool:
        """Walks statements; says whether the walk gets to their end."""
        return statements.run(self, body)

    def assign(self, target: ast.expr, value: AbstractValue) -> None:
        statements.assign(self, target, value)

    def evaluate(self, node: ast.expr) -> AbstractValue:
        return expressions.evaluate(self, node)

    def call(
        self, function: AbstractValue, args: list[AbstractValue], kwargs: dict[str, AbstractValue] | None = None
    ) -> AbstractValue:
        return calls.call(self, function, args, kwargs or {})

    def attribute(self, value: AbstractValue, name: str) -> AbstractValue:
        return attribute_lookup.attribute(self, value, name)

    def method(self, value: AbstractValue, name: str) -> AbstractValue | None:
        """A special method, which is looked up in the class alone; None if the class has none."""
        return attribute_lookup.special_method(self, value, name)

    def iterate(self, value: AbstractValue) -> list[AbstractValue]:
        return containers.iterate(self, value)

    def sequence(self, value: AbstractValue) -> Sequence[AbstractValue] | None:
        """The items of a list or tuple; None for anything else."""
        return containers.sequence(self, value)

    def equal(self, left: AbstractValue, right: AbstractValue) -> bool | None:
        """Whether two values are equal; None if that is not known."""
        return abstract_operators.equal(self, left, right)

    def compare(self, node: type[ast.cmpop], left: AbstractValue, right: AbstractValue) -> AbstractValue:
        return abstract_operators.compare(self, node, left, right)

    def truth(self, value: AbstractValue) -> bool | None:
        """Whether a value counts as true; None if that is not known, but always the same."""
        return abstract_operators.truth(self, value)

    def class_of(self, value: AbstractValue) -> type | None:
        """The class of a value; None where it is not known."""
        match value:
            case Open():
                return int
            case OpenTuple():
                return value.cls
            case ReadNumber():
                return answers.refuse_read(self)
            case Known():
                return type(value.value)
            case AbstractTensor() | Tuple() | Fresh() | Determined():
                return value.cls
            case Closure():
                return types.FunctionType
            case _:
                return None


def _is_fixed(cls: type) -> bool:
    """Whether no attribute of a class can be replaced: it and all its bases are written in C."""
    return not cls.__flags__ & _HEAP_TYPE and cls is not torch._C.TensorBase


_HEAP_TYPE = 1 << 9
