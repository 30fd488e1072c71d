"""Python's side of native following: roles of functions, nodes and steps in memory, and the state of a call.

What always holds: every object that native code may meet in these structs is kept alive by the Python object that wrote
them.
"""

from __future__ import annotations

import ctypes
import struct
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from ingot.base.once import once
from ingot.runtime.native.abi.prototypes import Prototype
from ingot.runtime.native.abi.settings import Settings, devices_in_use
from ingot.runtime.native.assembler.routines import Library
from ingot.runtime.native.assembler.structs import WORD_BYTES
from ingot.runtime.native.following.answering import AnsweringEmitter
from ingot.runtime.native.following.following_structs import (
    ROLE_PLACES,
    ROLE_PROBES,
    Container,
    Entry,
    EntryKind,
    FlushWords,
    FollowedStepWords,
    FollowingWords,
    NativeRole,
    NodeWords,
    RoleEntry,
    StepKind,
    Write,
    WritesHead,
)
from ingot.runtime.native.following.intercepting import ModeStack
from ingot.runtime.native.following.interception import Interception, can_intercept
from ingot.runtime.native.following.layouts import FollowingLayout, NativeMode, device_word
from ingot.runtime.native.launch.callables import new_builtin, new_capsule
from ingot.runtime.native.launch.launcher import launcher
from ingot.runtime.native.launch.records import Placed, TensorGuard, WordArena
from ingot.runtime.native.memory.pool import pool

MOST_FLUSHES = 8
"""Flushes that are known at one node."""
MOST_STEPS = 256
"""Steps that may lead on from one node: a call that is none of them is compared with each."""
_NO_SETTINGS = -2
"""A value that torch's settings never have."""


class NativeFollowing:
    """The routines of this process, compiled, and the roles of functions. There is one: `native_following()`."""

    def __init__(self, library: Library, mode_class: type):
        self._interception = Interception(library, mode_class)
        self._handle = library.address("handle")
        self._begin, self._flush = library.address("begin"), library.address("flush_from_python")
        self.settings_seen: Callable[[], int] = new_builtin(library.address("ask_settings"), "settings")
        """The state of torch in one word, as far as devices matter that were in use when `settings` was called last;
        negative where no call can be followed."""
        self.settle: Callable[[list[Any], int], bytes] = new_builtin(library.address("settle"), "settle")
        """settle(values, bases): what is needed of the values; the others are let go."""
        self.run: Callable[[Any, tuple[Any, ...], int], Any] = new_builtin(library.address("run_counted"), "run")
        """run(function, values, writes): calls a function that writes tensors; `Writes` says which."""
        self.aliases: Callable[[tuple[Any, ...]], tuple[Any, ...]] = new_builtin(library.address("aliases"), "aliases")
        """aliases(values): the same, without marks on what a thread is given that passes the trap."""
        self.elements: Callable[[tuple[Any, ...]], int] = new_builtin(library.address("elements"), "elements")
        """elements(values): how much data a call brings."""
        self.release: Callable[[list[Any]], None] = new_builtin(library.address("release"), "release")
        """release(values): all of them may be read."""
        self._roles = (ctypes.c_int64 * (ROLE_PLACES * RoleEntry.words()))()
        self._kept: dict[int, tuple[Any, Any]] = {}

    def settings(self) -> int:
        """The state of torch in one word; negative where no call can be followed."""
        devices_in_use.look()
        return self.settings_seen()

    @property
    def roles(self) -> int:
        return ctypes.addressof(self._roles)

    def give_role(self, key: Any, role: NativeRole, stand_in: Any = None) -> None:
        """Say what native code does with a function or the getter of an attribute; nothing if there is no room."""
        if id(key) in self._kept:
            return
        for probe in range(ROLE_PROBES):
            place = ((id(key) >> 4) + probe) % ROLE_PLACES
            entry = RoleEntry.at(self.roles + place * RoleEntry.words() * WORD_BYTES)
            if entry.key == 0:
                code = getattr(key, "__code__", None)
                self._kept[id(key)] = key, (stand_in, code)
                entry.become(RoleEntry(key=id(key), role=role, stand_in=id(stand_in), code=id(code)))
                break
        if role in (NativeRole.METADATA, NativeRole.NOW, NativeRole.OPERATION, NativeRole.VIEW):
            self._interception.take(key, role)

    def attach(self, mode: NativeMode, state: CallState, fallback: Callable[..., Any]) -> None:
        """Answer the calls that a mode sees natively; those that native code does not know go to the fallback."""
        capsule = new_capsule(state.address, None, None)
        state.begin_natively = new_builtin(self._begin, "begin", capsule)
        state.flush = new_builtin(self._flush, "flush", capsule)
        mode._native_call = (capsule, state, fallback)
        answer = new_builtin(self._handle, "__torch_function__", mode)
        mode.__torch_function__ = answer  # type: ignore[method-assign]


