"""A compiled call with eager beside it.

In: a compiled function and arguments. Out: what the compiled call gives, once it is found to be what eager gives.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import torch

from ingot.base.errors import MismatchError
from ingot.base.warning import warn
from ingot.frontend.jit.api.function import CompiledFunction
from ingot.frontend.jit.api.verification.differences import difference_between
from ingot.frontend.jit.api.verification.reproduction import written_script
from ingot.frontend.jit.api.verification.snapshots import NotVerifiable, Snapshot, copies_of, state_of
from ingot.frontend.jit.arguments.given_objects import attributes_of
from ingot.frontend.jit.arguments.structure import put_together, take_apart
from ingot.frontend.jit.guards.environment import environment_of
from ingot.frontend.jit.settings.switch import disable, is_off


def verified_call(compiled: CompiledFunction, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Call a function eagerly, on copies, and as it is compiled; raise MismatchError where the two differ.

    Python's own effects happen in both calls, unless Python is skipped in the compiled one.
    """
    if is_off():
        return compiled(*args, **kwargs)
    leaves: list[Any] = []
    shape = take_apart((args, dict(kwargs)), leaves)
    try:
        if _trains(compiled.function):
            raise NotVerifiable("it trains, and to run it twice would be two steps")
        if any(attributes_of(type(leaf)) is not None for leaf in leaves):
            raise NotVerifiable("an argument is an object with state, which both calls would change")
        copies, kept = copies_of(leaves), copies_of(leaves)
    except NotVerifiable as reason:
        warn(f"a call of {compiled.name} was not verified: {reason}", UserWarning)
        return compiled(*args, **kwargs)
    module = compiled.outermost
    before = Snapshot(module, leaves)
    given, named = put_together(shape, iter(copies))
    with disable():
        wanted = compiled.function(*given, **named)
    wanted_state = {name: tensor.detach().clone() for name, tensor in state_of(module).items()}
    before.restore()
    found = compiled(*args, **kwargs)
    text = (
        difference_between("the result", found, wanted)
        or difference_between("what the call left in its arguments", leaves, copies)
        or _of_state(state_of(module), wanted_state)
    )
    if text is not None:
        given, named = put_together(shape, iter(kept))
        script = written_script(compiled.function, compiled.options.python, given, named, text, sys.path)
        raise MismatchError(f"{compiled.name} ({compiled.tier}): {text}. {script}")
    return found


def _trains(function: Any) -> bool:
    """Whether a function may differentiate or run a step of an optimizer, whose state is not put back."""
    is_step = isinstance(getattr(function, "__self__", None), torch.optim.Optimizer)
    return is_step or environment_of(function, ()).uses(_TRAINING)


_TRAINING = frozenset({"backward", "zero_grad", "step"})


def _of_state(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> str | None:
    for name, tensor in found.items():
        text = difference_between(f"what the call left in {name}", tensor.detach(), wanted[name])
        if text is not None:
            return text
    return None
