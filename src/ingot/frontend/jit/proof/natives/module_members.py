"""What goes through the members of a module: `module.parameters()`, `module.modules()` and their like.

In: a call of one of these generators of PyTorch's, of a module that is known. Out: an iterator over what it would give.
What always holds: which modules, parameters and buffers there are is guarded all the way down.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from torch.nn import Module

from ingot.frontend.jit.proof.domain.abstract_values import AbstractValue, Known, Tuple, known
from ingot.frontend.jit.proof.natives import optimizer_guards
from ingot.frontend.jit.proof.semantics import attribute_lookup, containers

if TYPE_CHECKING:
    from ingot.frontend.jit.proof.walk.walker import Walker

Arguments = dict[str, AbstractValue]
_NEEDS: dict[types.FunctionType, tuple[types.FunctionType, ...]] = {
    one: (one, *others)
    for one, *others in (
        (Module.parameters, Module.named_parameters, Module._named_members, Module.named_modules),
        (Module.named_parameters, Module._named_members, Module.named_modules),
        (Module.buffers, Module.named_buffers, Module._named_members, Module.named_modules),
        (Module.named_buffers, Module._named_members, Module.named_modules),
        (Module.children, Module.named_children),
        (Module.named_children,),
        (Module.modules, Module.named_modules),
        (Module.named_modules,),
    )
}
"""These generators, and the methods by which they find what they give."""


def handler_of(
    called: types.FunctionType,
) -> Callable[[Walker, list[AbstractValue], Arguments], AbstractValue] | None:
    """How to walk a call of one of them; None for all other functions."""
    if called not in _NEEDS:
        return None
    return lambda walker, args, kwargs: _members(walker, called, args, kwargs)


def _members(walker: Walker, called: types.FunctionType, args: list[AbstractValue], kwargs: Arguments) -> AbstractValue:
    name = called.__name__
    module = args[0] if args else None
    if len(args) != 1 or kwargs or not isinstance(module, Known) or not isinstance(module.value, Module):
        walker.refuse(f"calls {name} with arguments, or of a module that is not known")
    for function in _NEEDS[called]:
        walker.guard_function(function)
        for inner in module.value.modules() if function is Module.named_modules else (module.value,):
            _guard_method(walker, known(inner, module.name), function)
    optimizer_guards.guard_parameters(walker, module, with_buffers=True)
    return containers.new_iterator(walker, [_member(one, module.name) for one in called(module.value)])


def _guard_method(walker: Walker, module: Known, function: types.FunctionType) -> None:
    """That a module has PyTorch's own method, neither its class nor itself another one."""
    name = function.__name__
    is_own = walker.type_attribute(type(module.value), name) is function
    if not is_own or attribute_lookup.instance_entry(walker, module, name) is not None:
        walker.refuse(f"goes through a module that has a method {name} of its own")


def _member(found: Any, name: str) -> AbstractValue:
    if isinstance(found, tuple):
        return Tuple([known(found[0]), known(found[1], f"{name}.{found[0]}")])
    return known(found, name)
