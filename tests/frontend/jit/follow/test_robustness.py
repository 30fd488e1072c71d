"""Interrupts at random moments leave nothing behind, and nothing grows without bound."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections import Counter

import pytest
import torch

from ingot.frontend.jit.follow.steps.step_tree import MOST_BRANCHES, StepNode
from tests.frontend.jit import interrupting
from tests.frontend.jit.follow.following_checks import followed, nothing_is_left
from tests.warm_processes import run_python

INTERRUPTS = int(os.environ.get("INGOT_TEST_EXAMPLES", "60"))

_HAS_TIMERS = pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="the system has no timers that interrupt")


@_HAS_TIMERS
@pytest.mark.parametrize("subject", ["followed", "in place"])
def test_interrupts_leave_nothing_behind(subject: str):
    assert interrupting.run(subject, INTERRUPTS) > INTERRUPTS // 10, "hardly any call was interrupted"


@_HAS_TIMERS
@pytest.mark.parametrize(("subject", "step"), [("followed", 17), ("settings", 61), ("in place", 17)])
def test_interrupts_at_chosen_points_leave_nothing_behind(subject: str, step: int):
    """Other points in every run."""
    assert interrupting.run(subject, max(step * 60 // INTERRUPTS, 1), warm=interrupting.STEADY) > 20


def _nodes(node: StepNode) -> int:
    return 1 + sum(map(_nodes, node.children.values()))


def _most_branches(node: StepNode) -> int:
    """How many branches there are by calls of one function."""
    functions = Counter(key[0] for key in node.children if isinstance(key, tuple))
    return max(functions.values(), default=0)


def test_nothing_grows_where_everything_changes():
    def function(x, number, text):
        seen = [x * number]
        seen.append(seen[0].pow(number))
        y = torch.cat([seen[-1], torch.full((number % 7 + 1, 2), float(number))])
        return y.sum(dim=number % 2) + number, text

    jitted = followed(function)
    for number in range(400):
        x = torch.randn(number % 23 + 1, 2)
        torch.testing.assert_close(
            jitted(x, number % 97, str(number))[0], function(x, number % 97, "")[0], equal_nan=True
        )
    gc.collect()
    roots = list(jitted._compiled.follower._roots.values())
    assert all(_most_branches(root) <= MOST_BRANCHES for root in roots)
    sizes = sum(map(_nodes, roots))
    for number in range(400, 800):
        x = torch.randn(number % 29 + 1, 2)
        jitted(x, number % 101, str(number))
    assert sum(map(_nodes, roots)) <= max(2 * sizes, 2000)
    nothing_is_left()


def test_calls_that_settle_are_followed_again():
    def function(x, number):
        return x.pow(number).exp() * 2

    jitted, x = followed(function), torch.rand(3, 3)
    for number in range(60):
        jitted(x, number / 7)
    (root,) = jitted._compiled.follower._roots.values()
    assert _most_branches(root) <= MOST_BRANCHES
    for _ in range(400):
        torch.testing.assert_close(jitted(x, 123.0), function(x, 123.0))
    assert any("123.0" in str(key) for key in root.children)


def test_memory_is_flat_where_everything_changes():
    """INGOT_TEST_EXAMPLES is how many calls, 100,000 in a long run: nothing is left of what was dropped."""
    count = int(os.environ.get("INGOT_TEST_EXAMPLES", "500"))
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    done = run_python("-m", "tests.frontend.jit.follow.everything_changes", str(count), env=environment)
    assert done.returncode == 0, done.stderr
    compiled, followings, active, objects, memory = map(float, done.stdout.split())
    assert (compiled, followings, active) == (0, 0, 0)
    if count >= 100_000:  # with fewer calls what is kept of the latest ones is not all there yet
        assert objects < 1.1 and memory < 1.02, (objects, memory)
