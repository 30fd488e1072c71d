"""Interrupts at random moments leave nothing behind, and nothing grows without bound."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import textwrap

import pytest
import torch

from ingot.frontend.jit.follow.steps import MOST_BRANCHES, Node
from tests.frontend.jit.follow.following_checks import followed, nothing_is_left

INTERRUPTS = int(os.environ.get("INGOT_TEST_EXAMPLES", "15"))

_PROGRAM = """
    import random, signal, sys, time, warnings
    import torch
    from torch.utils import _python_dispatch
    import ingot
    from ingot.frontend.jit.autotune import eager_comparison
    from ingot.frontend.jit.follow.following import ACTIVE

    eager_comparison.ROUNDS = 0
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)

    def state():
        flags = tuple(value for name, value in vars(_python_dispatch).items() if name.startswith("_is_in_"))
        return (
            torch._C._len_torch_function_stack(), torch._C._len_torch_dispatch_stack(), flags, sys.getprofile(),
            torch._C._is_torch_function_enabled(), torch.is_grad_enabled(), len(ACTIVE),
            str(torch._C._dispatch_tls_local_include_set()), str(torch._C._dispatch_tls_local_exclude_set()),
        )

    weight = torch.randn(8, 8)
    seen = []

    def function(x):
        for _ in range(6):
            x = torch.tanh(x @ weight) * 0.5 + x.sum(-1, keepdim=True) * 0.01
            seen.append(x)
            if x[0, 0].item() > 1e9:
                return x
        return x

    x = torch.randn(4, 8)
    expected = function(x)
    values = [one.clone() for one in seen]

    def calls():
        compiled = ingot.jit(function, python="run")
        for _ in range(4):
            compiled(x)
        return compiled

    is_armed = False
    def interrupt(*_):
        if is_armed:
            raise KeyboardInterrupt

    signal.signal(signal.SIGALRM, interrupt)
    for _ in range(3):
        start = time.perf_counter()
        kept = calls()
        length = time.perf_counter() - start
    before = state()
    choose = random.Random(int(sys.argv[2]))
    count = 0
    for attempt in range(int(sys.argv[1])):
        seen.clear()
        try:
            try:
                is_armed = True
                signal.setitimer(signal.ITIMER_REAL, choose.uniform(1e-6, length if attempt % 2 else 2e-3))
                if attempt % 2:
                    calls()
                else:
                    kept(x)
                    kept(x)
                    kept(x)
            finally:
                is_armed = False
                signal.setitimer(signal.ITIMER_REAL, 0)
        except KeyboardInterrupt:
            count += 1
        now = state()
        if now != before:
            sys.exit(f"attempt {attempt}: {before} became {now}")
        for number, one in enumerate(seen):
            torch.testing.assert_close(one, values[number % 6])
        for compiled in (kept, ingot.jit(function, python="run")):
            for _ in range(3):
                torch.testing.assert_close(compiled(x), expected)
        if state() != before:
            sys.exit(f"after attempt {attempt}: {before} became {state()}")
    print(count)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no timers that interrupt")
def test_interrupts_leave_nothing_behind():
    command = [sys.executable, "-c", textwrap.dedent(_PROGRAM), str(INTERRUPTS), str(os.getpid())]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120 + 2 * INTERRUPTS)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > INTERRUPTS // 10, "hardly any call was interrupted"


def _nodes(node: Node) -> int:
    return 1 + sum(map(_nodes, node.children.values()))


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
    assert all(len(root.children) <= MOST_BRANCHES for root in roots)
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
    assert len(root.children) <= MOST_BRANCHES
    for _ in range(400):
        torch.testing.assert_close(jitted(x, 123.0), function(x, 123.0))
    assert any("123.0" in str(key) for key in root.children)
