"""Operations that write: on arguments, on views, on overlapping memory, on values that are pending themselves."""

import pytest
import torch

from tests.frontend.jit.follow.following_checks import check, followed, same


def _twice(x, y):
    y = y * 2
    x.add_(y).mul_(2)
    return x + 1, x._version


def _view_of_argument(x, y):
    before = x * 2
    x[1].add_(y[1])
    x[:, 2] = 7.0
    return before, x + y, x._version


def _views_made_before(x, y):
    row, column = x[1], x[:, 1]
    x.add_(1)
    row.mul_(2)
    x.sub_(y)
    return row + 1, column * 2, x * 3


def _pending_value(x, y):
    z = x + y
    z.add_(1)
    z.mul_(x)
    return z, z._version, z.add_(1)._version


def _views_of_pending_value(x, y):
    z = x + y
    row = z[1]
    row.add_(1)
    z.mul_(2)
    z[0] = row
    flat = z.view(-1)
    flat[3:].sub_(1)
    return row, z, flat, z._version, row._version


def _itself(x, y):
    x.add_(x)
    x.mul_(x.t()[:4, :4].sum())
    return x.copy_(x.flip(0)), x._version


def _overlapping(x, y):
    x[1:].copy_(x[:-1].clone())
    x[:, 1:] += x[:, :-1].clone()
    return x * 2


def _output(x, y):
    z = x * 2
    torch.add(x, y, out=z)
    w = torch.empty(0)
    torch.mul(z, 2, out=w)
    torch.sub(x, y, out=x)
    return z, w, x, z._version


def _outputs(x, y):
    values, indices = torch.empty(4), torch.empty(4, dtype=torch.int64)
    torch.max(x + y, 1, out=(values, indices))
    return values + 1, indices


def _sliced_assignment(x, y):
    z = x * 2
    z[1:3] = y[1:3] + 1
    z[z > 1] = 0.0
    z[0, 0] = y.sum()
    return z, x


def _filled(x, y):
    z = x + 1
    z.zero_()
    w = torch.zeros_like(x)
    w.fill_(3.0).add_(y)
    return z, w


def _operators(x, y):
    x += 1
    x *= y
    x -= y.sum()
    x /= 2
    x **= 2
    return x


def _swapping(x, y):
    kept = x.clone()
    x.copy_(y)
    y.copy_(kept)
    return x * 2, y * 3


def _detached(x, y):
    z = x.detach()
    before = x * 2
    z.add_(1)
    return before, x * 3, x._version, z._version


def _expanded(x, y):
    z = (y[:, :1] * 2).expand(4, 5)
    return z + x, z.contiguous().add_(1)


def _into_an_argument_twice(x, y):
    for _ in range(3):
        x.mul_(0.9).add_(y, alpha=0.1)


PROGRAMS = [
    *(_twice, _view_of_argument, _views_made_before, _pending_value, _views_of_pending_value, _itself, _overlapping),
    *(_output, _outputs, _sliced_assignment, _filled, _operators, _swapping, _detached, _expanded),
    *(_into_an_argument_twice,),
]


def _plain():
    return torch.randn(4, 5), torch.randn(4, 5)


def _same_memory():
    x = torch.randn(4, 5)
    return x, x


def _views():
    x = torch.randn(8, 5)
    return x[:4], x[4:]


def _overlapping_views():
    x = torch.randn(6, 5)
    return x[:4], x[2:]


def _strided():
    return torch.randn(4, 10)[:, ::2], torch.randn(5, 4).t()


def _aliases():
    x = torch.randn(4, 5)
    return x, x.detach()


def _of_parameters():
    return torch.nn.Parameter(torch.randn(4, 5), requires_grad=False), torch.randn(4, 5)


@pytest.mark.parametrize("make", [_plain, _same_memory, _views, _overlapping_views, _strided, _aliases, _of_parameters])
@pytest.mark.parametrize("program", PROGRAMS)
def test_writing(program, make):
    check(program, make)


@pytest.mark.parametrize("program", PROGRAMS)
def test_writing_without_gradients(program):
    with torch.no_grad():
        check(program, lambda: (torch.randn(4, 5, requires_grad=True), torch.randn(4, 5)))


def test_inference_mode():
    with torch.inference_mode():
        check(lambda x, y: ((x + y).add_(1), x.mul_(2), (x * y).is_inference()), _plain)

    def inside(x, y):
        with torch.inference_mode():
            z = x * y + 1
            kind = z.is_inference()
        return z + 1, kind, z

    check(inside, _plain)
    check(lambda x, y: torch.inference_mode()(lambda: (x * y).add_(1))(), _plain)


def test_stale_graphs_still_raise():
    def function(x, y):
        x = x.clone().requires_grad_()
        z = x.exp()
        with torch.no_grad():
            z.add_(1)
        z.sum().backward()
        return x.grad

    check(function, _plain)

    def saved(x, y):
        w = (y * 2).requires_grad_()
        other = x * 3
        z = w * other
        other.add_(1)
        z.sum().backward()
        return w.grad

    check(saved, _plain)


def test_gradients_of_a_tensor_seen_without_them_before():
    def function(x, y):
        with torch.no_grad():
            a = x * 2
        b = x * 3 + a
        return a, b, b.requires_grad, b.sum()

    check(function, lambda: (torch.randn(4, 5, requires_grad=True), torch.randn(4, 5)))


def test_gradient_that_is_pending_when_it_is_accumulated():
    def function(x, y):
        x = x.clone().requires_grad_()
        (x * y).sum().backward()
        first = x.grad * 2
        (x * x).sum().backward()
        torch.autograd.backward((x * x).sum())
        return first, x.grad, torch.autograd.grad((x * y).sum(), x)

    check(function, _plain)


def test_optimizers():
    for kind in (torch.optim.SGD, torch.optim.AdamW, torch.optim.RMSprop):
        for foreach in (False, True):

            def function(weight, gradient, kind=kind, foreach=foreach):
                parameter = torch.nn.Parameter(weight)
                optimizer = kind([parameter], lr=0.1, foreach=foreach)
                for _ in range(3):
                    parameter.grad = gradient * 2 + parameter.detach()
                    optimizer.step()
                return parameter.detach().clone()

            check(function, _plain, calls=4)


def test_values_that_are_dropped_and_demanded():
    def function(x, y):
        a = x + y
        b = a * 2
        del a
        c = b.sum().item()
        d = b * c
        b.add_(1)
        return d, b, [d - index for index in range(3)]

    jitted = check(function, _plain)
    same(jitted(*(t := _plain())), function(*t), "")


def test_results_are_the_callers_own():
    jitted = followed(lambda x, y: (x + y) * 2)
    x, y = _plain()
    results = [jitted(x, y) for _ in range(6)]
    assert len({result.data_ptr() for result in results}) == 6
    results[-1].add_(1)
    assert torch.equal(results[0], results[1]) and not torch.equal(results[0], results[-1])


def test_tensors_of_inference_mode_are_not_written_outside_of_it():
    def function(x, y):
        x.add_(1)
        seen = []
        try:
            y.add_(1)  # PyTorch refuses it here, not at the end of the call
        except RuntimeError:
            seen.append("refused")
        return seen, x * 1

    jitted = followed(function)
    for number in range(8):
        with torch.inference_mode(number % 2 == 0):
            y = torch.ones(2, 3)
        seen, result = jitted(torch.ones(2, 3), y)
        assert seen == ["refused"] * (number % 2 == 0)
        assert result.sum() == 12 and y.sum() == 12  # PyTorch writes it before it refuses
