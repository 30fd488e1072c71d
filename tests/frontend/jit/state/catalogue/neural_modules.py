"""Modules of `torch.nn` whose hooks, modes, parts and tensors change between calls."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn.modules import module as module_globals

from tests.frontend.jit.state.worlds import Program, World, numbers, program


def _filled(module: nn.Module) -> Any:
    """The module with exact numbers, and without gradients."""
    with torch.no_grad():
        for index, parameter in enumerate(module.parameters()):
            parameter.copy_(numbers(index, *parameter.shape))
    return module.requires_grad_(False)


def _layers() -> Any:
    return _filled(nn.Sequential(nn.Linear(5, 5), nn.ReLU(), nn.Linear(5, 5)))


@program
def forward_hook_added(world: World) -> Program:
    layers = _layers()

    def hook(module: Any, given: Any, result: Any) -> Any:
        world.log.append("hook")
        return result * 2

    return Program(layers, lambda: layers[0].register_forward_hook(hook))


@program
def forward_hook_removed(world: World) -> Program:
    layers = _layers()
    handle = layers[0].register_forward_hook(lambda module, given, result: result * 2)
    return Program(layers, handle.remove)


@program
def forward_hook_that_counts(world: World) -> Program:
    layers = _layers()
    layers[0].register_forward_hook(lambda module, given, result: world.log.append(tuple(result.shape)))
    return Program(layers)


@program
def forward_pre_hook_added(world: World) -> Program:
    layers = _layers()
    return Program(layers, lambda: layers[2].register_forward_pre_hook(lambda module, given: (given[0] * 2,)))


@program
def hook_on_the_outer_module(world: World) -> Program:
    layers = _layers()
    return Program(
        lambda x: layers(x) + 1, lambda: layers.register_forward_hook(lambda module, given, result: result * 2)
    )


@program
def global_hook_added(world: World) -> Program:
    layers = _layers()

    def change() -> None:
        handle = module_globals.register_module_forward_hook(lambda module, given, result: result * 2)
        world.at_end(handle.remove)

    return Program(layers, change)


@program
def hooks_dictionary_written(world: World) -> Program:
    layers = _layers()
    hook = lambda module, given, result: result * 2
    return Program(layers, lambda: layers[0]._forward_hooks.update({10_000: hook}))


@program
def evaluation_mode(world: World) -> Program:
    module = _filled(nn.Sequential(nn.Linear(5, 5), nn.BatchNorm1d(5))).train()
    return Program(module, module.eval, observe=lambda: list(module.state_dict().values()))


@program
def training_mode_with_dropout(world: World) -> Program:
    module = _filled(nn.Sequential(nn.Linear(5, 5), nn.Dropout(0.5))).eval()

    def arguments(call: int) -> tuple[Any, ...]:
        torch.manual_seed(call)
        return (numbers(call, 4, 5),)

    return Program(module, module.train, arguments)


@program
def training_flag_of_a_part(world: World) -> Program:
    module = _filled(nn.Sequential(nn.Linear(5, 5), nn.BatchNorm1d(5))).eval()
    return Program(module, lambda: module[1].train(), observe=lambda: list(module.state_dict().values()))


@program
def training_flag_read_by_user(world: World) -> Program:
    layers = _layers().eval()
    return Program(lambda x: layers(x) * 2 if layers.training else layers(x) * 3, layers.train)


@program
def part_replaced(world: World) -> Program:
    layers = _layers()
    return Program(layers, lambda: layers.__setitem__(1, nn.Tanh()))


@program
def part_appended(world: World) -> Program:
    layers = _layers()
    return Program(layers, lambda: layers.append(nn.Tanh()))


@program
def parts_reordered(world: World) -> Program:
    layers = _layers()

    def change() -> None:
        layers._modules["0"], layers._modules["2"] = layers._modules["2"], layers._modules["0"]

    return Program(layers, change)


@program
def parameter_replaced(world: World) -> Program:
    layers = _layers()
    return Program(layers, lambda: setattr(layers[0], "weight", nn.Parameter(numbers(9, 5, 5), requires_grad=False)))


@program
def parameter_data_replaced(world: World) -> Program:
    layers = _layers()
    return Program(layers, lambda: setattr(layers[0].weight, "data", numbers(9, 5, 5)))


@program
def parameter_written(world: World) -> Program:
    layers = _layers()
    return Program(layers, lambda: layers[0].weight.mul_(2))


@program
def parameter_written_through_numpy(world: World) -> Program:
    layers = _layers()
    return Program(layers, lambda: layers[0].weight.numpy().fill(2))


@program
def bias_removed(world: World) -> Program:
    layers = _layers()
    return Program(layers, lambda: setattr(layers[0], "bias", None))


@program
def state_loaded(world: World) -> Program:
    layers = _layers()
    other = {name: value * 2 for name, value in layers.state_dict().items()}
    return Program(layers, lambda: layers.load_state_dict(other))


@program
def state_assigned(world: World) -> Program:
    layers = _layers()
    other = {name: value * 2 for name, value in layers.state_dict().items()}
    return Program(layers, lambda: layers.load_state_dict(other, assign=True))


@program
def module_made_double(world: World) -> Program:
    layers = _layers()
    return Program(lambda x: layers(x.to(layers[0].weight.dtype)), layers.double)


@program
def buffer_changed(world: World) -> Program:
    module = _filled(nn.BatchNorm1d(5)).eval()
    return Program(module, lambda: module.running_mean.add_(2))


@program
def buffer_counted_in_forward(world: World) -> Program:
    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("seen", torch.zeros(5))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.seen += x.sum(0)
            return x + self.seen

    module: Any = Counting()
    return Program(module, lambda: module.seen.fill_(100), observe=lambda: module.seen)


@program
def attribute_counted_in_forward(world: World) -> Program:
    class Counting(nn.Module):
        calls = 0

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.calls += 1
            return x * self.calls

    module = Counting()
    return Program(lambda x: module(x) + 1, observe=lambda: module.calls)


@program
def forward_replaced_on_instance(world: World) -> Program:
    layers = _layers()
    return Program(lambda x: layers(x) + 1, lambda: setattr(layers[0], "forward", lambda x: x * 3))


@program
def gradients_switched_on(world: World) -> Program:
    layers = _layers()
    return Program(layers, lambda: layers[0].weight.requires_grad_(True))


@program
def gradients_of_argument_switched_on(world: World) -> Program:
    needs = [False]
    return Program(
        lambda x: (x * 2).relu(),
        lambda: needs.__setitem__(0, True),
        lambda call: (numbers(call, 4, 5).requires_grad_(needs[0]),),
    )


@program
def gradient_accumulates(world: World) -> Program:
    weight: Any = nn.Parameter(numbers(1, 5))

    def step(x: Any) -> Any:
        loss = (x * weight).sum()
        loss.backward()
        return loss.detach()

    return Program(step, lambda: weight.grad.fill_(100), observe=lambda: weight.grad)


@program
def training_step_by_optimizer(world: World) -> Program:
    weight = nn.Parameter(numbers(1, 5))
    optimizer = torch.optim.SGD([weight], lr=0.25)

    def step(x: Any) -> Any:
        optimizer.zero_grad()
        loss = (x * weight).sum()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return Program(step, lambda: optimizer.param_groups[0].update(lr=0.5), observe=lambda: weight)


@program
def loss_scaled_by_scheduler(world: World) -> Program:
    weight = nn.Parameter(numbers(1, 5))
    optimizer = torch.optim.SGD([weight], lr=0.25)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: 0.5**epoch)

    def step(x: Any) -> Any:
        return x * scheduler.get_last_lr()[0] + 1

    def change() -> None:
        optimizer.step()
        scheduler.step()

    return Program(step, change)


@program
def class_attribute_of_module(world: World) -> Program:
    class Scaled(nn.Module):
        scale = 2.0

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.scale

    return Program(Scaled(), lambda: setattr(Scaled, "scale", 3.0))


@program
def parametrization_registered(world: World) -> Program:
    class Doubled(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * 2

    layers = _layers()
    register = nn.utils.parametrize.register_parametrization
    return Program(lambda x: layers(x) + 1, lambda: register(layers[0], "weight", Doubled()))


@program
def epsilon_of_normalization(world: World) -> Program:
    module = _filled(nn.LayerNorm(5))
    return Program(module, lambda: setattr(module, "eps", 10.0))


@program
def gradient_hook_on_result(world: World) -> Program:
    def hooked(x: Any) -> Any:
        result = x * 2
        result.register_hook(lambda gradient: world.log.append(gradient.sum().item()))
        return result.sum()

    return Program(
        hooked,
        arguments=lambda call: (numbers(call, 4, 5).requires_grad_(),),
        after=lambda result: result.backward(),
    )
