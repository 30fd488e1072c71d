"""The floor under every way that runs the user's Python: all torch functions answered from a list.

In: a call. Out: the same call, in which no torch function does anything: Python runs as it did, and each function's
result is the one that was recorded. What always holds: a call that asks for other functions than the recorded ones is
an error.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from torch.overrides import TorchFunctionMode

from benchmarks.measuring import Call, Contestant

Answer = tuple[Any, Any]
"""A torch function and its result."""
_MOST_PASSES = 4
"""After which calls must ask for the same functions."""


class CallsDiffer(Exception):
    """A call asked for other torch functions than the recorded one."""


class _Recording(TorchFunctionMode):
    def __init__(self) -> None:
        super().__init__()
        self.answers: list[Answer] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self.answers.append((func, result))
        return result


class _Matching(TorchFunctionMode):
    """Answers, compares which functions are asked for, and notes the answers.

    Recorded functions that are not asked for any more are passed over: code that keeps results by their arguments,
    as lru_cache does, finds them when it is given the very tensors of the recording again.
    """

    def __init__(self, recorded: list[Answer]):
        super().__init__()
        self._recorded = iter(recorded)
        self.answers: list[Answer] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        for function, result in self._recorded:
            if function == func:
                self.answers.append((function, result))
                return result
        raise CallsDiffer(f"function {len(self.answers)} is {func}, which was not recorded")


class _Answering(TorchFunctionMode):
    """Answers, and does nothing else."""

    def __init__(self, following: Callable[[], Any]):
        super().__init__()
        self._following = following

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self._following()


def answered(call: Call) -> tuple[Contestant, int]:
    """The call answered from a list, and how many functions the list answers. Raises CallsDiffer if calls differ.

    Before it is measured it runs once with all that was recorded at hand: what code keeps of its last call is then this
    call's, and not that of the call before it.
    """
    call()
    recording = _Recording()
    with recording:
        call()

    def match(answers: list[Answer]) -> list[Answer]:
        with (matching := _Matching(answers)):
            call()
        return matching.answers

    answers, fewer = recording.answers, match(recording.answers)
    for _ in range(_MOST_PASSES):
        if len(fewer) == len(answers):
            break
        answers, fewer = fewer, match(fewer)
    else:
        raise CallsDiffer(f"calls ask for ever fewer functions, {len(fewer)} in the end")
    results = [result for _, result in answers]

    def from_list() -> Any:
        with _Answering(iter(results).__next__):
            return call()

    return Contestant(from_list, partial(match, recording.answers)), len(results)