@dataclass(frozen=True, slots=True)
class CallFunctions:
    """The functions of a call in Python that native code calls."""

    classify: Callable[[types.FrameType], bool]
    """Whether code that asks for modes is to be told of none."""
    flush: Callable[[Any], None]
    """Runs everything pending because of a function."""
    finish: Callable[[int, list[Any], list[Any], Any], None]
    """Runs what was pending at a node, given its address, the lists and the cause."""


@dataclass(slots=True)
class _Lists:
    """Tensors and open numbers."""

    values: list[Any] = field(default_factory=list)
    numbers: list[Any] = field(default_factory=list)


class CallState:
    """The state of a followed call."""

    begin_natively: Callable[[int, list[Any], list[Any], int], None]
    flush: Callable[[Any], bool]
    """flush(cause): runs everything pending where a flush like it is known; otherwise nothing is done, and it gives
    False."""

    def __init__(self, roles: int, mode: Any, lock: Any, begun: list[Any], functions: CallFunctions):
        """`lock` is held while what is pending runs, and what has begun to run is put into the list."""
        self._kept = functions, begun, lock.acquire, lock.release
        self._lists, self._spare = _Lists(), _Lists()
        self._words = FollowingWords.zeroed()
        self.address = self._words.address
        self._words.roles = roles
        self._words.mode = id(mode)
        self._words.classify = id(functions.classify)
        self._words.flush = id(functions.flush)
        self._words.finish = id(functions.finish)
        self._words.begun = id(begun)
        self._words.acquire, self._words.release = id(self._kept[2]), id(self._kept[3])

    def begin(self, node: int, values: list[Any], numbers: list[Any], settings: int) -> None:
        """Nothing is pending; the lists are the call's from now on. The node is the address of a native one, or 0 where
        Python takes all steps."""
        self.lists()
        before, self._lists = self._lists, _Lists(values, numbers)
        self._words.spare_values, self._words.spare_numbers = id(self._spare.values), id(self._spare.numbers)
        self.begin_natively(node, values, numbers, settings)
        del before  # not while native code has their addresses

    @property
    def has_turned(self) -> bool:
        """Whether native code has run what was pending since Python asked for the lists."""
        return self._words.turns != 0

    @property
    def is_flushing(self) -> bool:
        """Whether native code is running what was pending."""
        return self._words.is_flushing != 0

    def lists(self) -> tuple[list[Any], list[Any]]:
        """The lists of tensors and of open numbers."""
        if self._words.turns % 2:
            self._lists, self._spare = self._spare, self._lists
        self._words.turns = 0
        return self._lists.values, self._lists.numbers

    def leave_flushes(self, is_left: bool) -> None:
        """Whether native code leaves all flushes to Python."""
        self._words.is_left = is_left

    def was_busy(self) -> bool:
        """Whether a flush of native code has compiled something since this was asked last."""
        was_busy, self._words.was_busy = self._words.was_busy, 0
        return bool(was_busy)

    def hold(self) -> None:
        """Native code answers nothing until the next beginning; a step that it is taking meanwhile, as letting go of
        objects may have had other threads run, is Python's to look at."""
        self._words.settings = _NO_SETTINGS
        self._words.flushes += 1

    def release(self, settings: int) -> None:
        """Nothing has changed since `hold`."""
        self._words.settings = settings

    @property
    def node(self) -> int:
        return self._words.node

    @node.setter
    def node(self, address: int) -> None:
        self._words.node = address

    @property
    def bytes(self) -> int:
        return self._words.bytes

    @bytes.setter
    def bytes(self, count: int) -> None:
        self._words.bytes = count


