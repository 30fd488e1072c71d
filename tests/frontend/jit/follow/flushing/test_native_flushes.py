"""What is pending runs differently in programs of one thread. The workers that run tests in parallel have another
thread, so the tests of `native_flushes.py` run in a process of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

_TESTS = Path(__file__).with_name("native_flushes.py")


def test_native_flushes_with_and_without_other_threads():
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    command = [sys.executable, "-m", "pytest", "-p", "no:xdist", "-p", "no:cacheprovider", "--tb=short", str(_TESTS)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "passed" in done.stdout, done.stdout
