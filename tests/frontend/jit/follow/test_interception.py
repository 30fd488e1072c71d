"""Functions of torch that native code answers before torch does: they stay what they are to all other code."""

import threading
from typing import Any, ClassVar

import pytest
import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode, has_torch_function, has_torch_function_unary, has_torch_function_variadic

import ingot
from tests.frontend.jit.follow.following_checks import followed

_X = torch.randn(4, 6)
_torch: Any = torch


def _body(x):
    y = F.relu(x * 1.5 + 1) - x.abs()
    z = y[:, :3].sum(-1, keepdim=True) / (x.size(0) + x.shape[1] + x.dim())
    return F.softmax(y * z, dim=-1).transpose(0, 1)


def _follow(function, calls=6):
    jitted = followed(function)
    return [jitted(_X) for _ in range(calls)][-1]


class _Names(TorchFunctionMode):
    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.names.append(getattr(func, "__name__", ""))
        return func(*args, **(kwargs or {}))


class _Loud(torch.Tensor):
    heard: ClassVar[list] = []

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        cls.heard.append(func)
        return super().__torch_function__(func, types, args, kwargs or {})


def test_result():
    torch.testing.assert_close(_follow(_body), _body(_X))


def test_functions_are_what_they_were():
    names = [torch.Tensor.mul, torch.Tensor.__mul__, torch.sigmoid, torch.Tensor.shape, F.linear, torch.Tensor.dim]
    names += [torch.overrides.has_torch_function, has_torch_function_unary, has_torch_function_variadic]
    before = [(id(one), hash(one), one.__name__, one.__doc__, getattr(one, "__self__", None)) for one in names]
    _follow(lambda x: torch.sigmoid(x.mul(2) * x) + F.linear(x, x).sum() + x.shape[0] + x.dim())
    after = [(id(one), hash(one), one.__name__, one.__doc__, getattr(one, "__self__", None)) for one in names]
    assert after == before
    assert torch.Tensor.mul.__get__(_X).__call__(2).equal(_X * 2) and torch.sigmoid.__call__(_X).equal(_X.sigmoid())
    assert has_torch_function_unary.__call__(_X) is False


def test_other_modes_are_told_everything():
    _follow(_body)
    with _Names() as plain:
        _body(_X)
    assert plain.names.count("relu") == 1
    assert {"mul", "add", "softmax", "__getitem__", "size", "dim"} <= set(plain.names)


def test_mode_of_the_user_inside_and_outside():
    names = _Names()

    def function(x):
        y = x * 2
        with names:
            z = F.relu(y)
        return z + y

    jitted = followed(function)
    for _ in range(5):
        names.names.clear()
        torch.testing.assert_close(jitted(_X), function(_X))
        assert names.names.count("relu") == 2  # once in each of the two calls
    with _Names() as outside:
        jitted(_X)
    assert "relu" in outside.names


def test_subclasses_are_told():
    _follow(_body)
    _Loud.heard.clear()
    loud = _X.as_subclass(_Loud)
    _body(loud)
    wanted = list(_Loud.heard)
    jitted = followed(_body)
    for _ in range(4):
        _Loud.heard.clear()
        assert type(jitted(loud)) is _Loud
        assert list(_Loud.heard) == wanted


def test_questions():
    """The user's code is told what eager is told; code of torch that may look at memory unseen is told the truth."""
    answers = []

    def function(x):
        y = x * 2
        answers.append((has_torch_function((y,)), has_torch_function_unary(y), has_torch_function_variadic(y, x)))
        answers.append(torch.overrides.has_torch_function([x, None, 1]))
        return y + 1

    _follow(function)
    assert set(answers) == {(False, False, False), False}
    loud = _X.as_subclass(_Loud)
    assert has_torch_function_unary(loud) and has_torch_function((loud,)) and has_torch_function_variadic(1, loud)
    with _Names():
        assert has_torch_function_unary(_X) and has_torch_function((_X,)) and has_torch_function_variadic(_X)


def test_question_about_a_subclass_inside():
    loud, answers = _X.as_subclass(_Loud), []

    def function(x):
        answers.append((has_torch_function_unary(loud), has_torch_function((x, loud)), has_torch_function_variadic(x)))
        return x * 2 + 1

    _follow(function)
    assert set(answers) == {(True, True, False)}


def test_disabled_functions_are_left_alone():
    def function(x):
        y = x * 2
        with torch._C.DisableTorchFunction():
            z = y + 1
            shape = z.shape
        return z * shape[0]

    torch.testing.assert_close(_follow(function), function(_X))


def test_errors_are_eagers_and_leave_modes_on():
    messages = []

    def function(x):
        y = x * 2
        for broken in (
            lambda: y.view(7),
            lambda: y[99],
            lambda: y.mul("text"),
            lambda: y.size(9),
            lambda: y + _X[:, :5],
        ):
            try:
                broken()
            except (RuntimeError, IndexError, TypeError) as error:
                messages.append(f"{type(error).__name__}: {error}")
        return y + 1

    torch.testing.assert_close(_follow(function), function(_X))
    wanted = messages[-5:]
    assert len(wanted) == 5
    assert all(messages[at : at + 5] == wanted for at in range(0, len(messages), 5))
    assert torch._C._is_torch_function_enabled()


def test_keywords_and_no_arguments():
    def function(x):
        y = torch.add(input=x, other=x, alpha=2)
        return torch.sum(input=y, dim=0) + _torch.numel(input=x) + torch.mul(y, other=2).mean()

    torch.testing.assert_close(_follow(function), function(_X))
    jitted = followed(lambda x: _torch.mul())
    for _ in range(3):
        with pytest.raises(TypeError):
            jitted(_X)


def test_threads_that_follow_nothing():
    """While one thread follows, others run as always, and modes of theirs are told."""
    started, done, found = threading.Event(), threading.Event(), []

    def function(x):
        y = x * 2
        if not started.is_set():
            started.set()
            done.wait(30)
        return F.relu(y)

    jitted = followed(function)

    def other():
        started.wait(30)
        with _Names() as names:
            found.append((F.relu(_X), names.names, has_torch_function_unary(_X)))
        found.append((has_torch_function_unary(_X), _X.shape, _X[0]))
        done.set()

    thread = threading.Thread(target=other)
    thread.start()
    torch.testing.assert_close(jitted(_X), F.relu(_X * 2))
    thread.join()
    assert found[0][1].count("relu") == 1 and found[0][2] is True
    assert found[1][0] is False


def test_class_made_later_and_item_access_set_later():
    _follow(lambda x: x[:, :2] * 2)

    class Later(torch.Tensor):
        pass

    class Own(torch.Tensor):
        def __getitem__(self, index) -> Any:
            return "own"

    torch.testing.assert_close(_X.as_subclass(Later)[1].as_subclass(torch.Tensor), _X[1])
    assert _X.as_subclass(Own)[1] == "own"


def test_torch_compile_reads_the_functions():
    _follow(_body)
    compiled = torch.compile(_body, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(_X), _body(_X))


@pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning")
def test_script_reads_the_functions():
    _follow(_body)
    torch.testing.assert_close(torch.jit.script(F.relu)(_X), F.relu(_X))


def test_operators_inside_jit_of_whole_modules():
    layer = torch.nn.TransformerEncoderLayer(8, 2, batch_first=True).eval()
    x = torch.randn(2, 3, 8)
    with torch.no_grad():
        wanted = layer(x)
        jitted = ingot.jit(lambda x: layer(x) * 2, python="run")
        for _ in range(4):
            torch.testing.assert_close(jitted(x), wanted * 2)