_STEPS = WordArena()
"""Where steps lie, with what they are compared with: calls walk through them in the order in which they were made."""


class NativeStep(Placed):
    """A step in memory."""

    arena = _STEPS

    def __init__(
        self,
        key: Any,
        arguments: int,
        names: Sequence[str],
        entries: Sequence[Entry],
        kind: StepKind,
        results: Sequence[Prototype] | Sequence[Callable[[], Any]] | int,
        container: Container,
        keeps: Any,
    ):
        """`results` are what new tensors are like, functions that make them, or, for views, how many there are."""
        super().__init__()
        self.keep(key, names, results, keeps)
        self.target = NativeNode()
        made: Sequence[Any] = () if isinstance(results, int) else results
        prototypes = [one.address if isinstance(one, Prototype) else id(one) for one in made]
        words = FollowedStepWords(
            next=0,
            key=id(key),
            arguments=arguments,
            keywords=len(names),
            names=self.place(list(map(id, names))),
            entries=self.place_all(entries),
            kind=kind,
            results=results if isinstance(results, int) else len(made),
            prototypes=self.place(prototypes),
            container=container,
            target=self.target.address,
        )
        self.address = self.place_all([words])
        self._words = FollowedStepWords.at(self.address)

    def lead_to(self, next_step: int) -> None:
        self._words.next = next_step


class NativeNode:
    """A node in memory, with its steps."""

    def __init__(self) -> None:
        self._memory = _STEPS.words(NodeWords.words())
        self.address = ctypes.addressof(self._memory)
        self._words = NodeWords.at(self.address)
        self.steps: list[NativeStep] = []
        self._flushes: list[NativeFlush] = []

    def add(self, step: NativeStep) -> list[NativeNode]:
        """Make a step the first to compare with; where there are too many, it is the only one. Gives the nodes that
        none leads to any more."""
        lost = [one.target for one in self.steps] if len(self.steps) >= MOST_STEPS else []
        if lost:
            self._words.first = 0
            self.steps.clear()
        step.lead_to(self._words.first)
        self.steps.append(step)
        self._words.first = step.address
        return lost

    def add_flush(self, flush: NativeFlush, bases: int) -> None:
        """Know a flush at this node, if there is room; `bases` is the address of what each tensor is a view of. None is
        ever dropped: it may be running."""
        if len(self._flushes) < MOST_FLUSHES:
            flush.lead_to(self._words.flushes)
            self._words.bases = bases
            self._flushes.append(flush)
            self._words.flushes = flush.address


class NativeFlush(Placed):
    """A flush in memory."""

    def __init__(
        self,
        cause: Any,
        needed: bytes,
        function: Any,
        inputs: Sequence[int],
        destinations: Sequence[int],
        writes: int,
        ended: set[int],
        times: int,
        keeps: Any,
    ):
        """`needed` has a word for each tensor; `function` is what runs, None if nothing has to, and takes the inputs,
        all open numbers and the destinations; `ended` has the threads on which Python has run it to its end; `times` is
        where flushes are counted, 0 for nowhere."""
        super().__init__()
        self.keep(cause, needed, function, ended, keeps)
        words = struct.unpack(f"<{len(needed) // WORD_BYTES}q", needed)
        self._words = FlushWords(
            next=0,
            cause=id(cause),
            count=len(words),
            needed=self.place(words),
            function=0 if function is None else id(function),
            inputs=self.place(inputs),
            input_count=len(inputs),
            destinations=self.place(destinations),
            destination_count=len(destinations),
            writes=writes,
            ended=id(ended),
            times=times,
        )
        self.address = self._words.address

    def lead_to(self, next_flush: int) -> None:
        self._words.next = next_flush


