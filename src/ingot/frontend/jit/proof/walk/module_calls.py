"""Calls of modules: their hooks, and their `forward`.

In: a module that is known, with arguments. Out: what calling it gives. What always holds: modules are called as PyTorch
calls them, and hooks are walked where PyTorch calls them. Hooks for backward passes, for every module, with keyword
arguments, and those that run after an exception as well, are refused.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

import torch

from ingot.frontend.jit.proof.domain.abstract_values import AbstractValue, Bound, Determined, Known, known, tuple_of
from ingot.frontend.jit.proof.domain.place_guards import ABSENT
from ingot.frontend.jit.proof.semantics import attribute_lookup

if TYPE_CHECKING:
    from ingot.frontend.jit.proof.walk.walker import Walker

MODULE_CALL = torch.nn.Module.__call__
_IMPLEMENTATION = torch.nn.Module._call_impl
_BEFORE, _AFTER = "_forward_pre_hooks", "_forward_hooks"
_REFUSED = (
    *("_backward_hooks", "_backward_pre_hooks"),
    *("_forward_pre_hooks_with_kwargs", "_forward_hooks_with_kwargs", "_forward_hooks_always_called"),
)
"""Tables of a module that have to be empty. Those that say how hooks are called matter only where there are some."""
_GLOBAL = tuple(
    f"_global{name}"
    for name in ("_backward_hooks", "_backward_pre_hooks", _BEFORE, _AFTER)
    + ("_forward_hooks_with_kwargs", "_forward_hooks_always_called")
)


def call_module(
    walker: Walker, module: Known, args: list[AbstractValue], kwargs: dict[str, AbstractValue]
) -> AbstractValue:
    walker.guard_function(MODULE_CALL)  # type: ignore[arg-type]
    walker.guard_function(_IMPLEMENTATION)
    compiled = attribute_lookup.attribute(walker, module, "_compiled_call_impl")
    inner = attribute_lookup.attribute(walker, module, "_call_impl")
    is_own = isinstance(inner, Bound) and isinstance(inner.function, Known)
    if not is_own or inner.function.value is not _IMPLEMENTATION:  # type: ignore[union-attr]
        walker.refuse("calls a module whose _call_impl is replaced")
    if not isinstance(compiled, Known) or compiled.value is not None:
        walker.refuse("calls a module that is compiled")
    around = torch.nn.modules.module.__dict__
    for name in _GLOBAL:
        _require_none(walker, known(walker.entry(around, name, ABSENT, name), name))
    before, after = (_hooks(walker, _table(walker, module, name)) for name in (_BEFORE, _AFTER))
    for name in _REFUSED if before or after else _REFUSED[:2]:
        _require_none(walker, _table(walker, module, name))
    forward = attribute_lookup.attribute(walker, module, "forward")  # before a hook can put another one in its place
    for hook in before:
        args = _after_hook_before(walker, walker.call(hook, [module, tuple_of(args)]), args)
    result = walker.call(forward, args, kwargs)
    for hook in after:
        replaced = walker.call(hook, [module, tuple_of(args), result])
        result = result if _is_none(walker, replaced) else replaced
    return result


def _table(walker: Walker, module: Known, name: str) -> AbstractValue:
    return attribute_lookup.attribute(walker, module, name)


def _hooks(walker: Walker, table: AbstractValue) -> list[AbstractValue]:
    """The hooks in a table, all of which are guarded, in the order in which they are called."""
    if not isinstance(table, Known) or type(table.value) not in (dict, OrderedDict):
        walker.refuse("calls a module whose hooks are not understood")
    return [known(hook, f"{table.name}[{key}]") for key, hook in walker.entries(table.value, table.name)]


def _require_none(walker: Walker, table: AbstractValue) -> None:
    if _hooks(walker, table):
        walker.refuse("calls a module that has hooks of a kind that is not understood")


def _after_hook_before(walker: Walker, given: AbstractValue, args: list[AbstractValue]) -> list[AbstractValue]:
    """The positional arguments after a hook that runs before `forward` has returned something."""
    if _is_none(walker, given):
        return args
    cls = walker.class_of(given)
    assert cls is not None
    if not issubclass(cls, tuple):
        return [given]
    items = walker.sequence(given)
    return list(items) if items is not None else walker.refuse("has a hook whose result is not understood")


def _is_none(walker: Walker, value: AbstractValue) -> bool:
    cls = walker.class_of(value)
    if cls is None or isinstance(value, Determined):
        walker.refuse("has a hook whose result is not known")
    return isinstance(value, Known) and value.value is None
