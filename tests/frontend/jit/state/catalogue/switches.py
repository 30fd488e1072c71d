"""Switches of PyTorch that a function reads or runs under."""

from __future__ import annotations

from typing import Any

import torch

from tests.frontend.jit.state.worlds import Program, World, numbers, program, restored


@program
def default_dtype(world: World) -> Program:
    world.enter(restored(torch.get_default_dtype, torch.set_default_dtype))
    return Program(lambda x: x + torch.ones(5), lambda: torch.set_default_dtype(torch.float64))


@program
def default_dtype_read(world: World) -> Program:
    world.enter(restored(torch.get_default_dtype, torch.set_default_dtype))
    return Program(
        lambda x: x * 2 if torch.get_default_dtype() is torch.float32 else x * 3,
        lambda: torch.set_default_dtype(torch.float64),
    )


@program
def default_device(world: World) -> Program:
    world.at_end(torch.set_default_device, None)
    return Program(lambda x: torch.ones(3) * 2, lambda: torch.set_default_device("meta"))


@program
def number_of_threads(world: World) -> Program:
    before = torch.get_num_threads()
    world.at_end(torch.set_num_threads, before)
    return Program(lambda x: x * torch.get_num_threads() + 1, lambda: torch.set_num_threads(before + 1))


@program
def deterministic_algorithms(world: World) -> Program:
    world.at_end(torch.use_deterministic_algorithms, False)
    return Program(
        lambda x: x * 3 if torch.are_deterministic_algorithms_enabled() else x * 2,
        lambda: torch.use_deterministic_algorithms(True),
    )


@program
def empty_memory_filled_when_deterministic(world: World) -> Program:
    world.at_end(torch.use_deterministic_algorithms, False)

    def are_all_nan(result: Any) -> bool:
        return torch.are_deterministic_algorithms_enabled() and bool(result.isnan().all())

    return Program(lambda x: torch.empty(5), lambda: torch.use_deterministic_algorithms(True), view=are_all_nan)


@program
def matmul_precision(world: World) -> Program:
    world.enter(restored(torch.get_float32_matmul_precision, torch.set_float32_matmul_precision))
    return Program(
        lambda x: x * 2 if torch.get_float32_matmul_precision() == "highest" else x * 3,
        lambda: torch.set_float32_matmul_precision("high"),
    )


@program
def flag_of_a_backend(world: World) -> Program:
    world.at_end(torch._C._set_mkldnn_enabled, torch._C._get_mkldnn_enabled())
    return Program(
        lambda x: x * 2 if torch._C._get_mkldnn_enabled() else x * 3, lambda: torch._C._set_mkldnn_enabled(False)
    )


@program
def gradient_mode_read(world: World) -> Program:
    world.enter(restored(torch.is_grad_enabled, torch.set_grad_enabled))
    return Program(lambda x: x * 2 if torch.is_grad_enabled() else x * 3, lambda: torch.set_grad_enabled(False))


@program
def gradient_mode_around(world: World) -> Program:
    world.enter(restored(torch.is_grad_enabled, torch.set_grad_enabled))
    return Program(
        lambda x: (x * 2 + 1).relu(),
        lambda: torch.set_grad_enabled(False),
        lambda call: (numbers(call, 4, 5).requires_grad_(),),
    )


@program
def gradient_mode_left_changed(world: World) -> Program:
    """The function itself switches gradients off, and does not switch them on again."""
    world.enter(restored(torch.is_grad_enabled, torch.set_grad_enabled))

    def switching(x: Any) -> Any:
        result = x * 2
        torch.set_grad_enabled(False)
        return result

    return Program(
        switching,
        lambda: torch.set_grad_enabled(True),
        lambda call: (numbers(call, 4, 5).requires_grad_(),),
        observe=torch.is_grad_enabled,
    )


@program
def inference_mode_around(world: World) -> Program:
    modes = [False]

    def call(run: Any) -> Any:
        with torch.inference_mode(modes[0]):
            return run()

    return Program(
        lambda x: x * 2 + 1,
        lambda: modes.__setitem__(0, True),
        call=call,
        view=lambda result: (result.clone(), result.is_inference()),
    )


@program
def inference_mode_read(world: World) -> Program:
    modes = [False]

    def call(run: Any) -> Any:
        with torch.inference_mode(modes[0]):
            return run()

    return Program(
        lambda x: x * 2 if torch.is_inference_mode_enabled() else x * 3,
        lambda: modes.__setitem__(0, True),
        call=call,
        view=lambda result: result.clone(),
    )


@program
def autocast_around(world: World) -> Program:
    modes = [False]

    def call(run: Any) -> Any:
        with torch.autocast("cpu", enabled=modes[0]):
            return run()

    return Program(
        lambda x: torch.mm(x, x.t()) + 1,
        lambda: modes.__setitem__(0, True),
        call=call,
    )


@program
def autocast_inside(world: World) -> Program:
    modes = [False]

    def product(x: Any) -> Any:
        with torch.autocast("cpu", enabled=modes[0]):
            return torch.mm(x, x.t())

    return Program(product, lambda: modes.__setitem__(0, True))


@program
def autocast_type(world: World) -> Program:
    types = [torch.bfloat16]

    def call(run: Any) -> Any:
        with torch.autocast("cpu", dtype=types[0]):
            return run()

    return Program(lambda x: torch.mm(x, x.t()), lambda: types.__setitem__(0, torch.float16), call=call)


@program
def autocast_state_read(world: World) -> Program:
    modes = [False]

    def call(run: Any) -> Any:
        with torch.autocast("cpu", enabled=modes[0]):
            return run()

    return Program(
        lambda x: x * 3 if torch.is_autocast_enabled("cpu") else x * 2, lambda: modes.__setitem__(0, True), call=call
    )


@program
def anomaly_mode_read(world: World) -> Program:
    world.at_end(torch.autograd.set_detect_anomaly, False)
    return Program(
        lambda x: x * 3 if torch.is_anomaly_enabled() else x * 2,
        lambda: torch.autograd.set_detect_anomaly(True),
    )


@program
def function_mode_around(world: World) -> Program:
    class Doubling(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            world.log.append(getattr(function, "__name__", "?"))
            return function(*args, **(kwargs or {}))

    modes: list[Any] = []

    def call(run: Any) -> Any:
        if not modes:
            return run()
        with modes[0]:
            return run()

    return Program(lambda x: torch.tanh(x) + 1, lambda: modes.append(Doubling()), call=call)


@program
def print_options(world: World) -> Program:
    world.at_end(lambda: torch.set_printoptions(profile="default"))
    return Program(lambda x: (x * 2, str(x[0] / 3)), lambda: torch.set_printoptions(precision=1))


@program
def denormals_flushed(world: World) -> Program:
    world.at_end(torch.set_flush_denormal, False)
    return Program(
        lambda x: x * 1e-30,
        lambda: torch.set_flush_denormal(True),
        lambda call: (torch.full((3, 4), 1e-10),),
        view=lambda result: bool(result.view(torch.int32).any()),  # comparing numbers would flush them too
    )
