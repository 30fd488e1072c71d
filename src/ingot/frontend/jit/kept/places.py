"""Guards as reads of numbered objects: what a file says of a place, and the guard that comes of it in another process.

In: the guards of a proof, in their order. Out: one list for each, which names the place by numbers of objects and says
what it held. Read back, each place is looked at, what it holds is bound to what the file says, and the guard of this
process is made. What always holds: an object is met before a place of it is read, so that reading runs no code of the
user's and needs no search.
"""

from __future__ import annotations

import builtins
import functools
import json
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from dataclasses import dataclass
from hashlib import sha256
from types import CellType, FunctionType, MemberDescriptorType
from typing import Any

import torch

from ingot.frontend.jit.kept.anatomy import NotPortable
from ingot.frontend.jit.kept.references import Mismatch, Numbering, ObjectBinding, outline
from ingot.frontend.jit.proof.domain import place_guards as guards
from ingot.frontend.jit.proof.domain.place_guards import ABSENT, Guard
from ingot.frontend.jit.proof.semantics import torch_names


@dataclass(frozen=True, slots=True)
class _Row:
    """How one kind of guard is written and read."""

    subjects: Callable[[Any], tuple[Any, ...]]
    """The objects that have to be known before the place can be read."""
    write: Callable[[Any, Numbering], list[Any]]
    """What to say of the place besides its subjects."""
    read: Callable[[ObjectBinding, tuple[Any, ...], list[Any], str], Guard]
    """The guard of this process, given its subjects, what was said, and its text. A `Mismatch` where the place holds
    something else."""


def write_places(found: Iterable[Guard], numbering: Numbering) -> list[Any]:
    """All guards, each after what leads to its subjects."""
    written: list[Any] = []
    waiting = list(found)
    while waiting:
        later = [guard for guard in waiting if not _write(guard, numbering, written, is_named=False)]
        if len(later) == len(waiting):
            later = [guard for guard in waiting if not _write(guard, numbering, written, is_named=True)]
            if len(later) == len(waiting):
                raise NotPortable(f"nothing that is known leads to {later[0].text}")
        waiting = later
    return written


def _write(guard: Guard, numbering: Numbering, written: list[Any], is_named: bool) -> bool:
    """Write one guard, if its subjects are known or can be found by their names; whether it was written."""
    row = _ROWS.get(type(guard))
    if row is None:
        raise NotPortable(f"{guard.text} is guarded in a way that no other process can repeat")
    subjects = row.subjects(guard)
    unknown = [one for one in subjects if not numbering.knows(one)]
    try:
        with numbering.tentatively():
            leads = [numbering.name(one) for one in unknown]
    except NotPortable as error:
        if is_named:
            raise NotPortable(f"{guard.text}: {error}") from None
        return False
    numbers = [numbering.number(one) for one in subjects]
    written.append([type(guard).__name__, leads, numbers, row.write(guard, numbering), guard.text])
    return True


def read_places(written: Iterable[Any], binding: ObjectBinding) -> list[Guard]:
    """The guards of this process; a `Mismatch` if a place holds something else than it did."""
    found = []
    for name, leads, numbers, told, text in written:
        for lead in leads:
            binding.bind_named(lead)
        subjects = tuple([binding[number] for number in numbers])
        found.append(_BY_NAME[name].read(binding, subjects, told, text))
    return found


# --- the rows ---------------------------------------------------------------------------------------------------------


def _require(is_so: bool) -> None:
    if not is_so:
        raise Mismatch


def _write_expected(guard: Any, numbering: Numbering) -> list[Any]:
    return [numbering.reference(guard.expected)]


def _read_entry(binding: ObjectBinding, subjects: tuple[Any, ...], told: list[Any], text: str) -> Guard:
    (dictionary,), key = subjects, binding.value(told[0])
    _require(isinstance(dictionary, dict))
    found = dict.get(dictionary, key, ABSENT)
    binding.bind(told[1], found)
    return guards.DictEntry(dictionary, key, found, text)


def _write_key(guard: guards.DictEntry, numbering: Numbering) -> list[Any]:
    key = guard.key
    if type(key) not in (str, bytes, int, type(None), torch.dtype) and not numbering.knows(key):
        raise NotPortable(f"the key of {guard.text} is not one that another process can look up")
    return [numbering.reference(key), numbering.reference(guard.expected)]


def _write_items(guard: guards.DictItems, numbering: Numbering) -> list[Any]:
    return [[numbering.reference(key), numbering.reference(value)] for key, value in guard.expected]


def _read_items(binding: ObjectBinding, subjects: tuple[Any, ...], told: list[Any], text: str) -> Guard:
    (dictionary,) = subjects
    _require(isinstance(dictionary, dict))
    found = guards.dict_items(dictionary)
    _require(len(found) == len(told))
    for (key, value), (key_told, value_told) in zip(found, told, strict=True):
        binding.bind(key_told, key)
        binding.bind(value_told, value)
    return guards.DictItems(dictionary, found, text)


