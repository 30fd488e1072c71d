"""Trials in processes of their own: a process that dies or hangs costs the sample it was at, and nothing else.

In: tasks, one operator with one dtype each. Out: the verdicts of each task, in the order in which tasks end. Processes
tell each other JSON, and share the GPU if that is the device.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import time
import warnings
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from multiprocessing.connection import Connection, wait
from typing import Any

import torch

from ingot.base.errors import FaultWarning
from tests.opinfo.database import DTYPES, SAMPLES, operators
from tests.opinfo.trials import CRASH, EAGER, Verdict, try_operator

PATIENCE = 120.0
"""Seconds after which a sample counts as one that never ends."""
MOST_CRASHES = 3
"""Crashes in a row after which the rest of a task is given up."""


@dataclass
class Task:
    operator: str
    dtype: str
    most: int | None
    verdicts: list[Verdict] = field(default_factory=list)
    device: str = "cpu"
    inputs: str = SAMPLES
    python: str = "skip"
    gradients: bool = False


def run_tasks(tasks: Sequence[Task], jobs: int) -> Iterator[Task]:
    """The same tasks with their verdicts."""
    waiting = deque(tasks)
    workers = [_Worker(max(1, (os.cpu_count() or 1) // jobs)) for _ in range(min(jobs, len(tasks)))]
    try:
        while waiting or any(worker.task is not None for worker in workers):
            for worker in workers:
                if worker.task is None and waiting:
                    worker.give(waiting.popleft())
            busy = [worker for worker in workers if worker.task is not None]
            ready = wait([worker.connection for worker in busy], timeout=1.0)
            for worker in busy:
                done = worker.listen() if worker.connection in ready else worker.watch()
                if done is not None:
                    yield done
    finally:
        for worker in workers:
            worker.end()


class _Worker:
    """A process that tries operators, started again when it dies."""

    def __init__(self, threads: int):
        self.task: Task | None = None
        self._threads = threads
        self._crashes = 0
        self._heard = time.monotonic()
        self._start()

    def _start(self) -> None:
        context = multiprocessing.get_context("forkserver")  # of a process that has imported this, and computes nothing
        context.set_forkserver_preload([__name__])
        self.connection, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, self._threads), daemon=True)
        self._process.start()
        theirs.close()

    def give(self, task: Task) -> None:
        self.task = task
        self._heard = time.monotonic()
        asked = ("operator", "dtype", "most", "device", "inputs", "python", "gradients")
        request = {name: getattr(task, name) for name in asked} | {"first": len(task.verdicts)}
        _tell(self.connection, request)

    def listen(self) -> Task | None:
        """Take what the process says; the task if that was its end."""
        assert self.task is not None
        self._heard = time.monotonic()
        try:
            message = json.loads(self.connection.recv_bytes())
        except (EOFError, OSError):
            self._process.join()
            return self._replace(f"the process ended with code {self._process.exitcode}")
        self._crashes = 0
        if message is None:
            return self._finish()
        self.task.verdicts.append(Verdict(**message))
        return None

    def watch(self) -> Task | None:
        """Nothing was heard: that may be for too long."""
        if time.monotonic() - self._heard > PATIENCE:
            self._process.kill()
            self._process.join()
            return self._replace(f"no end after {PATIENCE:.0f} seconds")
        return None

    def _finish(self) -> Task | None:
        done, self.task = self.task, None
        return done

    def _replace(self, problem: str) -> Task | None:
        """Note what ended the process, and go on with the next sample in a new one."""
        assert self.task is not None
        self.task.verdicts.append(Verdict("", EAGER, problem=CRASH + problem))
        self.connection.close()
        self._start()
        self._crashes += 1
        if self._crashes >= MOST_CRASHES:
            self._crashes = 0
            return self._finish()
        self.give(self.task)
        return None

    def end(self) -> None:
        self._process.kill()
        self._process.join()
        self.connection.close()


def _tell(connection: Connection, message: Any) -> None:
    connection.send_bytes(json.dumps(message).encode())


def _serve(connection: Connection, threads: int) -> None:
    """What a process does: try what it is told to, and tell one verdict after the other."""
    torch.set_num_threads(threads)
    warnings.simplefilter("error", FaultWarning)  # what compiling survives is wrong, too
    while True:
        try:
            request = json.loads(connection.recv_bytes())
        except EOFError:
            return
        dtype, operator = DTYPES[request["dtype"]], operators()[request["operator"]]
        options = (request[name] for name in ("most", "first", "device", "inputs", "python", "gradients"))
        for verdict in try_operator(operator, dtype, *options):
            _tell(connection, asdict(verdict))
        _tell(connection, None)
