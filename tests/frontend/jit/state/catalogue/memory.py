"""Tensors that share memory: with numpy, with one another, with earlier results; and results that callers change."""

from __future__ import annotations

from typing import Any

import numpy
import torch

from tests.frontend.jit.state.worlds import Program, World, numbers, program


@program
def numpy_array_as_constant(world: World) -> Program:
    array = numpy.array([2.0, 3.0])
    return Program(lambda x: x * float(array[1]) + 1, lambda: array.__setitem__(1, 5.0))


@program
def whole_numpy_array_as_tensor(world: World) -> Program:
    array = numpy.arange(5, dtype=numpy.float32)
    return Program(lambda x: x + torch.tensor(array), lambda: array.fill(7))


@program
def numpy_view_as_constant(world: World) -> Program:
    array = numpy.arange(10, dtype=numpy.float32)
    view = array[::2]
    return Program(lambda x: x + torch.from_numpy(view), lambda: array.fill(7))


@program
def numpy_array_written_inside(world: World) -> Program:
    array = numpy.zeros(5, dtype=numpy.float32)
    shared = torch.from_numpy(array)

    def writing(x: Any) -> Any:
        before = x + shared
        array[:] += 1
        return before + shared

    return Program(writing, lambda: array.fill(0), observe=lambda: array)


@program
def overlapping_numpy_arrays_given(world: World) -> Program:
    def arguments(call: int) -> tuple[Any, ...]:
        array = numbers(call, 8).numpy()
        return torch.from_numpy(array[:6]), torch.from_numpy(array[2:])

    def writing(first: Any, second: Any) -> Any:
        first.add_(1)
        second.mul_(2)
        return first + second

    return Program(writing, arguments=arguments)


@program
def numpy_arrays_that_overlap_later(world: World) -> Program:
    overlaps = [False]

    def arguments(call: int) -> tuple[Any, ...]:
        array = numbers(call, 12).numpy()
        return torch.from_numpy(array[:6]), torch.from_numpy(array[3:9] if overlaps[0] else array[6:])

    def writing(first: Any, second: Any) -> Any:
        first.add_(1)
        return first + second * 2

    return Program(writing, lambda: overlaps.__setitem__(0, True), arguments)


@program
def arguments_that_overlap_later(world: World) -> Program:
    overlaps = [False]

    def arguments(call: int) -> tuple[Any, ...]:
        whole = numbers(call, 12)
        return whole[:6], whole[3:9] if overlaps[0] else whole[6:]

    def writing(first: Any, second: Any) -> Any:
        first.add_(1)
        second.mul_(2)
        return first + second

    return Program(writing, lambda: overlaps.__setitem__(0, True), arguments)


@program
def one_tensor_given_twice(world: World) -> Program:
    twice = [False]

    def arguments(call: int) -> tuple[Any, ...]:
        x = numbers(call, 6)
        return x, x if twice[0] else numbers(call + 1, 6)

    def writing(first: Any, second: Any) -> Any:
        first.add_(1)
        return first + second if first is second else first * second

    return Program(writing, lambda: twice.__setitem__(0, True), arguments)


@program
def argument_returned(world: World) -> Program:
    returned = [False]
    return Program(lambda x: x if returned[0] else x * 2, lambda: returned.__setitem__(0, True))


@program
def view_of_argument_returned(world: World) -> Program:
    return Program(lambda x: (x[1:], x.t(), x * 2), after=lambda result: result[0].zero_())


@program
def last_result_given(world: World) -> Program:
    last = [numbers(0, 4)]

    def after(result: Any) -> None:
        last[0] = result

    return Program(lambda x: (x * 3 + 1) % 11, arguments=lambda call: (last[0],), after=after)


@program
def last_result_given_and_written(world: World) -> Program:
    last = [numbers(0, 4)]

    def writing(x: Any) -> Any:
        x.add_(1)
        return x % 5

    return Program(writing, arguments=lambda call: (last[0],), after=lambda result: last.__setitem__(0, result))


@program
def last_result_beside_its_view(world: World) -> Program:
    last = [numbers(0, 6)]

    def writing(x: Any, y: Any) -> Any:
        x.add_(1)
        return (x.sum() + y.sum() + numbers(1, 6)) % 7

    return Program(
        writing, arguments=lambda call: (last[0], last[0][2:]), after=lambda result: last.__setitem__(0, result)
    )


