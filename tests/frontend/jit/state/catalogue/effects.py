"""Effects that Python notices at every call: lists, counters, printed text, logs, warnings, files, tensors."""

from __future__ import annotations

import atexit
import collections
import contextlib
import functools
import io
import logging
import os
import pathlib
import queue
import sys
import tempfile
import types
import warnings
from typing import Any

import torch

from tests.frontend.jit.state.worlds import Program, ProgramWarning, World, numbers, program


@program
def list_appended(world: World) -> Program:
    def appending(x: Any) -> Any:
        world.log.append("called")
        return x * 2 + 1

    return Program(appending)


@program
def shape_appended(world: World) -> Program:
    def appending(x: Any) -> Any:
        world.log.append(tuple(x.shape))
        return x * 2 + 1

    return Program(appending, arguments=lambda call: (numbers(call, 2 + call % 3, 5),))


@program
def result_kept(world: World) -> Program:
    kept: list[Any] = []

    def keeping(x: Any) -> Any:
        kept.append(x * 3)
        return x * 2 + 1

    return Program(keeping, kept.clear, observe=lambda: kept)


@program
def argument_kept(world: World) -> Program:
    kept: list[Any] = []

    def keeping(x: Any) -> Any:
        kept.append(x)
        return x * 2 + kept[0]

    return Program(keeping, kept.clear, observe=lambda: kept)


@program
def value_noted(world: World) -> Program:
    def noting(x: Any) -> Any:
        world.log.append(x.sum().item())
        return x * 2 + 1

    return Program(noting)


@program
def global_counter(world: World) -> Program:
    table: dict[str, Any] = {"calls": 0}
    exec("def f(x):\n    global calls\n    calls += 1\n    return x * calls", table)
    return Program(table["f"], lambda: table.update(calls=100), observe=lambda: table["calls"])


@program
def cell_counter(world: World) -> Program:
    calls = 0

    def counting(x: Any) -> Any:
        nonlocal calls
        calls += 1
        return x * 2

    return Program(counting, observe=lambda: calls)


@program
def attribute_counter(world: World) -> Program:
    counts = types.SimpleNamespace(calls=0)

    def counting(x: Any) -> Any:
        counts.calls += 1
        return x * 2

    return Program(counting, lambda: setattr(counts, "calls", 100), observe=lambda: counts.calls)


@program
def counter_of_collections(world: World) -> Program:
    counts: collections.Counter[str] = collections.Counter()

    def counting(x: Any) -> Any:
        counts["calls"] += 1
        return x * counts["calls"]

    return Program(counting, counts.clear, observe=lambda: dict(counts))


@program
def dictionary_updated(world: World) -> Program:
    table: dict[str, Any] = {}

    def updating(x: Any) -> Any:
        table["last"] = x * 2
        table["calls"] = table.get("calls", 0) + 1
        return x + 1

    return Program(updating, table.clear, observe=lambda: table)


@program
def cache_by_hand(world: World) -> Program:
    table: dict[int, Any] = {}

    def cached(x: Any) -> Any:
        if x.shape[0] not in table:
            table[x.shape[0]] = x.sum()
        return x + table[x.shape[0]]

    return Program(cached, table.clear, lambda call: (numbers(call, 2 + call % 3, 5),), observe=lambda: table)


@program
def dictionary_argument_updated(world: World) -> Program:
    def updating(state: Any) -> Any:
        state["y"] = state["x"] * 2
        return state["y"] + 1

    return Program(updating, arguments=lambda call: ({"x": numbers(call, 4, 5)},))


@program
def list_argument_extended(world: World) -> Program:
    def extending(tensors: Any) -> Any:
        tensors.append(tensors[0] * 2)
        return tensors[-1] + 1

    return Program(extending, arguments=lambda call: ([numbers(call, 4, 5)],))


@program
def set_filled(world: World) -> Program:
    seen: set[int] = set()

    def filling(x: Any) -> Any:
        seen.add(x.shape[0])
        return x * len(seen)

    return Program(filling, seen.clear, lambda call: (numbers(call, 2 + call % 4, 5),), observe=lambda: sorted(seen))


