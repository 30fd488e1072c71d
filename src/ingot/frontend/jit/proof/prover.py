"""Proving one function for one call.

In: a function, and the arguments of a call of it that returned. Out: a proof or a refusal. The call key is what the
caller compares before it uses a proof: shapes, strides, dtypes and devices of tensors among the arguments, the values
of plain arguments, the structure of lists, tuples and dictionaries, and PyTorch's switches (gradients, autocast,
default dtype, function modes). What always holds: objects among the arguments that are none of these are named in the
proof, and have to be the same ones.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from ingot.frontend.grad_mode import without_gradients
from ingot.frontend.jit.arguments.given_objects import GivenObjects
from ingot.frontend.jit.arguments.structure import is_named_tuple, is_taken_apart, mutable_containers
from ingot.frontend.jit.proof.domain import answers
from ingot.frontend.jit.proof.domain.abstract_values import (
    AbstractTensor,
    AbstractValue,
    Fresh,
    Known,
    Open,
    Raised,
    ReadNumber,
    Refused,
    Tuple,
    Union,
    known,
    tuple_of,
)
from ingot.frontend.jit.proof.domain.answers import Answers, Asked
from ingot.frontend.jit.proof.domain.open_sizes import SizeFacts
from ingot.frontend.jit.proof.domain.place_guards import Guard, identities_in, is_plain
from ingot.frontend.jit.proof.domain.result_caches import KeptCall
from ingot.frontend.jit.proof.natives import schedules
from ingot.frontend.jit.proof.semantics import attribute_lookup, given_state, operations
from ingot.frontend.jit.proof.walk.walker import Walker


@dataclass(frozen=True)
class ArgumentIdentity:
    """An object among the arguments that has to be the same one."""

    path: tuple[Any, ...]
    """A position or a name, then keys of containers."""
    value: Any


@dataclass(frozen=True)
class Proof:
    guards: list[Guard]
    arguments: list[ArgumentIdentity]
    absent: list[tuple[tuple[Any, ...], str]]
    """Attributes that tensors among the arguments must not have: the path of the tensor, and the name."""
    returned: list[Any]
    """Objects in the result that were not made during the call, apart from tensors and plain values: a recording has to
    return the same ones. Lists and dictionaries among the arguments are not known by identity: `...` stands for one."""
    sizes: SizeFacts | None = None
    """How the sizes of tensors were used, if all that was seen of them is known as functions of sizes."""
    keys: list[Hashable] = field(default_factory=list)
    """The keys of the guards, in their order: guards with equal keys check the same place."""
    decisions: list[list[tuple[str, bool]]] = field(default_factory=list)
    """For each question of the call, what was decided by the answers: it holds for calls that decide the same."""
    schedules: list[Any] = field(default_factory=list)
    """Schedules of learning rates that take a step, in order."""
    outline: Any = None
    """What the result is nested like, with a ReadNumber for each number in it that was read; None if none was."""
    kept_calls: list[KeptCall] = field(default_factory=list)
    """Calls of functions that keep their results, in order: each found the one that its guard expects."""
    calls_script: bool = False
    """Whether TorchScript functions are called, which make tensors of numbers that no recording sees being made."""
    changes: dict[tuple[int, Any], Any] = field(default_factory=dict)
    """What the call leaves in objects with state among the arguments, by their position and the place in them; what is
    there, as `given_state` has it."""
    goes_through_sets: bool = False
    """Whether it depends on the order of sets, which differs from process to process."""

    def holds(self) -> bool:
        return all(guard.holds() for guard in self.guards)

    def broken(self) -> str | None:
        """The name of the first place that holds something else."""
        return next((guard.text for guard in self.guards if not guard.holds()), None)


@dataclass(frozen=True)
class Refusal:
    reason: str
    place: str
    """file:line"""
    lacks_answers: bool = False
    """Whether it says only that the code asks tensors for values which the proof was not told."""


def prove(
    function: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    questions: Sequence[Asked] = (),
    given: GivenObjects | None = None,
) -> Proof | Refusal:
    """With the questions that the call asked of tensors, the proof holds for calls that take the same path. `given` are
    objects with state among the arguments, as they were when the call began."""
    walker = Walker(Answers(questions), given)
    arguments: list[ArgumentIdentity] = []
    try:
        with torch._C.DisableTorchFunction(), _disable_current_modes():
            returned, outline, changes = without_gradients(_walk, walker, function, args, kwargs, arguments)
    except Refused as refused:
        return Refusal(refused.reason, refused.place, walker.answers.has_run_out)
    except Raised as raised:
        return Refusal(f"raises {raised.cls.__name__}: {raised}", walker.place())
    except RecursionError:
        return Refusal("calls are nested too deeply", walker.place())
    except Exception as error:  # an error of the walk itself is no proof
        return Refusal(f"the walk fails: {type(error).__name__}: {error}", walker.place())
    guards, sizes = walker.guards, walker.sizes.facts()
    found = list(guards.values()), arguments, list(walker.absent), returned, sizes, list(guards)
    if given is not None and not identities_in(found[0]).isdisjoint(given.identities()):
        return Refusal("an object among the arguments is reached in another way as well", walker.place())
    more = walker.kept_calls, walker.calls_script, changes, walker.goes_through_sets
    return Proof(*found, walker.answers.decisions, walker.schedules, outline, *more)


def _walk(
    walker: Walker, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], arguments: list[ArgumentIdentity]
) -> tuple[list[Any], Any, dict[tuple[int, Any], Any]]:
    """The objects that a call returns, the outline of its result, and what it leaves in objects that it is given."""
    values = [_abstract(walker, value, (index,), arguments) for index, value in enumerate(args)]
    named = {name: _abstract(walker, value, (name,), arguments) for name, value in kwargs.items()}
    result = walker.call(known(function, getattr(function, "__name__", "function")), values, named)
    attribute_lookup.check_restored(walker)
    schedules.check_unread(walker)
    returned = list(_foreign(walker, result, set()))
    outline = _outline(walker, result) if answers.holds_read(walker, result) else None
    if walker.answers.are_left:
        walker.refuse("reads values of tensors at places that the proof does not see")
    return returned, outline, given_state.changes(walker)


def _outline(walker: Walker, value: AbstractValue) -> Any:
    """What a result is nested like: an object with the same leaves, of which tensors are not known."""
    match value:
        case ReadNumber():
            return value
        case Known():
            return value.value
        case AbstractTensor() | Open():
            return None
        case Tuple() if value.cls is tuple:
            return tuple(_outline(walker, item) for item in value.items)
        case Fresh() if value.cls in (list, dict) and not value.is_callers:
            held = walker.state.items.get(value.identity)
            if isinstance(held, dict):
                return {key: _outline(walker, item) for key, item in held.items()}
            if isinstance(held, tuple):
                return [_outline(walker, item) for item in held]
    return answers.refuse_read(walker)


def _foreign(walker: Walker, value: AbstractValue, seen: set[int]) -> Iterator[Any]:
    """Objects inside a result that were not made during the call."""
    match value:
        case Known() if not is_plain(value.value) and not isinstance(value.value, torch.Tensor):
            yield value.value
        case Tuple() | Union():
            for part in value.items if isinstance(value, Tuple) else value.values:
                yield from _foreign(walker, part, seen)
        case Fresh() if value.identity not in seen:
            seen.add(value.identity)
            if value.identity in walker.given_places:
                return  # each call returns its own
            if value.is_callers:
                yield ...
            for held in (walker.state.items.get(value.identity), walker.state.attributes.get(value.identity)):
                for part in held.values() if isinstance(held, dict) else held if isinstance(held, tuple) else ():
                    yield from _foreign(walker, part, seen)


def _abstract(walker: Walker, value: Any, path: tuple[Any, ...], arguments: list[ArgumentIdentity]) -> AbstractValue:
    """An argument as a value: what belongs to the call key is known, other objects are known by identity."""
    part_of = lambda part, key: _abstract(walker, part, (*path, key), arguments)
    made = given_state.stand_in(walker, value, part_of)
    if made is not None:
        return made
    if isinstance(value, torch.Tensor):
        found = walker.given_tensors.get(id(value))
        if found is None:  # which arguments are the same tensor is part of the call key
            found = walker.given_tensors[id(value)] = operations.tensor_value(walker, value)
            found.path, found.attributes = path, frozenset(vars(value))
        return found
    if is_plain(value):
        return known(value)
    kind = type(value)
    if kind is tuple or is_named_tuple(value):
        items = [_abstract(walker, item, (*path, index), arguments) for index, item in enumerate(tuple.__iter__(value))]
        return tuple_of(items) if kind is tuple else Tuple(items, kind)
    if kind is list:
        made = walker.new_list([_abstract(walker, item, (*path, index), arguments) for index, item in enumerate(value)])
        made.is_callers = True
        return made
    if kind is dict and all(map(is_plain, value)):
        entries: Any = value
        made = walker.new(dict, {key: _abstract(walker, entries[key], (*path, key), arguments) for key in entries})
        made.is_callers = True
        return made
    if is_taken_apart(value):
        walker.told_by_parts |= {id(value), *map(id, mutable_containers(value))}
    arguments.append(ArgumentIdentity(path, value))
    return known(value, str(path[0]))