class Writes(Placed):
    """Which of a function's arguments it writes, and how often that counts."""

    def __init__(self, counted: Sequence[tuple[int, int]]):
        super().__init__()
        writes = [Write(value=value, count=count) for value, count in counted]
        self.address = self.place_all([WritesHead(count=len(writes)), *writes])


class Entries(Placed):
    """The entries of a step's arguments, in the making."""

    arena = _STEPS

    def __init__(self) -> None:
        super().__init__()
        self.entries: list[Entry] = []

    def _add(self, kind: EntryKind, first: int = 0, second: int = 0) -> None:
        self.entries.append(Entry(kind=kind, first=first, second=second))

    def same(self, value: Any) -> None:
        self.keep(value)
        self._add(EntryKind.SAME, id(value))

    def value(self, number: int) -> None:
        self._add(EntryKind.VALUE, number)

    def outside(self, tensor: torch.Tensor) -> bool:
        """A tensor from outside like this one; whether native code knows such tensors."""
        guard = TensorGuard.like(tensor, is_strict=True)
        if not guard.is_known:
            return False
        self._add(EntryKind.OUTSIDE, self.place_all([self.tensor_guard(guard)]), id(type(tensor)))
        return True

    def constant(self, value: Any) -> bool:
        """A plain value; whether native code can compare it."""
        if type(value) is int:
            if not -(1 << 63) <= value < 1 << 63:
                return False
            self._add(EntryKind.INTEGER, value)
        elif type(value) is float:
            self._add(EntryKind.FLOAT, _bits(value))
        elif type(value) is torch.device:
            self._add(EntryKind.DEVICE, device_word(value))
        elif type(value) is str:
            self.keep(value)
            self._add(EntryKind.TEXT, id(value))
        else:
            self.same(value)
        return True

    def again(self, index: int) -> None:
        self._add(EntryKind.AGAIN, index)

    def open(self, kind: type, largest: int) -> None:
        """Any number of a class whose absolute value is at most this."""
        bound = _bits(float(largest)) if kind is float else largest
        self._add(EntryKind.OPEN, id(kind), bound)

    def group(self, kind: type, count: int) -> None:
        self._add(EntryKind.GROUP, id(kind), count)

    def slice(self) -> None:
        self._add(EntryKind.SLICE)


def _bits(value: float) -> int:
    return struct.unpack("<q", struct.pack("<d", value))[0]


_made: dict[int, NativeFollowing | None] = {}


def native_following(key: int, bit: int, mode_class: type) -> NativeFollowing | None:
    """The routines for a trap's key and bit, and modes of one class, compiled at first use; None where something is not
    as they need it."""
    if key not in _made:
        _made[key] = _compile(key, bit, mode_class)
    return _made[key]


def _compile(key: int, bit: int, mode_class: type) -> NativeFollowing | None:
    parts = _parts()
    if any(part is None for part in parts) or not can_intercept():
        return None
    places, found, settings, memory, stack = parts
    library = Library("following")
    AnsweringEmitter(library, places, found, settings, memory, stack, key, bit).emit()
    library.compile()
    return NativeFollowing(library, mode_class)


@once
def _parts() -> tuple[Any, Any, Any, Any, Any]:
    return FollowingLayout.find(), launcher(), Settings.find(), pool(), ModeStack.find()
