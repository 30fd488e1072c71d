"""Readings that are others at every call: clocks, random numbers of Python, files, queues, iterators, identifiers.

Where two runs cannot read the same, the program shows whether every call read something new.
"""

from __future__ import annotations

import collections
import datetime
import io
import itertools
import os
import pathlib
import queue
import random
import secrets
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable
from typing import Any

import numpy
import torch

from tests.frontend.jit.state.worlds import Program, World, numbers, program, restored


def _must_differ(read: Callable[[], float], pause: float = 0.0) -> Program:
    """A program whose reading must be another one at each call; it is returned in float64, which keeps it."""
    seen: list[float] = []

    def is_new(result: torch.Tensor) -> bool:
        value = float(result[0, 0])
        is_new = value not in seen
        seen.append(value)
        return is_new

    def reading(x: Any) -> Any:
        return x.double() * 0 + read()

    def call(run: Callable[[], Any]) -> Any:
        time.sleep(pause)
        return run()

    return Program(reading, view=is_new, call=call)


@program
def operating_systems_random_bytes(world: World) -> Program:
    return _must_differ(lambda: int.from_bytes(os.urandom(6), "little"))


@program
def unique_identifier(world: World) -> Program:
    return _must_differ(lambda: uuid.uuid4().int % 2**50)


@program
def secret_number(world: World) -> Program:
    return _must_differ(lambda: secrets.randbelow(2**50))


@program
def system_random_number(world: World) -> Program:
    source = random.SystemRandom()
    return _must_differ(source.random)


@program
def unseeded_generator_of_numpy(world: World) -> Program:
    return _must_differ(lambda: float(numpy.random.default_rng().random()))


@program
def wall_clock(world: World) -> Program:
    return _must_differ(time.time, 1e-4)


@program
def performance_counter(world: World) -> Program:
    return _must_differ(time.perf_counter)


@program
def nanoseconds(world: World) -> Program:
    return _must_differ(lambda: time.monotonic_ns() % 2**50)


@program
def date_and_time(world: World) -> Program:
    return _must_differ(lambda: datetime.datetime.now().timestamp(), 1e-4)


@program
def processor_time(world: World) -> Program:
    def read() -> float:
        begin = time.process_time()
        while time.process_time() == begin:
            pass
        return time.process_time()

    return _must_differ(read)


@program
def local_time_through_a_patched_clock(world: World) -> Program:
    """`time.localtime` replaced by one that the test winds: what a date at midnight does."""
    world.patch(time, "localtime", lambda: time.struct_time((2024, 1, 1, 0, 0, 0, 0, 1, 0)))
    later = time.struct_time((2024, 1, 2, 0, 0, 0, 1, 2, 0))
    return Program(lambda x: x * time.localtime().tm_mday, lambda: setattr(time, "localtime", lambda: later))


@program
def local_time_in_another_zone(world: World) -> Program:
    world.at_end(time.tzset)
    world.put(os.environ, "TZ", "UTC0")
    time.tzset()

    def change() -> None:
        os.environ["TZ"] = "XXX-05"
        time.tzset()

    return Program(lambda x: x * (time.localtime(0).tm_hour + 2), change)


@program
def random_number_of_python(world: World) -> Program:
    state = random.getstate()
    world.at_end(random.setstate, state)
    random.seed(3)
    return Program(lambda x: x * random.randint(1, 9), lambda: random.seed(5), observe=lambda: repr(random.getstate()))


@program
def own_generator_of_python(world: World) -> Program:
    source = random.Random(3)
    return Program(lambda x: x * source.randint(1, 9), lambda: source.seed(5), observe=lambda: repr(source.getstate()))


@program
def shuffled_list(world: World) -> Program:
    source, order = random.Random(3), [0, 1, 2, 3]

    def shuffled(x: Any) -> Any:
        source.shuffle(order)
        return x[order] * 2

    return Program(shuffled, observe=lambda: order)


@program
def random_numbers_of_numpy(world: World) -> Program:
    state = numpy.random.get_state()
    world.at_end(numpy.random.set_state, state)
    numpy.random.seed(3)
    return Program(lambda x: x * numpy.random.randint(1, 9), lambda: numpy.random.seed(5))


@program
def own_generator_of_numpy(world: World) -> Program:
    source = numpy.random.default_rng(3)
    return Program(
        lambda x: x + torch.from_numpy(source.integers(0, 9, 5)), observe=lambda: str(source.bit_generator.state)
    )


def _folder(world: World) -> pathlib.Path:
    return pathlib.Path(world.enter(tempfile.TemporaryDirectory()))


@program
def file_read(world: World) -> Program:
    path = _folder(world) / "scale"
    path.write_text("2")
    return Program(lambda x: x * float(path.read_text()), lambda: path.write_text("3"))


@program
def file_that_appears(world: World) -> Program:
    path = _folder(world) / "scale"
    return Program(lambda x: x * 3 if path.exists() else x * 2, lambda: path.write_text("3"))


