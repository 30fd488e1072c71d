"""Random operations of PyTorch: with a seed they give eager's numbers, and leave generators as eager leaves them."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from tests.frontend.jit.state.worlds import Program, World, numbers, program


def _seeded(world: World) -> None:
    world.enter(torch.random.fork_rng(devices=[]))
    torch.manual_seed(3)


def _state() -> Any:
    return torch.get_rng_state()


@program
def dropout_with_a_seed(world: World) -> Program:
    _seeded(world)
    return Program(lambda x: F.dropout(x, 0.5) + 1, lambda: torch.manual_seed(5), observe=_state)


@program
def normal_numbers_with_a_seed(world: World) -> Program:
    _seeded(world)
    return Program(lambda x: x + torch.randn_like(x), lambda: torch.manual_seed(5), observe=_state)


@program
def integers_and_permutation_with_a_seed(world: World) -> Program:
    _seeded(world)
    return Program(
        lambda x: x[torch.randperm(4)] + torch.randint(0, 9, (5,)), lambda: torch.manual_seed(5), observe=_state
    )


@program
def multinomial_with_a_seed(world: World) -> Program:
    _seeded(world)
    return Program(
        lambda x: torch.multinomial(torch.softmax(x, -1), 1) + 1, lambda: torch.manual_seed(5), observe=_state
    )


@program
def seed_set_inside(world: World) -> Program:
    _seeded(world)
    seeds = [1]

    def seeding(x: Any) -> Any:
        torch.manual_seed(seeds[0])
        return x + torch.rand(5)

    return Program(seeding, lambda: seeds.__setitem__(0, 2), observe=_state)


@program
def state_saved_and_restored_inside(world: World) -> Program:
    _seeded(world)

    def drawing(x: Any) -> Any:
        before = torch.get_rng_state()
        first = torch.rand(5)
        torch.set_rng_state(before)
        return x + first - torch.rand(5)

    return Program(drawing, lambda: torch.manual_seed(5), observe=_state)


@program
def random_numbers_of_a_forked_generator(world: World) -> Program:
    _seeded(world)

    def drawing(x: Any) -> Any:
        with torch.random.fork_rng(devices=[]):
            return x + torch.rand(5)

    return Program(drawing, lambda: torch.manual_seed(5), observe=_state)


@program
def generator_given(world: World) -> Program:
    generator = torch.Generator().manual_seed(3)
    return Program(
        lambda x, generator: x + torch.rand(5, generator=generator),
        lambda: generator.manual_seed(5),
        lambda call: (numbers(call, 4, 5), generator),
        observe=generator.get_state,
    )


@program
def generator_closed_over(world: World) -> Program:
    generator = torch.Generator().manual_seed(3)
    return Program(
        lambda x: x + torch.rand(5, generator=generator), lambda: generator.manual_seed(5), observe=generator.get_state
    )


@program
def generator_replaced(world: World) -> Program:
    holder = [torch.Generator().manual_seed(3)]
    return Program(
        lambda x: x + torch.rand(5, generator=holder[0]),
        lambda: holder.__setitem__(0, torch.Generator().manual_seed(5)),
        observe=lambda: holder[0].get_state(),
    )


@program
def seed_read(world: World) -> Program:
    _seeded(world)
    return Program(lambda x: x * torch.initial_seed(), lambda: torch.manual_seed(5))


@program
def random_write_in_place(world: World) -> Program:
    _seeded(world)
    return Program(lambda x: x.bernoulli_(0.5) + 1, lambda: torch.manual_seed(5), observe=_state)


@program
def draws_that_depend_on_values(world: World) -> Program:
    _seeded(world)

    def drawing(x: Any) -> Any:
        if x[0, 0] > 0:
            x = x + torch.rand(5)
        return x * torch.rand(5)

    return Program(drawing, lambda: torch.manual_seed(5), observe=_state)


@program
def draw_without_a_use(world: World) -> Program:
    _seeded(world)

    def drawing(x: Any) -> Any:
        torch.rand(7)
        return x * 2

    return Program(drawing, lambda: torch.manual_seed(5), observe=_state)


@program
def dropout_probability_changed(world: World) -> Program:
    _seeded(world)
    module = torch.nn.Dropout(0.5)
    return Program(lambda x: module(x) + 1, lambda: setattr(module, "p", 0.9), observe=_state)
