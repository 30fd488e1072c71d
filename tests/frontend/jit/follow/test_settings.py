"""What decides results besides operands: modes, switches, dtypes, random numbers, and errors that values make."""

import threading

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from tests.frontend.jit.follow.following_checks import check


def _xy():
    return torch.randn(4, 4), torch.randn(4, 4)


class Counting(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.seen.append(str(func))
        return func(*args, **(kwargs or {}))


class Renaming(TorchFunctionMode):
    def __init__(self):
        super().__init__()
        self.seen: list[str] = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.seen.append(getattr(func, "__name__", str(func)))
        return func(*args, **(kwargs or {}))


def test_dispatch_mode_entered_inside_sees_its_own_operations():
    def function(x, y):
        z = x * 2 + y
        with Counting() as mode:
            w = torch.tanh(z) + 1
            w = w * z
        return w + 1, z, mode.seen

    check(function, _xy)


def test_function_mode_entered_inside():
    def function(x, y):
        z = x * 2 + y
        with Renaming() as mode:
            w = torch.tanh(z) + 1
        return w + 1, z, mode.seen

    check(function, _xy)


def test_modes_around_the_call():
    for kind in (Counting, Renaming):

        def function(x, y, kind=kind):
            return (x * 2 + y).tanh()

        def around(call, kind=kind):
            def calling(x, y):
                with kind() as mode:
                    result = call(x, y)
                return result, mode.seen

            return calling

        from tests.frontend.jit.follow.following_checks import followed, same

        jitted = around(followed(function))
        eager = around(function)
        for _ in range(4):
            arguments = _xy()
            same(jitted(*arguments), eager(*arguments), kind.__name__)


def test_autocast_in_the_middle():
    def function(x, y):
        before = x @ y
        with torch.autocast("cpu", dtype=torch.bfloat16):
            inside = before @ y
            other = torch.autocast("cpu", enabled=False)
            with other:
                within = before @ y
        return before, inside, within, inside.float() @ y

    check(function, _xy)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        check(lambda x, y: (x @ y) * 2 + x, _xy)


def test_default_dtype_in_the_middle():
    def function(x, y):
        integers = (x > 0).long()
        a = integers / 2
        torch.set_default_dtype(torch.float64)
        try:
            b = integers / 2
            c = integers * 1.5
        finally:
            torch.set_default_dtype(torch.float32)
        return a, b, c, integers / 2

    check(function, _xy)


def test_deterministic_switch_in_the_middle():
    def function(x, y):
        a = x * 2
        torch.use_deterministic_algorithms(True)
        try:
            b = a + y
            seen = torch.are_deterministic_algorithms_enabled()
        finally:
            torch.use_deterministic_algorithms(False)
        return a, b, seen, b * 2

    check(function, _xy)


def test_grad_mode_in_the_middle():
    def function(x, y):
        x = x.clone().requires_grad_()
        a = x * y
        with torch.no_grad():
            b = a * 2 + x
        c = b * x
        with torch.inference_mode():
            d = c * 2
        with torch.set_grad_enabled(False):
            e = torch.enable_grad()(lambda: x * 2)()
        return a.requires_grad, b.requires_grad, c, d, e, b.is_leaf, a.is_leaf

    check(function, _xy)


def test_device_context():
    def function(x, y):
        z = x * 2
        with torch.device("meta"):
            meta = torch.zeros(3) + 1
        return z + y, meta

    check(function, _xy)


RANDOM = {
    "dropout": lambda x: torch.nn.functional.dropout(x, 0.5, True) * 2,
    "rand_like": lambda x: torch.rand_like(x) + x,
    "randn": lambda x: torch.randn(4, 4) * x,
    "bernoulli": lambda x: torch.bernoulli(torch.sigmoid(x)) * x,
    "normal_": lambda x: (x * 2).normal_() + 1,
    "uniform_": lambda x: (x * 2).uniform_().add_(x),
    "multinomial": lambda x: torch.multinomial(torch.softmax(x, 1), 2) * 2,
    "randperm": lambda x: x[torch.randperm(4)] * 2,
    "randint": lambda x: torch.randint(0, 4, (3,)) + x[0, 0].long(),
    "rrelu": lambda x: torch.nn.functional.rrelu(x, training=True) + 1,
    "gumbel": lambda x: torch.nn.functional.gumbel_softmax(x * 2),
    "alpha dropout": lambda x: torch.nn.functional.alpha_dropout(x, 0.5, True) * 2,
    "attention with dropout": lambda x: torch.nn.functional.scaled_dot_product_attention(
        x[None], x[None], x[None], dropout_p=0.5
    ),
    "exponential": lambda x: torch.empty_like(x).exponential_() * x,
    "distribution": lambda x: torch.distributions.Normal(x, x.exp()).sample() * 2,
}


@pytest.mark.parametrize("name", RANDOM)
def test_random_numbers_are_drawn_at_the_call(name):
    def function(x, y):
        states = []
        a = x * 2
        b = RANDOM[name](a)
        states.append(torch.get_rng_state().sum().item())
        c = torch.rand(2) + b.sum()
        states.append(torch.get_rng_state().sum().item())
        torch.manual_seed(7)
        d = RANDOM[name](a) + 1
        return b, c, d, states, torch.initial_seed()

    check(function, _xy)


def test_generators():
    def function(x, y):
        generator = torch.Generator().manual_seed(3)
        a = torch.rand(4, 4, generator=generator) * x
        state = generator.get_state().sum().item()
        b = torch.empty_like(a).normal_(generator=generator) + a
        with torch.random.fork_rng():
            c = torch.rand(3) + b.sum()
        return a, b, c, state

    check(function, _xy)


RAISING = {
    "index": lambda x, y: x[torch.tensor([7])],
    "pending index": lambda x, y: x[(y * 0 + 9).long()],
    "gather": lambda x, y: torch.gather(x, 1, (y * 0 + 9).long()),
    "scatter": lambda x, y: (x * 1).scatter_(1, (y * 0 + 9).long(), 1.0),
    "embedding": lambda x, y: torch.nn.functional.embedding((y * 0 + 9).long(), x),
    "index_select": lambda x, y: x.index_select(0, (y[0] * 0 + 9).long()),
    "integer division": lambda x, y: (x * 10).long() // (y * 0).long(),
    "integer remainder": lambda x, y: (x * 10).long() % (y * 0).long(),
    "integer floor": lambda x, y: torch.div((x * 10).long(), (y * 0).long(), rounding_mode="floor"),
    "integer power": lambda x, y: (x * 10).long() ** (y * 0 - 1).long(),
    "negative power": lambda x, y: (x * 10).long() ** -1,
    "cholesky": lambda x, y: torch.linalg.cholesky(x * 0 - 1),
    "inverse": lambda x, y: torch.linalg.inv(x * 0),
    "solve": lambda x, y: torch.linalg.solve(x * 0, y),
    "multinomial": lambda x, y: torch.multinomial(x * 0 - 1, 2),
    "bernoulli": lambda x, y: torch.bernoulli(x * 0 + 2),
    "cross entropy": lambda x, y: torch.nn.functional.cross_entropy(x, (y[0] * 0 + 9).long()),
    "nll": lambda x, y: torch.nn.functional.nll_loss(x, (y[0] * 0 + 9).long()),
    "binary cross entropy": lambda x, y: torch.nn.functional.binary_cross_entropy(x * 0 + 2, y.sigmoid()),
    "one hot": lambda x, y: torch.nn.functional.one_hot((y * 0 - 1).long()),
    "sizes": lambda x, y: (x * 2) + y[:3],
    "product sizes": lambda x, y: (x * 2) @ y[:3],
    "view sizes": lambda x, y: (x * 2).view(3, 5),
    "types": lambda x, y: torch.bitwise_and(x * 2, y),
    "in place types": lambda x, y: (x * 2).long().add_(y),
    "in place sizes": lambda x, y: (x[0] * 2).add_(y),
    "dimension": lambda x, y: (x * 2).sum(5),
    "device": lambda x, y: (x * 2).to("nowhere"),
    "keyword": lambda x, y: (x * 2).sum(nothing=1),
    "bool of several": lambda x, y: bool(x > 0),
    "item of several": lambda x, y: (x * 2).item(),
    "range": lambda x, y: torch.add((x * 2).to(torch.uint8), y.to(torch.uint8), alpha=300),
    "bincount": lambda x, y: torch.bincount((y[0] * 0 - 1).long()),
    "repeat_interleave": lambda x, y: x.repeat_interleave((y[0] * 0 - 1).long(), 0),
    "assert": lambda x, y: torch._assert_async((x * 0).sum()),
    "nested grad": lambda x, y: (x * 2).sum().backward(),
}


@pytest.mark.parametrize("name", RAISING)
def test_errors_come_at_the_call(name):
    def function(x, y):
        other = x + y
        try:
            result = RAISING[name](x, y)
        except Exception as error:
            return type(error).__name__, other * 2
        return result, other * 3

    check(function, _xy)


def test_errors_because_of_numbers():
    for number in (1, 300, -1, 2**40, 1.0, 1e300):

        def function(x, y, number=number):
            small = (x * 2).to(torch.uint8)
            found = []
            for call in (
                lambda: torch.add(small, small, alpha=number),
                lambda: small.clamp(max=number),
                lambda: torch.addcmul(small, small, small, value=number),
                lambda: torch.addcmul(x, x, y, value=number),
                lambda: small + number,
                lambda: x.half() * number,
            ):
                try:
                    found.append(call())
                except (RuntimeError, TypeError) as error:
                    found.append(type(error).__name__)
            return found

        check(function, lambda: (torch.rand(4, 4), torch.rand(4, 4)))

    numbers = iter([1, 2, 300, 2, -1, 1e300] * 2)

    def changing(x, y):
        small = (x * 2).to(torch.uint8)
        number = next(numbers)
        try:
            return torch.add(small, small, alpha=number) * 2
        except (RuntimeError, TypeError) as error:
            return type(error).__name__, number

    from tests.frontend.jit.follow.following_checks import followed, outcome, same

    jitted, found, x = followed(changing), [], torch.rand(4, 4)
    found = [outcome(jitted, (x, x)) for _ in range(6)]
    same(found, [outcome(changing, (x, x)) for _ in range(6)], "")


def test_leaving_by_an_error_does_what_was_pending():
    kept = []

    def function(x, y):
        x.add_(y * 2)
        kept.append(x * 3)
        raise ValueError("left")

    check(function, _xy)
    for mine, its in zip(kept[::2], kept[1::2], strict=True):
        assert torch.equal(mine, its)


def test_errors_of_operators_leave_what_is_pending():
    def function(x, y):
        x.add_(y)
        return (x * 2) @ y[:3]

    check(function, _xy)


def test_threads_follow_at_the_same_time():
    def function(x, y):
        seen = [x * 2]
        seen.append(seen[0] + y)
        if float(seen[1].sum()) > 1e9:
            return x
        return torch.tanh(seen[1]) * seen[0]

    from tests.frontend.jit.follow.following_checks import followed

    jitted, shared = followed(function), torch.randn(4, 4)
    problems: list[str] = []

    def work(seed):
        generator = torch.Generator().manual_seed(seed)
        for number in range(60):
            x = torch.randn(4, 4, generator=generator)
            if not torch.allclose(jitted(x, shared), function(x, shared)):
                problems.append(f"{seed} {number}")

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    assert not problems


def test_a_value_handed_to_another_followed_thread():
    from tests.frontend.jit.follow.following_checks import followed

    inner = followed(lambda x: (x * 2 + 1).exp())
    results: list[torch.Tensor] = []

    def function(x):
        y = x + 1
        thread = threading.Thread(target=lambda: results.append(inner(y)))
        thread.start()
        z = y * 3
        thread.join(60)
        return z + results[-1]

    check(function, lambda: (torch.randn(4, 4),))


def test_a_followed_function_within_another():
    from tests.frontend.jit.follow.following_checks import followed

    def helper(x, y):
        x.add_(1)
        return x * y, (x > 0).any().item()

    inner = followed(helper)

    def build(call):
        def function(x, y):
            z = x * 2
            w, flag = call(z, y)
            v, _ = call(w + 1, z)
            return v if flag else w, z

        return function

    from tests.frontend.jit.follow.following_checks import same

    jitted, eager = followed(build(inner)), build(helper)
    for _ in range(5):
        x, y = _xy()
        same(jitted(x.clone(), y), eager(x.clone(), y), "nested")
