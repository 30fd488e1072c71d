"""Programs whose way depends on values, and programs that raise."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from tests.frontend.jit.state.worlds import Program, World, numbers, program


def _rising(call: int) -> tuple[Any, ...]:
    """Tensors whose sum changes its sign with time."""
    return (numbers(call, 4, 5) + (2.0 if call % 5 == 3 or call > 14 else -2.0),)


@program
def branch_on_sum(world: World) -> Program:
    return Program(lambda x: x * 2 if x.sum() > 0 else x * 3, arguments=_rising)


@program
def branch_never_seen_before_the_change(world: World) -> Program:
    sign = [1.0]

    def branching(x: Any) -> Any:
        if x.sum() > 0:
            return x * 2
        world.log.append("negative")
        return x * 3

    return Program(
        branching, lambda: sign.__setitem__(0, -1.0), lambda call: ((numbers(call, 4, 5).abs() + 1) * sign[0],)
    )


@program
def branch_on_item(world: World) -> Program:
    def branching(x: Any) -> Any:
        value = x.sum().item()
        return (x * value, value)

    return Program(branching, arguments=_rising)


@program
def branch_on_any(world: World) -> Program:
    return Program(lambda x: x * 2 if (x > 4).any() else x - 1, arguments=_rising)


@program
def branch_after_a_write(world: World) -> Program:
    def branching(x: Any) -> Any:
        x.add_(1)
        if x.sum() > 0:
            x.mul_(2)
        return x + 1

    return Program(branching, arguments=_rising)


@program
def loop_until_small(world: World) -> Program:
    def looping(x: Any) -> Any:
        rounds = 0
        while x.abs().max() > 1:
            x = x / 2
            rounds += 1
        return x, rounds

    return Program(looping, arguments=lambda call: (numbers(call, 4, 5) * 2 ** (call % 5),))


@program
def loop_over_a_value(world: World) -> Program:
    def looping(x: Any, count: Any) -> Any:
        for index in range(int(count)):
            x = x + index
        return x

    return Program(looping, arguments=lambda call: (numbers(call, 4, 5), torch.tensor(call % 4)))


@program
def early_return(world: World) -> Program:
    def returning(x: Any) -> Any:
        for factor in (1.0, 2.0, 4.0, 8.0):
            if (x * factor).max() >= 8:
                return x * factor
        return x

    return Program(returning, arguments=lambda call: (numbers(call, 4, 5) + call % 4,))


@program
def boolean_mask(world: World) -> Program:
    return Program(lambda x: x[x > 0] * 2)


@program
def indices_of_nonzero(world: World) -> Program:
    return Program(lambda x: x.nonzero() * 2, arguments=_rising)


@program
def unique_values(world: World) -> Program:
    return Program(lambda x: x.unique() + 1, arguments=lambda call: (numbers(call, call % 4 + 1, 2),))


@program
def list_of_values(world: World) -> Program:
    return Program(lambda x: ((x * 2).tolist(), x + 1))


@program
def numpy_in_the_middle(world: World) -> Program:
    return Program(lambda x: torch.from_numpy((x * 2).numpy() + 1) * 3)


@program
def value_in_a_text(world: World) -> Program:
    return Program(lambda x: (x * 2, f"{x.sum():.1f}", repr(x[0] * 2)))


@program
def tensor_as_index(world: World) -> Program:
    return Program(lambda x, i: x[i] * 2, arguments=lambda call: (numbers(call, 4, 5), torch.tensor(call % 4)))


@program
def index_error_caught(world: World) -> Program:
    def catching(x: Any, i: Any) -> Any:
        try:
            return x[i] * 2
        except IndexError:
            world.log.append("too far")
            return x * 3

    return Program(
        catching, arguments=lambda call: (numbers(call, 4, 5), torch.tensor([0, 9 if call in (7, 15) else 1]))
    )


@program
def index_error_raised(world: World) -> Program:
    return Program(
        lambda x, i: x.index_select(0, i) * 2,
        arguments=lambda call: (numbers(call, 4, 5), torch.tensor([0, 9 if call in (7, 15) else 1])),
    )


@program
def embedding_out_of_range(world: World) -> Program:
    table = numbers(1, 6, 3)

    def looking_up(i: Any) -> Any:
        try:
            return F.embedding(i, table) * 2
        except IndexError:
            return table * 3

    return Program(looking_up, arguments=lambda call: (torch.tensor([0, 6 if call in (7, 15) else call % 6]),))


@program
def shape_error_caught(world: World) -> Program:
    def catching(x: Any, y: Any) -> Any:
        try:
            return x + y
        except RuntimeError:
            return x * 3

    return Program(
        catching, arguments=lambda call: (numbers(call, 4, 5), numbers(call, 4, 3 if call in (7, 15) else 5))
    )


@program
def shape_error_raised(world: World) -> Program:
    return Program(
        lambda x, y: x @ y + 1,
        arguments=lambda call: (numbers(call, 4, 5), numbers(call, 4 if call in (7, 15) else 5, 3)),
    )


@program
def error_that_goes_away(world: World) -> Program:
    holder = {"y": numbers(1, 7)}
    return Program(lambda x: x + holder["y"], lambda: holder.update(y=numbers(1, 5)))


@program
def exception_after_a_write(world: World) -> Program:
    limit = [100.0]

    def raising(x: Any) -> Any:
        x.mul_(2)
        x[0] = 1
        if limit[0] < 0:
            raise ValueError("limit")
        return x + 1

    return Program(raising, lambda: limit.__setitem__(0, -1.0))


@program
def exception_because_of_a_value_after_a_write(world: World) -> Program:
    def raising(x: Any) -> Any:
        x.mul_(2)
        if x.sum() > 0:
            raise ValueError("positive")
        x.add_(1)
        return x + 1

    return Program(raising, arguments=_rising)


@program
def exception_always(world: World) -> Program:
    def raising(x: Any) -> Any:
        world.log.append("called")
        x.add_(1)
        raise KeyError("always")

    return Program(raising)


@program
def exception_in_the_middle_of_effects(world: World) -> Program:
    def raising(x: Any) -> Any:
        world.log.append("first")
        y = x * 2
        if len(world.log) % 5 == 0:
            raise ValueError("every fifth")
        world.log.append("second")
        return y + 1

    return Program(raising)


@program
def finally_runs(world: World) -> Program:
    def trying(x: Any) -> Any:
        try:
            if x[0, 0].item() > 1:
                raise ValueError("large")
            return x * 2
        finally:
            world.log.append("finally")

    return Program(trying)


@program
def assertion_on_values(world: World) -> Program:
    def asserting(x: Any) -> Any:
        assert bool((x < 5).all())
        return x * 2

    return Program(asserting, arguments=lambda call: (numbers(call, 4, 5) + (9 if call in (7, 15) else 0),))


@program
def integer_division_by_zero(world: World) -> Program:
    def dividing(x: Any, y: Any) -> Any:
        try:
            return x // y
        except RuntimeError:
            return x * 3

    return Program(
        dividing,
        arguments=lambda call: (numbers(call, 5).long(), torch.tensor([1, 2, 3, 4, 0 if call in (7, 15) else 5])),
    )


@program
def cholesky_that_fails(world: World) -> Program:
    def factored(x: Any) -> Any:
        try:
            return torch.linalg.cholesky(x) * 2
        except RuntimeError:
            return x * 3

    return Program(factored, arguments=lambda call: (torch.eye(3) * (-1 if call in (7, 15) else 4),))


@program
def negative_slice_past_the_end(world: World) -> Program:
    return Program(lambda x: x[:, -3:] * 2 + 1, arguments=lambda call: (numbers(call, 2, 1 + call % 6),))


@program
def slice_that_reaches_the_end(world: World) -> Program:
    lengths = [100, 200, 300]
    return Program(
        lambda x: torch.tanh(x[:, :512]) * 2,
        lambda: lengths.__setitem__(slice(None), [600, 512, 513]),
        lambda call: (numbers(call, 4, lengths[call % 3]),),
    )


@program
def slice_with_a_step_past_the_end(world: World) -> Program:
    lengths = [5, 6, 7, 8]
    return Program(
        lambda x: x[2:10:3] * 2 + 1,
        lambda: lengths.__setitem__(slice(None), [11, 2, 30, 1]),
        lambda call: (numbers(call, lengths[call % 4], 2),),
    )


@program
def chunks_of_changing_lengths(world: World) -> Program:
    lengths = [8, 12, 16]
    return Program(
        lambda x: [part * 2 for part in x.chunk(4)],
        lambda: lengths.__setitem__(slice(None), [9, 3, 5]),
        lambda call: (numbers(call, lengths[call % 3], 2),),
    )


@program
def sizes_broadcast_later(world: World) -> Program:
    lengths = [3, 4, 5]
    return Program(
        lambda x, y: x * y + 1,
        lambda: lengths.__setitem__(slice(None), [1, 1, 1]),
        lambda call: (
            numbers(call, 4, lengths[call % 3]),
            numbers(call, 4, 5 if lengths[0] == 1 else lengths[call % 3]),
        ),
    )


@program
def length_zero(world: World) -> Program:
    lengths = [3, 4, 5]
    return Program(
        lambda x: (x * 2).sum(0) + x.mean(0),
        lambda: lengths.__setitem__(slice(None), [0, 1, 0]),
        lambda call: (numbers(call, lengths[call % 3], 5),),
    )


@program
def shape_read_into_numbers(world: World) -> Program:
    def scaled(x: Any) -> Any:
        rows, columns = x.shape
        return x * rows + columns if rows > columns else x / max(rows, 1)

    return Program(scaled, arguments=lambda call: (numbers(call, 2 + call % 5, 3 + call // 7),))


@program
def shape_read_as_scale(world: World) -> Program:
    return Program(
        lambda x: (x @ x.transpose(-1, -2)) / x.size(-1) ** 0.5, arguments=lambda call: (numbers(call, 2, 3 + call),)
    )


@program
def branch_on_number_of_dimensions(world: World) -> Program:
    return Program(
        lambda x: x.unsqueeze(0) * 2 if x.dim() == 2 else x * 3,
        arguments=lambda call: (numbers(call, *[2] * (1 + call % 4)),),
    )


@program
def reshape_by_length(world: World) -> Program:
    return Program(
        lambda x: x.view(x.shape[0], 2, x.shape[1] // 2).sum(1) + x.shape[1],
        arguments=lambda call: (numbers(call, 3, 2 * (1 + call % 5)),),
    )


@program
def positions_of_a_length(world: World) -> Program:
    return Program(lambda x: x + torch.arange(x.shape[1]) * 2, arguments=lambda call: (numbers(call, 3, 1 + call),))


@program
def causal_mask_of_a_length(world: World) -> Program:
    return Program(
        lambda x: x.masked_fill(torch.ones(x.shape[0], x.shape[0]).tril() == 0, -9.0),
        arguments=lambda call: (numbers(call, 2 + call % 6, 2 + call % 6),),
    )
