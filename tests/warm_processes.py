"""Python run in processes of its own, of which most of the start is done once: forks of one that has imported torch.

In: a command line without the interpreter, as `("-c", program)`, `("-m", module, ...)` or `(script, ...)`. Out: what
subprocess.run gives. PyTorch and LLVM are all that is there before the program starts, and the process that forks never
computes; ingot, its settings, memory, threads and caches are the program's own. Not for tests of what is read before
then or while torch is imported: options of the interpreter, the hashes of texts, what modules importing ingot brings.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import importlib
import json
import os
import runpy
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_starting = threading.Lock()


def run_python(
    *command: str, env: Mapping[str, str] | None = None, cwd: Path | str | None = None
) -> subprocess.CompletedProcess[str]:
    """What a program gives that runs where PyTorch and LLVM are imported, and nothing else of note."""
    ours, theirs = socket.socketpair()
    with ours, contextlib.ExitStack() as files:
        request, stdout, stderr = (files.enter_context(tempfile.TemporaryFile("w+")) for _ in range(3))
        json.dump({"command": command, "env": dict(env or os.environ), "cwd": str(cwd or Path.cwd())}, request)
        request.seek(0)
        with _starting:
            connection = _forking_process()
        socket.send_fds(connection, [b"."], [*(file.fileno() for file in (request, stdout, stderr)), theirs.fileno()])
        theirs.close()
        status = ours.recv(64)
        if not status:
            raise RuntimeError("the process that forks has ended")
        stdout.seek(0)
        stderr.seek(0)
        return subprocess.CompletedProcess(command, int(status), stdout.read(), stderr.read())


@functools.cache
def _forking_process() -> socket.socket:
    ours, theirs = socket.socketpair()
    command = [sys.executable, __file__, str(theirs.fileno())]
    process = subprocess.Popen(command, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL)
    theirs.close()
    atexit.register(_end, process, ours, os.getpid())
    return ours


def _end(process: subprocess.Popen[bytes], connection: socket.socket, owner: int) -> None:
    if os.getpid() == owner:  # not in a child that a test has forked
        connection.close()
        process.wait()


# --- in the process that forks ----------------------------------------------------------------------------------------


def _next_program(connection: socket.socket) -> dict[str, Any]:
    """What to run; returns in forked processes alone, any number of which may run at once."""
    while True:
        message, files, _, _ = socket.recv_fds(connection, 1, 4)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG if message else 0)[0]:
                pass  # those that have told how a program ended
        if not message:
            sys.exit()
        if os.fork() == 0:
            connection.close()
            request, stdout, stderr, end = files
            child = os.fork()
            if child == 0:
                os.dup2(stdout, 1)
                os.dup2(stderr, 2)
                os.close(stdout)
                os.close(stderr)
                os.close(end)
                with open(request) as text:
                    return json.load(text)
            _, status = os.waitpid(child, 0)
            os.write(end, str(os.waitstatus_to_exitcode(status)).encode())
            os._exit(0)
        for file in files:
            os.close(file)


def _run(command: list[str], env: dict[str, str], cwd: str) -> None:
    """The command line, as Python runs it."""
    import torch

    os.environ.clear()
    os.environ.update(env)
    os.chdir(cwd)
    if "OMP_NUM_THREADS" in env:  # read when torch was imported
        torch.set_num_threads(int(env["OMP_NUM_THREADS"]))
    first, *rest = command
    if first == "-c":
        program, *arguments = rest
        _start(["-c", *arguments], "")
        exec(compile(program, "<string>", "exec"), sys.modules["__main__"].__dict__)
    elif first == "-m":
        module, *arguments = rest
        _start([module, *arguments], cwd)
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    else:
        _start(command, str(Path(first).absolute().parent))
        runpy.run_path(first, run_name="__main__")


def _start(arguments: list[str], folder: str) -> None:
    """Set what Python sets before it runs a program; the folder is where it looks for modules first."""
    sys.argv = arguments
    paths = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    sys.path[:] = list(dict.fromkeys([folder, *paths, *sys.path[1:]]))
    main = type(sys)("__main__")
    main.__dict__["__builtins__"] = __builtins__
    sys.modules["__main__"] = main


if __name__ == "__main__":
    for name in ("torch", "torch._decomp", "torch.export", "llvmlite.binding"):
        importlib.import_module(name)
    _run(**_next_program(socket.socket(fileno=int(sys.argv[1]))))
