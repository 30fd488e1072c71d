"""Which way calls of a function are made, given how long each way takes. Time is scripted: no clock is read."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from ingot.frontend.jit.autotune import eager_comparison
from ingot.frontend.jit.follow import verdict as module
from ingot.frontend.jit.follow.verdict import FIRST_REST, HANDED_ON, Verdict, Way

LONG = 1.0
"""Seconds of a call that is no short one."""


@dataclass
class World:
    """A function, and what each way of calling it takes."""

    plain: float
    followed: float
    now: float = 0.0
    handed_on: int = 0
    ways: list[Way] = field(default_factory=list)

    def hand_on(self, calls: int) -> None:
        self.handed_on += calls

    def run_plain(self) -> str:
        self.now += self.plain
        self.ways.append(Way.PLAIN)
        return "result"

    def run_followed(self) -> tuple[str, bool]:
        self.now += self.followed
        self.ways.append(Way.FOLLOWED)
        return "result", False

    def call(self, verdict: Verdict) -> None:
        way = verdict.way()
        if way is Way.MEASURED:
            assert verdict.run(self.run_plain, self.run_followed) == "result"
        else:
            self.ways.append(way)

    def settle(self, verdict: Verdict) -> Way:
        """The way that calls settle on."""
        for _ in range(100):
            if (way := verdict.way()) is not Way.MEASURED:
                return way
            verdict.run(self.run_plain, self.run_followed)
        raise AssertionError("calls are measured for ever")


@dataclass
class _Watch:
    world: World
    begun: float

    def stop(self) -> float:
        return self.world.now - self.begun


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch):
    """Worlds whose time the verdict reads."""
    monkeypatch.setattr(eager_comparison, "ROUNDS", 5)

    def make(plain: float, followed: float) -> World:
        world = World(plain, followed)
        monkeypatch.setattr(module, "stopwatch", lambda device: _Watch(world, world.now))
        return world

    return make


@pytest.mark.parametrize(
    ("plain", "followed", "wanted"),
    [
        (LONG, 0.4 * LONG, Way.FOLLOWED),
        (LONG, 0.9 * LONG, Way.FOLLOWED),
        (LONG, 0.99 * LONG, Way.PLAIN),  # what looks like a gain may be noise
        (LONG, 1.01 * LONG, Way.PLAIN),
        (LONG, 3 * LONG, Way.PLAIN),
    ],
)
def test_following_must_be_clearly_quicker(measured: Any, plain: float, followed: float, wanted: Way):
    world, verdict = measured(plain, followed), Verdict(lambda calls: None)
    assert world.settle(verdict) is wanted
    assert (verdict.text is None) is (wanted is Way.FOLLOWED)


def test_a_wrong_verdict_for_following_heals(measured: Any):
    world = measured(LONG, 0.9 * LONG)
    verdict = Verdict(world.hand_on)
    assert world.settle(verdict) is Way.FOLLOWED
    world.followed = 1.1 * LONG
    for _ in range(FIRST_REST[False] + 20):
        world.call(verdict)
    assert world.settle(verdict) is Way.PLAIN


def test_following_that_is_far_ahead_is_not_measured_again(measured: Any):
    world = measured(LONG, 0.2 * LONG)
    verdict = Verdict(world.hand_on)
    world.settle(verdict)
    world.ways.clear()
    for _ in range(10_000):
        world.call(verdict)
    assert set(world.ways) == {Way.FOLLOWED}


def test_following_gets_another_chance_less_and_less_often(measured: Any):
    world = measured(LONG, 1.5 * LONG)
    verdict = Verdict(world.hand_on)
    world.settle(verdict)
    chances = []
    for _ in range(2):
        before = world.handed_on
        while verdict.way() is not Way.MEASURED:
            pass
        chances.append(world.handed_on - before)
        world.settle(verdict)
    assert chances[1] > 3 * chances[0] > 2 * HANDED_ON


def test_short_calls_are_not_judged_by_one_pair(measured: Any):
    """An interrupt of the machine makes one of them ten times as long."""
    world = measured(1e-5, 3e-5)
    verdict, run_plain = Verdict(world.hand_on), world.run_plain
    counted = [10.0, 1.0, 1.0, 1.0, 1.0]

    def disturbed() -> str:
        world.plain = 1e-5 * counted.pop(0)
        return run_plain()

    world.run_plain = disturbed
    assert world.settle(verdict) is Way.PLAIN
