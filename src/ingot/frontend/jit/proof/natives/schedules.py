"""Steps of schedules of learning rates: they are taken in Python at the end of each call.

In: a call of one. Out: nothing, as it returns nothing. What always holds: a schedule is one of PyTorch's whose step
changes nothing but its own numbers and settings of its optimizer, and the rest of the call reads none of these, since
guards are compared when a call begins.
"""

from __future__ import annotations

import types
from typing import TYPE_CHECKING

from ingot.frontend import optimizers
from ingot.frontend.jit.proof.domain.abstract_values import NONE, AbstractValue, Known, known
from ingot.frontend.jit.proof.domain.place_guards import ABSENT, DictEntry, Guard, InstanceDict
from ingot.frontend.jit.proof.semantics import attribute_lookup

if TYPE_CHECKING:
    from ingot.frontend.jit.proof.walk.walker import Walker

_FIXED = frozenset({"params", *optimizers.SWITCHES})
"""Entries of a group of parameters that no schedule changes."""


def step(
    walker: Walker, called: types.FunctionType, args: list[AbstractValue], kwargs: dict[str, AbstractValue]
) -> AbstractValue:
    schedule = args[0] if len(args) == 1 else None
    if not isinstance(schedule, Known) or kwargs or not optimizers.is_known_schedule(schedule.value):
        walker.refuse("calls a step of a schedule that is not known, or with arguments")
    walker.guard_function(called)
    attribute_lookup.guard_class(walker, schedule, type(schedule.value))
    walker.type_attribute(type(schedule.value), "get_lr")
    walker.type_attribute(type(schedule.value), "_update_lr")
    with walker.answers.unasked():
        for function in getattr(schedule.value, "lr_lambdas", ()):
            walker.call(known(function, "lr_lambda"), [walker.determined(int)])
    walker.schedules.append(schedule.value)
    walker.may_raise()
    return NONE


def check_unread(walker: Walker) -> None:
    """Refuses if a call depends on what its schedules change."""
    for schedule in walker.schedules:
        for guard in walker.guards.values():
            if _may_change(guard, vars(schedule), schedule.optimizer.param_groups):
                walker.refuse("reads what a schedule changes that takes a step in the same call")


def _may_change(guard: Guard, own: dict[str, object], groups: list[dict[str, object]]) -> bool:
    """Whether a guard looks at entries of a schedule, or of groups of parameters, that its step may change."""
    held = getattr(guard, "dictionary", None)
    if held is own:
        is_absent = isinstance(guard, DictEntry) and guard.expected is ABSENT
        return not is_absent and not isinstance(guard, InstanceDict)
    if any(held is group for group in groups):
        return not (isinstance(guard, DictEntry) and guard.key in _FIXED)
    return False
