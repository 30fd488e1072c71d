"""Code that is replaced between calls: methods, functions of PyTorch, code objects, defaults, classes of objects."""

from __future__ import annotations

import builtins
import functools
import types
from typing import Any

import torch
import torch.nn.functional as F

from tests.frontend.jit.state.worlds import Program, World, numbers, program


def _doubled(x: Any) -> Any:
    return x * 2


def _tripled(x: Any) -> Any:
    return x * 3


class _Scaling:
    def apply(self, x: Any) -> Any:
        return x * 2

    @staticmethod
    def plain(x: Any) -> Any:
        return x * 2

    @classmethod
    def of_class(cls, x: Any) -> Any:
        return x * 2

    def __call__(self, x: Any) -> Any:
        return x * 2

    def __getitem__(self, index: int) -> float:
        return 2.0

    def __mul__(self, x: Any) -> Any:
        return x * 2

    def __len__(self) -> int:
        return 2

    def __bool__(self) -> bool:
        return True


def _scaling() -> Any:
    """A class of its own for each world: a patch of it ends with the world."""
    return type("Scaling", (_Scaling,), dict(vars(_Scaling)))


@program
def method_replaced_on_class(world: World) -> Program:
    class_ = _scaling()
    instance = class_()
    return Program(lambda x: instance.apply(x) + 1, lambda: setattr(class_, "apply", lambda self, x: x * 3))


@program
def method_replaced_on_base_class(world: World) -> Program:
    base = _scaling()
    instance = type("Derived", (base,), {})()
    return Program(lambda x: instance.apply(x) + 1, lambda: setattr(base, "apply", lambda self, x: x * 3))


@program
def method_added_to_derived_class(world: World) -> Program:
    derived: Any = type("Derived", (_scaling(),), {})
    instance = derived()
    return Program(lambda x: instance.apply(x) + 1, lambda: setattr(derived, "apply", lambda self, x: x * 3))


@program
def method_replaced_on_instance(world: World) -> Program:
    instance = _scaling()()
    return Program(lambda x: instance.apply(x) + 1, lambda: setattr(instance, "apply", lambda x: x * 3))


@program
def method_on_instance_removed(world: World) -> Program:
    instance = _scaling()()
    instance.apply = _tripled
    return Program(lambda x: instance.apply(x) + 1, lambda: delattr(instance, "apply"))


@program
def static_method_replaced(world: World) -> Program:
    class_ = _scaling()
    return Program(lambda x: class_.plain(x) + 1, lambda: setattr(class_, "plain", staticmethod(_tripled)))


@program
def class_method_replaced(world: World) -> Program:
    class_ = _scaling()
    replacement = classmethod(lambda cls, x: x * 3)
    return Program(lambda x: class_.of_class(x) + 1, lambda: setattr(class_, "of_class", replacement))


@program
def call_operator_replaced(world: World) -> Program:
    class_ = _scaling()
    instance = class_()
    return Program(lambda x: instance(x) + 1, lambda: setattr(class_, "__call__", lambda self, x: x * 3))


@program
def subscript_operator_replaced(world: World) -> Program:
    class_ = _scaling()
    instance = class_()
    return Program(lambda x: x * instance[0], lambda: setattr(class_, "__getitem__", lambda self, index: 3.0))


@program
def multiplication_operator_replaced(world: World) -> Program:
    class_ = _scaling()
    instance = class_()
    return Program(lambda x: (instance * x) + 1, lambda: setattr(class_, "__mul__", lambda self, x: x * 3))


@program
def length_operator_replaced(world: World) -> Program:
    class_ = _scaling()
    instance = class_()
    return Program(lambda x: x * len(instance), lambda: setattr(class_, "__len__", lambda self: 3))


@program
def truth_of_object_replaced(world: World) -> Program:
    class_ = _scaling()
    instance = class_()
    return Program(lambda x: x * 2 if instance else x * 3, lambda: setattr(class_, "__bool__", lambda self: False))


@program
def class_of_object_assigned(world: World) -> Program:
    instance = _scaling()()
    other = type("Other", (_scaling(),), {"apply": lambda self, x: x * 3})
    return Program(lambda x: instance.apply(x) + 1, lambda: setattr(instance, "__class__", other))


@program
def bases_of_class_assigned(world: World) -> Program:
    first, second = _scaling(), type("Second", (_scaling(),), {"apply": lambda self, x: x * 3})
    derived: Any = type("Derived", (first,), {})
    instance = derived()
    return Program(lambda x: instance.apply(x) + 1, lambda: setattr(derived, "__bases__", (second,)))


@program
def dictionary_of_object_assigned(world: World) -> Program:
    instance = _scaling()()
    instance.factor = 2.0
    return Program(lambda x: x * instance.factor, lambda: setattr(instance, "__dict__", {"factor": 3.0}))


@program
def relu_patched(world: World) -> Program:
    return Program(lambda x: F.relu(x) + 1, lambda: world.patch(F, "relu", lambda x: torch.tanh(x)))


@program
def torch_exp_patched(world: World) -> Program:
    return Program(lambda x: torch.exp(x) + 1, lambda: world.patch(torch, "exp", lambda x: x * 5))


@program
def tensor_method_patched(world: World) -> Program:
    return Program(lambda x: x.halved() + 1, lambda: world.patch(torch.Tensor, "halved", lambda x: x / 2))


@program
def tensor_method_of_ours_replaced(world: World) -> Program:
    world.patch(torch.Tensor, "scaled_by_us", _doubled)
    return Program(lambda x: x.scaled_by_us() + 1, lambda: world.patch(torch.Tensor, "scaled_by_us", _tripled))


