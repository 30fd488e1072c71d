"""One operator with one dtype through `ingot.jit`: every call three times, compared with eager.

The first call is recorded, the second writes the program, the third runs it. All samples go through one compiled
function, as a user's calls would, so that a call that takes another's recording for its own is found as well. With
`python="run"` Python runs at every call, and each sample is tried by itself and between other operations.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._pytree import tree_map

from ingot import jit
from ingot.frontend.jit.arguments.call_key import describe
from ingot.frontend.jit.autotune import eager_comparison
from ingot.frontend.jit.cache import audits
from ingot.frontend.jit.cache.recording_table import MOST_SPECIALISATIONS
from tests.opinfo.comparing import difference
from tests.opinfo.database import FUNCTION, OUT, SAMPLES, Call, calls, differentiable_calls, with_out
from tests.opinfo.differentiated import CALLS as CALLS_DIFFERENTIATED
from tests.opinfo.differentiated import differentiated
from tests.opinfo.followed import CALLS as CALLS_FOLLOWED
from tests.opinfo.followed import has_segments, surrounded
from tests.opinfo.observing import Observation, copied, observe

CALLS = 3
COMPILED, LIBRARY, EAGER, REFUSED = "compiled", "library calls", "runs eagerly", "eager raises an error"
CRASH = "crash: "
"""What problems begin with that ended the process."""
UNDEFINED = ("empty", "new_empty")
"""What the names of operators begin with whose results hold what the memory held before."""


@dataclass(frozen=True)
class Verdict:
    """What became of one sample."""

    variant: str
    fate: str
    reason: str = ""
    """Why it runs eagerly, if it does."""
    problem: str = ""
    """What is wrong, if something is."""
    call: str = ""
    """The arguments, where something is wrong."""

    @property
    def is_crash(self) -> bool:
        return self.problem.startswith(CRASH)


def try_operator(
    operator: Any,
    dtype: torch.dtype,
    most: int | None,
    first: int = 0,
    device: str = "cpu",
    inputs: str = SAMPLES,
    python: str = "skip",
    gradients: bool = False,
) -> Iterator[Verdict]:
    """The verdicts on an operator's calls from a number on. The number of calls does not depend on what they give."""
    eager_comparison.ROUNDS = 0  # no turns for eager calls: what was compiled is to run
    audits.FIRST = 2**62  # nor audits
    compares_values = not operator.name.startswith(UNDEFINED)
    jitted: dict[str, Any] = {}
    with_gradients = differentiable_calls(operator, dtype, most, device) if gradients else None
    wanted = with_gradients or calls(operator, dtype, most, device, inputs)
    for number, call in enumerate(wanted):
        if number < first:
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if python == "run":
                yield _try_following(jitted, call, compares_values)
                continue
            if call.variant not in jitted or not _takes_more(jitted[call.variant]):
                jitted[call.variant] = jit(_calling(call.function), python="skip" if python == "skip" else "auto")
            if gradients:
                yield _try_gradients(jitted[call.variant], call, compares_values, device)
            else:
                yield try_call(jitted[call.variant], call, compares_values, device)


def _try_following(jitted: dict[str, Any], call: Call, compares_values: bool) -> Verdict:
    """A call by itself and between others, both followed."""
    verdict = Verdict(call.variant, REFUSED)
    for name, tried in ((call.variant, call), (f"{call.variant} between others", surrounded(call))):
        if name not in jitted:
            jitted[name] = jit(_calling(tried.function), python="run")
        verdict = try_call(jitted[name], tried, compares_values, calls=CALLS_FOLLOWED)
        if verdict.problem:
            return verdict
    if verdict.fate == REFUSED:
        return verdict
    return Verdict(call.variant, COMPILED if has_segments(jitted[call.variant]) else EAGER, "it runs at its call")


def _try_gradients(jitted: Any, call: Call, compares_values: bool, device: str) -> Verdict:
    """A call with its gradients, by eager and by a compiled function."""
    eager = dataclasses.replace(call, function=differentiated(call.function, call.process))
    expected = observe(eager.function, eager.args, eager.kwargs)
    before = _calls_by_kind(jitted)
    for number in range(CALLS_DIFFERENTIATED):
        found = observe(differentiated(jitted, call.process), call.args, call.kwargs)
        problem = difference(found, expected, lambda: _in_float64(eager), compares_values)
        if problem is not None and not _is_defined(eager, expected):
            problem = difference(found, expected, lambda: None, compares_values=False)
        if problem is not None:
            text = f"call {number + 1}: {problem}"
            return Verdict(call.variant, _fate_of_gradients(jitted, before)[0], problem=text, call=show(call))
    if expected.error is not None:
        return Verdict(call.variant, REFUSED)
    return Verdict(call.variant, *_fate_of_gradients(jitted, before))