@program
def results_written_by_caller(world: World) -> Program:
    return Program(lambda x: x * 2 + 1, after=lambda result: result.fill_(99))


@program
def results_of_constants_written_by_caller(world: World) -> Program:
    return Program(lambda x: torch.ones(3) * 2, after=lambda result: result.fill_(99))


@program
def state_returned_and_written_by_caller(world: World) -> Program:
    state = numbers(1, 4)
    return Program(lambda x: (x + state.sum(), state), after=lambda result: result[1].add_(1))


@program
def results_resized(world: World) -> Program:
    return Program(lambda x: x * 2 + 1, after=lambda result: result.resize_(6, 7).fill_(1))


@program
def storage_of_results_resized(world: World) -> Program:
    return Program(
        lambda x: x * 2 + 1,
        view=lambda result: result.clone(),
        after=lambda result: result.untyped_storage().resize_(0),
    )


@program
def results_as_output_of_another_size(world: World) -> Program:
    def after(result: Any) -> None:
        result.resize_(0)
        torch.add(numbers(0, 9), 1, out=result)

    return Program(lambda x: x * 2 + 1, after=after)


@program
def results_given_new_data(world: World) -> Program:
    return Program(lambda x: x * 2 + 1, after=lambda result: setattr(result, "data", numbers(0, 2)))


@program
def argument_resized_inside(world: World) -> Program:
    return Program(lambda x: x.resize_(2, 2) * 2 + 1)


@program
def argument_given_other_memory_inside(world: World) -> Program:
    def assigning(x: Any) -> Any:
        x.data = x * 2
        return x + 1

    return Program(assigning)


@program
def output_argument(world: World) -> Program:
    return Program(lambda x, out: torch.add(x, 1, out=out), arguments=lambda call: (numbers(call, 4), torch.zeros(4)))


@program
def view_written(world: World) -> Program:
    def writing(x: Any) -> Any:
        x[1:, ::2] *= 2
        x.t()[0].add_(1)
        return x + 1

    return Program(writing)


@program
def expanded_argument(world: World) -> Program:
    expands = [False]

    def arguments(call: int) -> tuple[Any, ...]:
        return (numbers(call, 1, 5).expand(4, 5) if expands[0] else numbers(call, 4, 5),)

    return Program(lambda x: x * 2 + x.sum(0), lambda: expands.__setitem__(0, True), arguments)


@program
def write_into_expanded_argument(world: World) -> Program:
    expands = [False]

    def arguments(call: int) -> tuple[Any, ...]:
        return (numbers(call, 1, 5).expand(4, 5) if expands[0] else numbers(call, 4, 5),)

    return Program(lambda x: x.add_(1) * 2, lambda: expands.__setitem__(0, True), arguments)


@program
def memory_shared_through_dlpack(world: World) -> Program:
    state = numbers(1, 5)
    other: Any = torch.from_dlpack(state)

    def writing(x: Any) -> Any:
        before = x + state
        other.add_(1)
        return before * state

    return Program(writing, other.zero_, observe=lambda: state)


@program
def version_counter_read(world: World) -> Program:
    def writing(x: Any) -> Any:
        x.add_(1).mul_(2)
        return x + 1, x._version

    return Program(writing, observe=nothing_seen)


def nothing_seen() -> None:
    return None


@program
def data_pointer_compared(world: World) -> Program:
    def comparing(x: Any) -> Any:
        y = x.view(-1)
        z = x * 2
        return y.data_ptr() == x.data_ptr(), z.data_ptr() == x.data_ptr(), z

    return Program(comparing)


@program
def list_of_tensors_in_place(world: World) -> Program:
    parameters = [numbers(i, 3) for i in range(6)]

    def updating(step: Any) -> Any:
        for parameter in parameters:
            parameter.mul_(0.5).add_(step)
        return parameters[0] + 1

    return Program(
        updating, lambda: parameters.append(numbers(9, 3)), lambda call: (numbers(call, 3),), observe=lambda: parameters
    )


@program
def foreach_over_list(world: World) -> Program:
    parameters = [numbers(i, 3) for i in range(4)]

    def updating(step: Any) -> Any:
        torch._foreach_mul_(parameters, 0.5)
        torch._foreach_add_(parameters, [step] * len(parameters))
        return parameters[0] + 1

    return Program(updating, lambda: parameters.pop(), lambda call: (numbers(call, 3),), observe=lambda: parameters)