@program
def printed(world: World) -> Program:
    def printing(x: Any) -> Any:
        print("called")
        return x * 2 + 1

    return Program(printing)


@program
def printed_value(world: World) -> Program:
    def printing(x: Any) -> Any:
        print(x.sum().item(), x[0])
        return x * 2 + 1

    return Program(printing)


@program
def printed_if_verbose(world: World) -> Program:
    settings = types.SimpleNamespace(verbose=False)

    def printing(x: Any) -> Any:
        if settings.verbose:
            print("called")
        return x * 2 + 1

    return Program(printing, lambda: setattr(settings, "verbose", True))


@program
def standard_output_replaced(world: World) -> Program:
    other = io.StringIO()

    def printing(x: Any) -> Any:
        sys.stdout.write("called")
        return x * 2 + 1

    return Program(printing, lambda: world.enter(contextlib.redirect_stdout(other)), observe=other.getvalue)


class _Listing(logging.Handler):
    def __init__(self, lines: list[Any]) -> None:
        super().__init__()
        self.lines = lines

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def _logger(world: World, level: int) -> logging.Logger:
    """A registered logger: loggers cache what they answered about a level. It passes nothing to handlers of other
    loggers."""
    logger, handler = logging.getLogger("ingot test state"), _Listing(world.log)
    logger.propagate = False
    logger.setLevel(level)
    logger.addHandler(handler)
    world.at_end(logger.removeHandler, handler)
    return logger


@program
def logged(world: World) -> Program:
    logger = _logger(world, logging.INFO)

    def logging_(x: Any) -> Any:
        logger.info("called with %d", x.shape[0])
        return x * 2 + 1

    return Program(logging_, lambda: logger.setLevel(logging.ERROR))


@program
def log_level_lowered(world: World) -> Program:
    logger = _logger(world, logging.ERROR)

    def logging_(x: Any) -> Any:
        logger.info("called with %d", x.shape[0])
        return x * 2 + 1

    return Program(logging_, lambda: logger.setLevel(logging.INFO))


@program
def log_level_read(world: World) -> Program:
    logger = _logger(world, logging.ERROR)
    return Program(
        lambda x: x * 3 if logger.isEnabledFor(logging.INFO) else x * 2, lambda: logger.setLevel(logging.INFO)
    )


@program
def logging_disabled_for_all(world: World) -> Program:
    logger = _logger(world, logging.INFO)
    world.at_end(logging.disable, logging.NOTSET)

    def logging_(x: Any) -> Any:
        logger.info("called")
        return x * 2 + 1

    return Program(logging_, lambda: logging.disable(logging.CRITICAL))


@program
def log_handler_added(world: World) -> Program:
    logger, other = _logger(world, logging.INFO), []
    handler = _Listing(other)
    world.at_end(logger.removeHandler, handler)

    def logging_(x: Any) -> Any:
        logger.info("called")
        return x * 2 + 1

    return Program(logging_, lambda: logger.addHandler(handler), observe=lambda: other)


@program
def warned(world: World) -> Program:
    def warning(x: Any) -> Any:
        warnings.warn("called", ProgramWarning, stacklevel=1)
        return x * 2 + 1

    return Program(warning)


@program
def warning_made_an_error(world: World) -> Program:
    def warning(x: Any) -> Any:
        warnings.warn("called", ProgramWarning, stacklevel=1)
        return x * 2 + 1

    return Program(warning, lambda: warnings.simplefilter("error", ProgramWarning))


@program
def file_written(world: World) -> Program:
    path = pathlib.Path(world.enter(tempfile.TemporaryDirectory())) / "log"
    path.write_text("")

    def writing(x: Any) -> Any:
        with open(path, "a") as file:
            file.write("called\n")
        return x * 2 + 1

    return Program(writing, lambda: path.write_text(""), observe=path.read_text)


