"""How functions are called: under profilers, from threads, from themselves, as generators and coroutines."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import cProfile
import itertools
import random
import sys
import threading
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch

from tests.frontend.jit.state.worlds import Program, World, numbers, program


def _counting(world: World) -> tuple[Any, Any]:
    """A function with an effect and a reading, and how the reading changes."""
    settings = types.SimpleNamespace(scale=2.0)

    def counting(x: Any) -> Any:
        world.log.append("called")
        return x * settings.scale

    return counting, lambda: setattr(settings, "scale", 3.0)


@contextlib.contextmanager
def _profile(function: Any) -> Iterator[None]:
    before = sys.getprofile()
    sys.setprofile(function)
    try:
        yield
    finally:
        sys.setprofile(before)


@contextlib.contextmanager
def _trace(function: Any) -> Iterator[None]:
    before = sys.gettrace()
    sys.settrace(function)
    try:
        yield
    finally:
        sys.settrace(before)


def _within(context: Callable[[], Any]) -> Callable[[Callable[[], Any]], Any]:
    def call(run: Callable[[], Any]) -> Any:
        with context():
            return run()

    return call


@program
def under_cprofile(world: World) -> Program:
    function, change = _counting(world)
    profiler = cProfile.Profile()
    return Program(function, change, call=lambda run: profiler.runcall(run))


@program
def printing_under_cprofile(world: World) -> Program:
    profiler = cProfile.Profile()

    def printing(x: Any) -> Any:
        print("called")
        return x * 2

    return Program(printing, call=lambda run: profiler.runcall(run))


@program
def iterator_under_cprofile(world: World) -> Program:
    profiler, source = cProfile.Profile(), itertools.count(1)
    return Program(lambda x: x * next(source), lambda: next(source), call=lambda run: profiler.runcall(run))


@program
def context_variable_under_cprofile(world: World) -> Program:
    profiler = cProfile.Profile()
    scale: contextvars.ContextVar[float] = contextvars.ContextVar("scale", default=2.0)
    return Program(lambda x: x * scale.get(), lambda: scale.set(3.0), call=lambda run: profiler.runcall(run))


@program
def random_number_under_cprofile(world: World) -> Program:
    profiler, source = cProfile.Profile(), random.Random(3)
    return Program(lambda x: x * source.randint(1, 9), call=lambda run: profiler.runcall(run))


@program
def method_replaced_under_cprofile(world: World) -> Program:
    class Scaling:
        def apply(self, x: Any) -> Any:
            return x * 2

    profiler, scaling = cProfile.Profile(), Scaling()
    return Program(
        lambda x: scaling.apply(x) + 1,
        lambda: setattr(Scaling, "apply", lambda self, x: x * 3),
        call=lambda run: profiler.runcall(run),
    )


@program
def under_a_profile_function(world: World) -> Program:
    function, change = _counting(world)
    return Program(function, change, call=_within(lambda: _profile(lambda *_: None)))


@program
def under_a_trace_function(world: World) -> Program:
    function, change = _counting(world)
    return Program(function, change, call=_within(lambda: _trace(lambda *_: None)))


@program
def under_torchs_profiler(world: World) -> Program:
    function, change = _counting(world)
    calls = iter(range(100))

    def call(run: Callable[[], Any]) -> Any:
        if next(calls) not in (3, 9, 15):
            return run()
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]):
            return run()

    return Program(function, change, call=call)


@program
def only_the_first_calls_profiled(world: World) -> Program:
    function, change = _counting(world)
    calls = iter(range(100))

    def call(run: Callable[[], Any]) -> Any:
        if next(calls) > 4:
            return run()
        with _profile(lambda *_: None):
            return run()

    return Program(function, change, call=call)


def _in_thread(run: Callable[[], Any]) -> Any:
    found: list[Any] = []

    def target() -> None:
        try:
            found.append(run())
        except Exception as error:
            found.append(error)

    thread = threading.Thread(target=target)
    thread.start()
    thread.join()
    if isinstance(found[0], Exception):
        raise found[0]
    return found[0]


@program
def from_a_thread(world: World) -> Program:
    function, change = _counting(world)
    return Program(function, change, call=_in_thread)


@program
def from_a_thread_with_its_own_locals(world: World) -> Program:
    local: Any = threading.local()
    local.scale = 2.0
    threads: list[bool] = []

    def scaled(x: Any) -> Any:
        return x * getattr(local, "scale", 5.0)

    return Program(scaled, lambda: threads.append(True), call=lambda run: _in_thread(run) if threads else run())


@program
def from_a_thread_with_its_own_gradient_mode(world: World) -> Program:
    world.enter(torch.no_grad())
    threads: list[bool] = []
    return Program(
        lambda x: x * 2 if torch.is_grad_enabled() else x * 3,
        lambda: threads.append(True),
        call=lambda run: _in_thread(run) if threads else run(),
    )


@program
def from_two_threads_at_once(world: World) -> Program:
    barrier = threading.Barrier(2)

    def call(run: Callable[[], Any]) -> Any:
        found: list[Any] = []

        def target() -> None:
            barrier.wait()
            found.append(run())

        threads = [threading.Thread(target=target) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return found

    function, change = _counting(world)
    return Program(function, change, call=call)


@program
def changed_by_another_thread(world: World) -> Program:
    function, change = _counting(world)
    return Program(function, lambda: _in_thread(change))


@program
def recursion_through_the_compiled_function(world: World) -> Program:
    def recursive(x: Any, depth: int) -> Any:
        world.log.append(depth)
        return x if depth == 0 else world.compiled(x * 2, depth - 1) + 1

    return Program(recursive, arguments=lambda call: (numbers(call, 4), call % 4))


@program
def recursion_in_python(world: World) -> Program:
    factors = [2.0]

    def recursive(x: Any, depth: int) -> Any:
        return x if depth == 0 else recursive(x * factors[0], depth - 1) + 1

    return Program(recursive, lambda: factors.__setitem__(0, 3.0), lambda call: (numbers(call, 4), 1 + call % 3))


@program
def compiled_inside_compiled(world: World) -> Program:
    function, change = _counting(world)
    inner = world.compile(function)
    return Program(lambda x: inner(x + 1) * 2, change)


@program
def compiled_inside_a_branch(world: World) -> Program:
    settings = types.SimpleNamespace(scale=2.0)
    inner = world.compile(lambda x: x * settings.scale)
    return Program(lambda x: inner(x) + 1 if x[0, 0] > 0 else inner(x * 2), lambda: setattr(settings, "scale", 3.0))


@program
def compiled_while_it_runs(world: World) -> Program:
    settings = types.SimpleNamespace(scale=2.0)
    return Program(
        lambda x: world.compile(lambda y: y * settings.scale)(x) + 1, lambda: setattr(settings, "scale", 3.0)
    )


@program
def compiled_method_of_two_objects(world: World) -> Program:
    class Scaling:
        def __init__(self, scale: float) -> None:
            self.scale = scale

        def apply(self, x: Any) -> Any:
            world.log.append(self.scale)
            return x * self.scale

    class_: Any = Scaling
    class_.apply = world.compile(Scaling.apply)
    objects = [Scaling(2.0), Scaling(3.0)]
    calls = iter(range(100))
    return Program(lambda x: objects[next(calls) % 2].apply(x) + 1, lambda: setattr(objects[0], "scale", 5.0))


@program
def generator_function(world: World) -> Program:
    settings = types.SimpleNamespace(scale=2.0)

    def generating(x: Any) -> Any:
        for index in range(3):
            world.log.append(index)
            x = x * settings.scale
            yield x + index

    return Program(generating, lambda: setattr(settings, "scale", 3.0), view=list)


@program
def generator_changed_between_its_values(world: World) -> Program:
    settings = types.SimpleNamespace(scale=2.0)

    def generating(x: Any) -> Any:
        for _ in range(3):
            yield x * settings.scale

    def view(result: Any) -> Any:
        found = []
        for value in result:
            settings.scale += 1
            found.append(value)
        return found

    return Program(generating, view=view)


@program
def coroutine_function(world: World) -> Program:
    settings = types.SimpleNamespace(scale=2.0)

    async def awaiting(x: Any) -> Any:
        world.log.append("before")
        await asyncio.sleep(0)
        world.log.append("after")
        return x * settings.scale

    return Program(awaiting, lambda: setattr(settings, "scale", 3.0), view=_awaited)


def _awaited(coroutine: Any) -> Any:
    async def waiting() -> Any:
        return await coroutine

    return asyncio.run(waiting())


@program
def generator_expression_returned(world: World) -> Program:
    factors = [2.0, 3.0]
    return Program(lambda x: (x * factor for factor in factors), lambda: factors.append(5.0), view=list)


@program
def lazy_closure_returned(world: World) -> Program:
    settings = types.SimpleNamespace(scale=2.0)

    def view(result: Any) -> Any:
        settings.scale += 1
        return result(1.0)

    return Program(lambda x: lambda y: x * 2 * settings.scale + y, view=view)


@program
def higher_order_gradient_inside(world: World) -> Program:
    settings = types.SimpleNamespace(scale=2.0)

    def gradient(x: Any) -> Any:
        x = x.detach().requires_grad_()
        (result,) = torch.autograd.grad((x * x * settings.scale).sum(), x)
        return result

    return Program(gradient, lambda: setattr(settings, "scale", 3.0))


@program
def vmap_inside(world: World) -> Program:
    settings = types.SimpleNamespace(scale=2.0)
    return Program(
        lambda x: torch.vmap(lambda row: row * settings.scale + row.sum())(x), lambda: setattr(settings, "scale", 3.0)
    )


@program
def vmap_around(world: World) -> Program:
    function, change = _counting(world)
    around: list[bool] = []

    def arguments(call: int) -> tuple[Any, ...]:
        return (numbers(call, 4, 5),)

    def outer(x: Any) -> Any:
        return torch.vmap(world.compiled_inner)(x) if around else world.compiled_inner(x)  # type: ignore[attr-defined]

    world.compiled_inner = world.compile(function)  # type: ignore[attr-defined]
    return Program(outer, lambda: (change(), around.append(True)), arguments)


@program
def wrapped_decorator_changes(world: World) -> Program:
    settings = types.SimpleNamespace(scale=2.0)

    def decorated(function: Any) -> Any:
        def wrapper(x: Any) -> Any:
            world.log.append("wrapper")
            return function(x) * settings.scale

        return wrapper

    return Program(decorated(lambda x: x + 1), lambda: setattr(settings, "scale", 3.0))


@program
def no_grad_decorator(world: World) -> Program:
    settings = types.SimpleNamespace(scale=2.0)
    return Program(
        torch.no_grad()(lambda x: x * settings.scale),
        lambda: setattr(settings, "scale", 3.0),
        lambda call: (numbers(call, 4).requires_grad_(),),
    )


@program
def callable_object(world: World) -> Program:
    class Scaling:
        scale = 2.0

        def __call__(self, x: Any) -> Any:
            return x * self.scale + 1

    scaling = Scaling()
    return Program(scaling, lambda: setattr(scaling, "scale", 3.0))


@program
def bound_method_given_to_jit(world: World) -> Program:
    class Scaling:
        scale = 2.0

        def apply(self, x: Any) -> Any:
            return x * self.scale + 1

    scaling = Scaling()
    return Program(scaling.apply, lambda: setattr(scaling, "scale", 3.0))
