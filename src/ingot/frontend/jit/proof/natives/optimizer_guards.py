"""Guards of what an optimizer's step does, and of which parameters it is about.

In: an optimizer, or a module. Out: guards on everything that decides what `step` and `zero_grad` do, apart from
settings that are read at every step, and gradients, which the recording itself guards.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch.optim import Optimizer

from ingot.frontend import optimizers
from ingot.frontend.jit.proof.domain.abstract_values import Known, known
from ingot.frontend.jit.proof.domain.place_guards import ABSENT, ListItems
from ingot.frontend.jit.proof.semantics import attribute_lookup

if TYPE_CHECKING:
    from ingot.frontend.jit.proof.walk.walker import Walker

_STEP_HOOKS = ("_optimizer_step_pre_hooks", "_optimizer_step_post_hooks")
_GLOBAL_HOOKS = ("_global_optimizer_pre_hooks", "_global_optimizer_post_hooks")


def guard_groups(walker: Walker, value: Known) -> None:
    """Which parameters an optimizer has, in which groups."""
    attribute_lookup.guard_class(walker, value, type(value.value))
    groups = attribute_lookup.instance_entry(walker, value, "param_groups")
    if not isinstance(groups, Known) or type(groups.value) is not list:
        walker.refuse("uses an optimizer without a list of groups")
    _guard_list(walker, groups.value, f"{value.name}.param_groups")
    for group in groups.value:
        if type(group) is not dict or type(group.get("params")) is not list:
            walker.refuse("uses an optimizer with groups that are not understood")
        _guard_list(walker, walker.entry(group, "params", ABSENT, f"{value.name}.params"), f"{value.name}.params")


def guard_computing(walker: Walker, value: Known) -> None:
    """What a step computes: its switches, that settings are numbers, and that no hooks and no other code take part."""
    optimizer, name = value.value, value.name
    for group in optimizer.param_groups:
        for key in optimizers.SWITCHES:
            walker.entry(group, key, ABSENT, f"{name}.{key}")
        walker.guard((PlainSettings, id(group)), lambda group=group: PlainSettings.of(optimizer, group, name))
    tables = [attribute_lookup.instance_entry(walker, value, hooks) for hooks in _STEP_HOOKS]
    around = sys.modules[Optimizer.__module__].__dict__
    tables += [known(walker.entry(around, hooks, ABSENT, hooks), hooks) for hooks in _GLOBAL_HOOKS]
    for table in tables:
        if not isinstance(table, Known) or not isinstance(table.value, dict) or walker.entries(table.value, name):
            walker.refuse("calls a step that has hooks")
    is_own = walker.entry(vars(optimizer), "_init_group", ABSENT, f"{name}._init_group") is not ABSENT
    gathers = optimizers.as_defined(walker.type_attribute(type(optimizer), "_init_group"))
    if is_own or gathers is not optimizers.gathering_method(optimizer):
        walker.refuse("calls a step that gathers its tensors in a way of its own")
    module, functions = optimizers.functions_of(optimizer)
    for key, function in functions.items():
        if optimizers.as_defined(walker.entry(module, key, ABSENT, key)) is not function:
            walker.refuse(f"calls a step in which {key} is replaced")


def guard_state(walker: Walker, value: Known) -> None:
    """Which tensors an optimizer keeps; what they hold is read at every call."""
    state = attribute_lookup.instance_entry(walker, value, "state")
    if not isinstance(state, Known) or not isinstance(state.value, dict):
        walker.refuse("uses an optimizer whose state is not understood")
    for _, kept in walker.entries(state.value, f"{value.name}.state"):
        if type(kept) is not dict:
            walker.refuse("uses an optimizer whose state is not understood")
        walker.entries(kept, f"{value.name}.state")


def guard_parameters(walker: Walker, value: Known, with_buffers: bool = False) -> None:
    """Which parameters a module and those in it have, and which buffers."""
    for table in ("_parameters", "_modules", *(("_buffers",) if with_buffers else ())):
        held = attribute_lookup.instance_entry(walker, value, table)
        if not isinstance(held, Known) or not isinstance(held.value, dict):
            walker.refuse("uses a module whose parameters are not understood")
        for name, inner in walker.entries(held.value, f"{value.name}.{table}"):
            if isinstance(inner, torch.nn.Module):
                guard_parameters(walker, known(inner, f"{value.name}.{name}"), with_buffers)


def _guard_list(walker: Walker, items: list[Any], text: str) -> None:
    walker.guard((ListItems, id(items)), lambda: ListItems(items, tuple(items), text))


@dataclass(frozen=True, eq=False)
class PlainSettings:
    """That the settings of a group are numbers, that its parameters keep the same kinds of state, and whether weights
    decay: by that a step decides how often it writes."""

    optimizer: Optimizer
    group: dict[str, Any]
    kept: tuple[str, ...]
    decays: bool
    text: str

    @staticmethod
    def of(optimizer: Optimizer, group: dict[str, Any], name: str) -> PlainSettings:
        kept, decays = optimizers.kept_state(optimizer, group), _decays(group)
        return PlainSettings(optimizer, group, kept, decays, f"{name}.param_groups")

    def holds(self) -> bool:
        group = self.group
        is_like_it = optimizers.has_plain_settings(group) and _decays(group) is self.decays
        return is_like_it and optimizers.kept_state(self.optimizer, group) == self.kept


def _decays(group: dict[str, Any]) -> bool:
    return bool(group.get("weight_decay"))