def _fate_of_gradients(jitted: Any, before: dict[int, int]) -> tuple[str, str]:
    """How the last calls ran with their gradients, and why so if eagerly."""
    compiled = jitted._compiled
    used = [kind for kind in compiled.specialisations.values() if before.get(id(kind)) != compiled.calls_of(kind)]
    if not used:
        return EAGER, compiled.given_up or "no recording was kept"
    last = used[-1]
    if last.trace is not None:
        return COMPILED, ""
    programs = None if last.gradients is None else last.gradients.programs
    if programs is None:
        reason = last.broken.reason if last.gradients is None else last.gradients.refused
        return EAGER, reason or "no backward pass came"
    return (COMPILED if any(part.modules for part in programs.all) else LIBRARY), ""


def _takes_more(jitted: Any) -> bool:
    """Whether a compiled function would record another kind of call, and not leave it to eager PyTorch."""
    compiled = jitted._compiled
    return compiled.given_up is None and len(compiled.specialisations) < MOST_SPECIALISATIONS


def try_call(jitted: Any, call: Call, compares_values: bool = True, device: str = "cpu", calls: int = CALLS) -> Verdict:
    """A call, by eager and by a compiled function."""
    expected = observe(call.function, call.args, call.kwargs)
    variant = call.variant
    if variant == OUT:
        writing = None if expected.error is not None else with_out(call, expected.result)
        if writing is None:
            return Verdict(variant, REFUSED)
        call, expected = writing, observe(writing.function, writing.args, writing.kwargs)
    before = _calls_by_kind(jitted)
    for number in range(calls):
        found = observe(jitted, call.args, call.kwargs)
        problem = difference(found, expected, lambda: _in_float64(call), compares_values)
        if problem is not None and not _is_defined(call, expected):
            problem = difference(found, expected, lambda: None, compares_values=False)
        if problem is not None:
            text = f"call {number + 1}: {problem}"
            return Verdict(variant, _fate(jitted, call, before, device)[0], problem=text, call=show(call))
    if expected.error is not None:
        return Verdict(variant, REFUSED)
    return Verdict(variant, *_fate(jitted, call, before, device))


def _calling(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function written in Python, as users' are."""
    return lambda *args, **kwargs: function(*args, **kwargs)


def _in_float64(call: Call) -> Observation | None:
    """The same call with every number of a smaller floating-point type in float64; None if there is no such thing."""

    def widen(value: Any) -> Any:
        if isinstance(value, torch.Tensor) and value.dtype.is_floating_point and value.layout is torch.strided:
            return value.to(torch.float64)
        return torch.float64 if isinstance(value, torch.dtype) and value.is_floating_point else value

    args, kwargs = tree_map(widen, copied((tuple(call.args), dict(call.kwargs))))
    observed = observe(call.function, args, kwargs)
    return None if observed.error is not None else observed


def _is_defined(call: Call, expected: Observation) -> bool:
    """Whether eager gives the same values again. Fresh memory, which some results show as it is, often holds what it
    held the time before, so the last time it is filled."""
    for fills in (False, True):
        with _filled_memory() if fills else nullcontext():
            again = observe(call.function, call.args, call.kwargs)
        if difference(again, expected, lambda: None) is not None:
            return False
    return True


@contextmanager
def _filled_memory() -> Iterator[None]:
    """While it lasts, PyTorch fills memory that it does not write, as it does where algorithms are deterministic."""
    before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before[0], warn_only=before[1])


# --- what became of it ------------------------------------------------------------------------------------------------


def _calls_by_kind(jitted: Any) -> dict[int, int]:
    compiled = jitted._compiled
    return {id(kind): compiled.calls_of(kind) for kind in compiled.specialisations.values()}


def _fate(jitted: Any, call: Call, before: dict[int, int], device: str) -> tuple[str, str]:
    """How the last calls of a compiled function ran, and why so if eagerly."""
    compiled = jitted._compiled
    if compiled.given_up is not None:
        return EAGER, compiled.given_up
    used = [kind for kind in compiled.specialisations.values() if before.get(id(kind)) != compiled.calls_of(kind)]
    if not used:
        refused = describe(tuple(call.args), dict(call.kwargs)).refused
        return EAGER, refused or "no recording was kept"
    last = used[-1]
    if last.broken is not None:
        return EAGER, last.broken.reason
    modules = [] if last.program is None else last.program.modules
    refused = [module._plan.refuses(kernel, device) for module in modules for kernel in module.kernels()]
    return (COMPILED if False in refused else LIBRARY), ""


# --- words ------------------------------------------------------------------------------------------------------------


def show(call: Call) -> str:
    """A call's arguments, short enough to read."""
    given = [_show(value) for value in call.args] + [f"{name}={_show(value)}" for name, value in call.kwargs.items()]
    return f"({', '.join(given)})" + ("" if call.variant == FUNCTION else f" {call.variant}")


def _show(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        layout = "" if value.layout is not torch.strided or value.is_contiguous() else f" strides {value.stride()}"
        values = f" {value.flatten().tolist()}" if value.numel() <= 8 and value.layout is torch.strided else ""
        return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}{layout}{values}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_show, value))}]"
    return repr(value)