def _write_sequence(guard: Any, numbering: Numbering) -> list[Any]:
    return [numbering.reference(one) for one in guard.expected]


def _read_sequence(
    make: Callable[..., Guard], cls: type
) -> Callable[[ObjectBinding, tuple[Any, ...], list[Any], str], Guard]:
    def read(binding: ObjectBinding, subjects: tuple[Any, ...], told: list[Any], text: str) -> Guard:
        (values,) = subjects
        _require(isinstance(values, cls))
        found = tuple(cls.__iter__(values))
        _require(len(found) == len(told))
        for one, other in zip(told, found, strict=True):
            binding.bind(one, other)
        return make(values, found, text)

    return read


def _members(guard: guards.SetMember) -> tuple[Any, ...]:
    return (guard.members,) if type(guard.member) is str else (guard.members, guard.member)


def _write_member(guard: guards.SetMember, numbering: Numbering) -> list[Any]:
    return [numbering.reference(guard.member), guard.expected]


def _read_member(binding: ObjectBinding, subjects: tuple[Any, ...], told: list[Any], text: str) -> Guard:
    _require(type(subjects[0]) is set)
    made = guards.SetMember(subjects[0], binding.value(told[0]), told[1], text)
    _require(made.holds())
    return made


def _read_cell(binding: ObjectBinding, subjects: tuple[Any, ...], told: list[Any], text: str) -> Guard:
    (cell,) = subjects
    _require(type(cell) is CellType)
    try:
        found = cell.cell_contents
    except ValueError:
        found = ABSENT
    binding.bind(told[0], found)
    return guards.CellContents(cell, found, text)


def _write_function(guard: guards.FunctionCode, numbering: Numbering) -> list[Any]:
    keywords = [[name, numbering.reference(value)] for name, value in guard.keyword_defaults]
    return [numbering.reference(guard.defaults), keywords]


def _read_function(binding: ObjectBinding, subjects: tuple[Any, ...], told: list[Any], text: str) -> Guard:
    (function,) = subjects
    _require(type(function) is FunctionType)
    made = guards.FunctionCode.of(function)
    binding.bind(told[0], made.defaults)
    _require(len(made.keyword_defaults) == len(told[1]))
    for (name, value), (name_told, value_told) in zip(made.keyword_defaults, told[1], strict=True):
        _require(name == name_told)
        binding.bind(value_told, value)
    return made


def _read_partial(binding: ObjectBinding, subjects: tuple[Any, ...], told: list[Any], text: str) -> Guard:
    (partial,) = subjects
    _require(type(partial) is functools.partial)
    made = guards.PartialCall.of(partial, text)
    for one, other in zip(told, made.parts, strict=True):
        binding.bind(one, other)
    return made


def _read_type_attribute(binding: ObjectBinding, subjects: tuple[Any, ...], told: list[Any], text: str) -> Guard:
    (cls,), name = subjects, told[0]
    _require(isinstance(cls, type))
    found = guards.type_lookup(cls, name)
    binding.bind(told[1], found)
    return guards.TypeAttribute(cls, name, found, text)


def _read_class_name(binding: ObjectBinding, subjects: tuple[Any, ...], told: list[Any], text: str) -> Guard:
    (cls,), name = subjects, told[0]
    _require(isinstance(cls, type))
    found = type.__getattribute__(cls, name)
    binding.bind(told[1], found)
    return guards.ClassName(cls, name, found, text)


def _read_subclass(binding: ObjectBinding, subjects: tuple[Any, ...], told: list[Any], text: str) -> Guard:
    cls, of = subjects
    _require(issubclass(cls, of) is told[0])
    return guards.Subclass(cls, of, told[0], text)


def _read_object_class(binding: ObjectBinding, subjects: tuple[Any, ...], told: list[Any], text: str) -> Guard:
    (value,) = subjects
    binding.bind(told[0], type(value))
    return guards.ObjectClass(value, type(value), text)


def _read_instance(binding: ObjectBinding, subjects: tuple[Any, ...], told: list[Any], text: str) -> Guard:
    (value,) = subjects
    try:
        found = object.__getattribute__(value, "__dict__")
    except AttributeError:
        raise Mismatch from None
    _require(type(found) is dict)
    binding.bind(told[0], found)
    return guards.InstanceDict(value, found, text)


def _read_slot(binding: ObjectBinding, subjects: tuple[Any, ...], told: list[Any], text: str) -> Guard:
    value, descriptor = subjects
    _require(type(descriptor) is MemberDescriptorType)
    try:
        found = descriptor.__get__(value, type(value))
    except (AttributeError, TypeError):
        found = ABSENT
    binding.bind(told[0], found)
    return guards.SlotContents(value, descriptor, found, text)