@program
def open_file_read_on(world: World) -> Program:
    file = io.StringIO("\n".join(str(number) for number in range(2, 40)))
    return Program(lambda x: x * float(file.readline()), lambda: file.seek(0), observe=file.tell)


@program
def tensor_loaded_from_file(world: World) -> Program:
    path = _folder(world) / "tensor.pt"
    torch.save(numbers(1, 5), path)
    return Program(lambda x: x + torch.load(path, weights_only=True), lambda: torch.save(numbers(2, 5), path))


@program
def queue_emptied(world: World) -> Program:
    waiting: queue.Queue[float] = queue.Queue()
    for number in range(16):
        waiting.put(float(number))
    return Program(lambda x: x * waiting.get_nowait(), lambda: waiting.put(5.0), observe=waiting.qsize)


@program
def simple_queue_emptied(world: World) -> Program:
    waiting: queue.SimpleQueue[float] = queue.SimpleQueue()
    for number in range(16):
        waiting.put(float(number))
    return Program(lambda x: x * waiting.get_nowait(), lambda: waiting.put(5.0), observe=waiting.qsize)


@program
def deque_rotated(world: World) -> Program:
    waiting = collections.deque([2.0, 3.0, 5.0])

    def scaled(x: Any) -> Any:
        waiting.rotate(1)
        return x * waiting[0]

    return Program(scaled, lambda: waiting.append(7.0), observe=lambda: list(waiting))


@program
def generator_advanced(world: World) -> Program:
    source = (float(number) for number in range(15))
    return Program(lambda x: x * next(source, 0.5))


@program
def counter_of_itertools(world: World) -> Program:
    source = itertools.count(1)
    return Program(lambda x: x * next(source), lambda: next(source))


@program
def cycle_of_itertools(world: World) -> Program:
    source = itertools.cycle([2.0, 3.0, 5.0])
    return Program(lambda x: x * next(source), lambda: next(source))


@program
def iterator_given(world: World) -> Program:
    source = iter(range(1, 40))
    return Program(
        lambda x, numbers_left: x * next(numbers_left), lambda: next(source), lambda call: (numbers(call, 4, 5), source)
    )


@program
def generator_sent_to(world: World) -> Program:
    def averaging() -> Any:
        total = 0.0
        while True:
            total += yield total

    source = averaging()
    next(source)
    return Program(lambda x: x * source.send(2.0), lambda: source.send(5.0))


@program
def list_iterated_while_it_grows(world: World) -> Program:
    values = [1.0]

    def scaled(x: Any) -> Any:
        values.append(values[-1] + 1)
        for value in values[-3:]:
            x = x * value
        return x

    return Program(scaled, values.clear, observe=lambda: list(values))


@program
def thread_name(world: World) -> Program:
    thread = threading.current_thread()
    world.enter(restored(lambda: thread.name, lambda name: setattr(thread, "name", name)))
    return Program(lambda x: x * len(threading.current_thread().name), lambda: setattr(thread, "name", "renamed by us"))


@program
def event_set(world: World) -> Program:
    event = threading.Event()
    return Program(lambda x: x * 3 if event.is_set() else x * 2, event.set)


@program
def lock_held(world: World) -> Program:
    lock = threading.Lock()
    return Program(lambda x: x * 3 if lock.locked() else x * 2, lock.acquire)


@program
def reference_count(world: World) -> Program:
    thing = object()
    held: list[Any] = []
    base = sys.getrefcount(thing)
    return Program(lambda x: x * (2 if sys.getrefcount(thing) - base < 5 else 3), lambda: held.extend([thing] * 10))


@program
def working_directory(world: World) -> Program:
    folder = _folder(world)
    (folder / "marker").write_text("")
    world.at_end(os.chdir, os.getcwd())
    return Program(lambda x: x * 3 if os.path.exists("marker") else x * 2, lambda: os.chdir(folder))


@program
def frame_of_the_caller(world: World) -> Program:
    lines = ["first"]

    def first_caller(run: Callable[[], Any]) -> Any:
        return run()

    def second_caller(run: Callable[[], Any]) -> Any:
        return run()

    def called(x: Any) -> Any:
        frame: Any = sys._getframe()
        while frame is not None and frame.f_code.co_name not in ("first_caller", "second_caller"):
            frame = frame.f_back
        return x * 2 if frame is not None and frame.f_code.co_name == "first_caller" else x * 3

    return Program(
        called,
        lines.clear,
        call=lambda run: first_caller(run) if lines else second_caller(run),
    )


@program
def exception_being_handled(world: World) -> Program:
    errors: list[Exception] = []

    def call(run: Callable[[], Any]) -> Any:
        try:
            if errors:
                raise errors[0]
        except ValueError:
            return run()
        return run()

    return Program(
        lambda x: x * 3 if sys.exc_info()[0] is ValueError else x * 2, lambda: errors.append(ValueError()), call=call
    )
