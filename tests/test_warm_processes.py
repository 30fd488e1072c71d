"""Programs in forked processes run as in processes that Python has started."""

import subprocess
import sys
from pathlib import Path

from tests.warm_processes import run_python

PROGRAM = """
import os, sys
assert "ingot" not in sys.modules
print(sys.argv[1:], __name__, os.environ.get("SAID"), os.getcwd())
print("told", file=sys.stderr)
sys.exit(3)
"""


def test_programs_find_what_they_are_given(tmp_path: Path):
    script, env = tmp_path / "script.py", {"SAID": "this"}
    script.write_text(PROGRAM)
    for command in (("-c", PROGRAM, "one"), (str(script), "one"), ("-m", "script", "one")):
        wanted = subprocess.run([sys.executable, *command], env=env, cwd=tmp_path, capture_output=True, text=True)
        found = run_python(*command, env=env, cwd=tmp_path)
        assert wanted.returncode == 3
        assert (found.returncode, found.stdout, found.stderr) == (3, wanted.stdout, wanted.stderr)


def test_errors_and_signals_are_seen():
    failed = run_python("-c", "1 / 0")
    assert failed.returncode == 1 and failed.stderr.endswith("ZeroDivisionError: division by zero\n")
    assert run_python("-c", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)").returncode == -9