def _read_context(binding: ObjectBinding, subjects: tuple[Any, ...], told: list[Any], text: str) -> Guard:
    (variable,) = subjects
    _require(type(variable) is ContextVar)
    found = variable.get(ABSENT)
    binding.bind(told[0], found)
    return guards.ContextValue(variable, found, text)


def _write_switch(guard: guards.Switch, numbering: Numbering) -> list[Any]:
    if guard.function not in torch_names.SWITCHES:
        raise NotPortable(f"{guard.text} is no switch that is known by its name")
    return [guard.function.__name__, numbering.reference(guard.expected)]  # type: ignore[attr-defined]


def _read_switch(binding: ObjectBinding, subjects: tuple[Any, ...], told: list[Any], text: str) -> Guard:
    function = next(one for one in torch_names.SWITCHES if one.__name__ == told[0])
    found = function()
    binding.bind(told[1], found)
    return guards.Switch(function, found, text)


def _read_tensor(binding: ObjectBinding, subjects: tuple[Any, ...], told: list[Any], text: str) -> Guard:
    (tensor,) = subjects
    _require(isinstance(tensor, torch.Tensor))
    made = guards.TensorMetadata.of(tensor, text)
    binding.bind(told[0], made.expected)
    return made


def _write_whole(guard: guards.WholeDict, numbering: Numbering) -> list[Any]:
    names = list(guard.expected)
    return [names, _outlines(guard.expected, names)]


def _read_whole(binding: ObjectBinding, subjects: tuple[Any, ...], told: list[Any], text: str) -> Guard:
    (dictionary,), (names, outlines) = subjects, told
    _require(type(dictionary) is dict and _outlines(dictionary, names) == outlines)
    known = set(names)
    # As for guards: further names do no harm, unless they hide a built-in one.
    _require(all(name in known or name not in builtins.__dict__ for name in dictionary))
    return guards.WholeDict(dictionary, dict(dictionary), builtins.__dict__, text)


def _outlines(dictionary: dict[str, Any], names: list[str]) -> str:
    """A hash of what a module's names stand for. Only which objects they are counts, as it does for guards."""
    found = [[name, outline(dictionary.get(name, ABSENT))] for name in names]
    return sha256(json.dumps(found).encode()).hexdigest()


_ROWS: dict[type, _Row] = {
    guards.DictEntry: _Row(lambda guard: (guard.dictionary,), _write_key, _read_entry),
    guards.DictItems: _Row(lambda guard: (guard.dictionary,), _write_items, _read_items),
    guards.ListItems: _Row(lambda guard: (guard.items,), _write_sequence, _read_sequence(guards.ListItems, list)),
    guards.SetItems: _Row(lambda guard: (guard.members,), _write_sequence, _read_sequence(guards.SetItems, set)),
    guards.SetMember: _Row(_members, _write_member, _read_member),
    guards.CellContents: _Row(lambda guard: (guard.cell,), _write_expected, _read_cell),
    guards.FunctionCode: _Row(lambda guard: (guard.function,), _write_function, _read_function),
    guards.PartialCall: _Row(
        lambda guard: (guard.partial,),
        lambda guard, numbering: [numbering.reference(part) for part in guard.parts],
        _read_partial,
    ),
    guards.TypeAttribute: _Row(
        lambda guard: (guard.cls,),
        lambda guard, numbering: [guard.name, numbering.reference(guard.expected)],
        _read_type_attribute,
    ),
    guards.ClassName: _Row(
        lambda guard: (guard.cls,),
        lambda guard, numbering: [guard.name, numbering.reference(guard.expected)],
        _read_class_name,
    ),
    guards.Subclass: _Row(
        lambda guard: (guard.cls, guard.of), lambda guard, numbering: [guard.expected], _read_subclass
    ),
    guards.ObjectClass: _Row(
        lambda guard: (guard.value,), lambda guard, numbering: [numbering.reference(guard.cls)], _read_object_class
    ),
    guards.InstanceDict: _Row(
        lambda guard: (guard.value,), lambda guard, numbering: [numbering.reference(guard.dictionary)], _read_instance
    ),
    guards.SlotContents: _Row(lambda guard: (guard.value, guard.descriptor), _write_expected, _read_slot),
    guards.ContextValue: _Row(lambda guard: (guard.variable,), _write_expected, _read_context),
    guards.Switch: _Row(lambda guard: (), _write_switch, _read_switch),
    guards.TensorMetadata: _Row(lambda guard: (guard.tensor,), _write_expected, _read_tensor),
    guards.WholeDict: _Row(lambda guard: (guard.dictionary,), _write_whole, _read_whole),
}
_BY_NAME = {cls.__name__: row for cls, row in _ROWS.items()}