@program
def linear_forward_patched(world: World) -> Program:
    module = torch.nn.Linear(5, 5).requires_grad_(False)
    with torch.no_grad():
        module.weight.copy_(numbers(1, 5, 5))
        module.bias.copy_(numbers(2, 5))
    return Program(
        lambda x: module(x).relu(), lambda: world.patch(torch.nn.Linear, "forward", lambda self, x: x * 3 + self.bias)
    )


@program
def inner_function_of_torch_patched(world: World) -> Program:
    """`F.softplus` of `nn.Softplus`, which the function never names."""
    module = torch.nn.Softplus()
    return Program(lambda x: module(x) + 1, lambda: world.patch(F, "softplus", lambda *args: args[0] * 5))


@program
def code_replaced(world: World) -> Program:
    def scaled(x: Any) -> Any:
        return x * 2 + 1

    return Program(scaled, lambda: setattr(scaled, "__code__", _tripled.__code__))


@program
def code_of_called_function_replaced(world: World) -> Program:
    def scaled(x: Any) -> Any:
        return x * 2

    return Program(lambda x: scaled(x) + 1, lambda: setattr(scaled, "__code__", _tripled.__code__))


@program
def defaults_replaced(world: World) -> Program:
    def scaled(x: Any, factor: float = 2.0) -> Any:
        return x * factor + 1

    return Program(scaled, lambda: setattr(scaled, "__defaults__", (3.0,)))


@program
def defaults_of_called_function_replaced(world: World) -> Program:
    def scaled(x: Any, factor: float = 2.0) -> Any:
        return x * factor

    return Program(lambda x: scaled(x) + 1, lambda: setattr(scaled, "__defaults__", (3.0,)))


@program
def keyword_defaults_replaced(world: World) -> Program:
    def scaled(x: Any, *, factor: float = 2.0) -> Any:
        return x * factor

    return Program(lambda x: scaled(x) + 1, lambda: setattr(scaled, "__kwdefaults__", {"factor": 3.0}))


@program
def default_list_changed(world: World) -> Program:
    def scaled(x: Any, factors: list[float] = [2.0]) -> Any:  # noqa: B006
        return x * factors[0]

    defaults: Any = scaled.__defaults__
    return Program(lambda x: scaled(x) + 1, lambda: defaults[0].__setitem__(0, 3.0))


@program
def attribute_of_function(world: World) -> Program:
    def scaled(x: Any) -> Any:
        return x * function.factor

    function: Any = scaled
    function.factor = 2.0
    return Program(scaled, lambda: setattr(function, "factor", 3.0))


@program
def dictionary_of_function(world: World) -> Program:
    function: Any = types.FunctionType(_doubled.__code__, globals(), "of_its_own")
    function.factor = 2.0
    return Program(lambda x: function(x) * function.factor, lambda: function.__dict__.update(factor=3.0))


@program
def bound_method_of_a_new_object(world: World) -> Program:
    holder = types.SimpleNamespace(apply=_scaling()().apply)
    other = type("Other", (_scaling(),), {"apply": lambda self, x: x * 3})()
    return Program(lambda x: holder.apply(x) + 1, lambda: setattr(holder, "apply", other.apply))


@program
def partial_rebuilt(world: World) -> Program:
    holder = {"step": functools.partial(torch.mul, other=2.0)}
    return Program(lambda x: holder["step"](x) + 1, lambda: holder.update(step=functools.partial(torch.mul, other=3.0)))


@program
def keywords_of_partial_changed(world: World) -> Program:
    step = functools.partial(torch.add, alpha=2.0)
    return Program(lambda x: step(x, x) + 1, lambda: step.keywords.update(alpha=3.0))


@program
def partial_given_to_jit(world: World) -> Program:
    factors = [2.0]
    step = functools.partial(lambda given, x: x * given[0] + 1, factors)
    return Program(step, lambda: factors.__setitem__(0, 3.0))


@program
def partial_set_state(world: World) -> Program:
    step: Any = functools.partial(lambda factor, x: x * factor, 2.0)
    return Program(lambda x: step(x) + 1, lambda: step.__setstate__((step.func, (3.0,), {}, {})))


@program
def wrapped_function_replaced(world: World) -> Program:
    holder = [_doubled]

    @functools.wraps(_doubled)
    def wrapper(x: Any) -> Any:
        return holder[0](x) + 1

    return Program(wrapper, lambda: holder.__setitem__(0, _tripled))


@program
def dispatch_of_single_dispatch_extended(world: World) -> Program:
    @functools.singledispatch
    def scaled(x: Any) -> Any:
        return x * 2

    return Program(lambda x: scaled(x) + 1, lambda: scaled.register(torch.Tensor)(_tripled))


@program
def builtin_replaced(world: World) -> Program:
    return Program(lambda x: x * abs(-2), lambda: world.patch(builtins, "abs", lambda number: 3))


@program
def lambda_in_a_table_replaced(world: World) -> Program:
    table = {"relu": lambda x: torch.relu(x), "tanh": lambda x: torch.tanh(x)}
    return Program(lambda x: table["relu"](x) + 1, lambda: table.update(relu=table["tanh"]))


@program
def torch_function_of_subclass_replaced(world: World) -> Program:
    class Marked(torch.Tensor):
        pass

    def other(cls: Any, function: Any, types_: Any, args: Any = (), kwargs: Any = None) -> Any:
        world.log.append(function.__name__)
        return torch.Tensor.__torch_function__(function, types_, args, kwargs or {})

    return Program(
        lambda x: (x * 2).as_subclass(torch.Tensor) + 1,
        lambda: setattr(Marked, "__torch_function__", classmethod(other)),
        lambda call: (numbers(call, 4, 5).as_subclass(Marked),),
        view=lambda result: result.clone(),
    )