@program
def open_file_written(world: World) -> Program:
    file = world.enter(tempfile.TemporaryFile("w+"))  # noqa: SIM115
    return Program(lambda x: x * file.write("called"), lambda: file.seek(0), observe=file.tell)


@program
def file_descriptor_written(world: World) -> Program:
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    world.at_end(os.close, reader)
    world.at_end(os.close, writer)

    def writing(x: Any) -> Any:
        os.write(writer, b"!")
        return x * 2

    def received() -> bytes | None:
        try:
            return os.read(reader, 100)
        except BlockingIOError:
            return None

    return Program(writing, observe=received)


@program
def queue_filled(world: World) -> Program:
    waiting: queue.Queue[Any] = queue.Queue(16)

    def putting(x: Any) -> Any:
        waiting.put_nowait(x.shape[0])
        return x * 2

    return Program(putting, waiting.get_nowait, observe=waiting.qsize)


@program
def environment_written(world: World) -> Program:
    world.put(os.environ, "INGOT_TEST_STATE", "0")

    def writing(x: Any) -> Any:
        os.environ["INGOT_TEST_STATE"] = str(int(os.environ["INGOT_TEST_STATE"]) + 1)
        return x * 2

    return Program(
        writing, lambda: os.environ.update(INGOT_TEST_STATE="100"), observe=lambda: os.environ["INGOT_TEST_STATE"]
    )


@program
def callback_called(world: World) -> Program:
    callbacks: list[Any] = [lambda x: world.log.append("first")]

    def calling(x: Any) -> Any:
        for callback in callbacks:
            callback(x)
        return x * 2 + 1

    return Program(calling, lambda: callbacks.append(lambda x: world.log.append("second")))


@program
def exit_function_registered(world: World) -> Program:
    def registered() -> None:
        pass

    world.at_end(atexit.unregister, registered)

    def registering(x: Any) -> Any:
        atexit.register(registered)
        return x * 2 + 1

    before = atexit._ncallbacks()  # type: ignore[attr-defined]
    return Program(registering, observe=lambda: atexit._ncallbacks() - before)  # type: ignore[attr-defined]


@program
def finalizer_run(world: World) -> Program:
    class Noisy:
        def __del__(self) -> None:
            world.log.append("gone")

    def making(x: Any) -> Any:
        noisy = Noisy()
        del noisy
        return x * 2 + 1

    return Program(making)


@program
def context_manager_entered(world: World) -> Program:
    class Noisy:
        def __enter__(self) -> None:
            world.log.append("enter")

        def __exit__(self, *_: object) -> None:
            world.log.append("exit")

    def within(x: Any) -> Any:
        with Noisy():
            return x * 2 + 1

    return Program(within)


@program
def memoised_by_lru_cache(world: World) -> Program:
    @functools.lru_cache
    def table(size: int) -> torch.Tensor:
        world.log.append(size)
        return torch.arange(size).float()

    return Program(
        lambda x: x + table(x.shape[1]),
        table.cache_clear,
        lambda call: (numbers(call, 4, 3 + call % 3),),
        observe=lambda: table.cache_info(),
    )


@program
def object_made_at_each_call(world: World) -> Program:
    class Thing:
        made = 0

        def __init__(self) -> None:
            Thing.made += 1

    def making(x: Any) -> Any:
        Thing()
        return x * Thing.made

    return Program(making, lambda: setattr(Thing, "made", 100), observe=lambda: Thing.made)


@program
def moving_average_in_place(world: World) -> Program:
    average = torch.zeros(5)

    def updating(x: Any) -> Any:
        average.mul_(0.5).add_(x.sum(0), alpha=0.5)
        return x + average

    return Program(updating, average.zero_, observe=lambda: average)


@program
def step_counted_in_tensor(world: World) -> Program:
    step = torch.zeros((), dtype=torch.int64)

    def updating(x: Any) -> Any:
        step.add_(1)
        return x * step

    return Program(updating, lambda: step.fill_(50), observe=lambda: step)
