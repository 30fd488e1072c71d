"""Audits: a call that a recording would answer is recorded again, and the two recordings are compared.

In: a call, and the specialisation that was found for it. Out: eager's own result, since recording runs the function
itself, and the first place where the function differs from what was recorded. Reads and effects of other threads, and
guards that fail while the call runs, are no differences.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ingot.frontend.jit.arguments.call_key import CallKey, KeyedCall
from ingot.frontend.jit.cache.specialisation import Specialisation
from ingot.frontend.jit.guards.environment import KnownTensors
from ingot.frontend.jit.python_code.source_lines import definition_of
from ingot.frontend.jit.trace.comparing import Difference, first_difference
from ingot.frontend.jit.trace.questions import has_other_answers
from ingot.frontend.jit.trace.recorder import Recording
from ingot.frontend.jit.trace.results import take_results
from ingot.frontend.jit.trace.trace import Trace


@dataclass(frozen=True, slots=True)
class Audited:
    """What an audited call has returned, and the first difference from what was recorded, if there is one."""

    result: Any
    difference: Difference | None


def audit(
    function: Callable[..., Any],
    call: KeyedCall,
    found: Specialisation,
    numbers: Sequence[int | float],
    recorded: Specialisation,
) -> Audited:
    """Call a function, and compare what it does with what was recorded.

    `numbers` are those that stay open in the recording. `recorded` is the recording itself, where the specialisation
    has several paths.
    """
    start, trace, audits = time.perf_counter(), recorded.standing_in, found.audits
    assert trace is not None and audits is not None
    around = KnownTensors(tensors={id(tensor): tensor for tensor in trace.environment_tensors})
    asks = bool(trace.questions) or (trace.training is not None and bool(trace.training.read))
    tensors = call.described.tensors
    recording = Recording(tensors, around, allows_questions=asks, allows_constants=trace.assumes_constants)
    try:
        result = recording.run(function, call.args, call.kwargs, is_alone=False)
        difference = _difference(function, recorded, trace, recording, result, call.described, numbers)
    finally:
        audits.end(time.perf_counter() - start)
    if difference is not None and found.changed() is not None:
        difference = None  # it changed while the call ran, and later calls see that for themselves
    return Audited(result, difference)


def _difference(
    function: Callable[..., Any],
    found: Specialisation,
    trace: Trace,
    recording: Recording,
    result: Any,
    described: CallKey,
    numbers: Sequence[int | float],
) -> Difference | None:
    shape, changes = take_results(recording, result, described.given)
    if recording.broken is not None and recording.broken.is_for_now:
        return None
    if recording.broken is not None:
        return Difference(recording.broken.reason, recording.broken.place)
    if has_other_answers(trace, recording.trace):
        return None  # fused code rounds differently: a value at the edge of a decision may lead to another path
    sizes_are_sure = found.program is None or not found.program.has_guesses
    difference = first_difference(trace, recording.trace, numbers, sizes_are_sure)
    if difference is None and shape != found.result_shape:
        difference = Difference("its results are nested in another way", "")
    if difference is None and changes != found.changes:
        difference = Difference("it leaves something else in the objects that it is given than was recorded", "")
    if difference is not None and not difference.place:
        return Difference(difference.text, definition_of(function))
    return difference
