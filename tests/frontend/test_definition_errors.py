"""Bad input: each fault has its own error, which says what is wrong and where, and leaves nothing half done."""

import pytest
import torch

import ingot
from ingot import DataType, FusionDefinition
from ingot.base.errors import (
    ArgumentError,
    AxisError,
    DefinitionError,
    DTypeError,
    ExecutionError,
    HandleError,
    InputError,
    ShapeError,
    UnknownOperatorError,
)


@pytest.fixture
def fusion():
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1, 4])
        y = fd.define_tensor(shape=[-1, 4])
        scale = fd.define_scalar(dtype=DataType.Int)
        fd.add_output((x + y) * scale)
    return fd


GOOD = (torch.ones(2, 4), torch.ones(2, 4), 3)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (GOOD[:2], r"expected 3 inputs \(f32\[s0, 4\], f32\[s1, 4\], i64\), got 2"),
        ((*GOOD, 1), "expected 3 inputs .* got 4"),
        ((GOOD[0].double(), *GOOD[1:]), "input 0 must have the dtype f32, not torch.float64"),
        ((GOOD[0], torch.ones(4), 3), "input 1 must have 2 dimensions .* not 1"),
        ((GOOD[0], torch.ones(2, 5), 3), "input 1 must have size 4 along axis 1 .* not 5"),
        ((GOOD[0], torch.ones(3, 4), 3), "add needs s0 and s1 to be equal, .* s0 is axis 0 of input 0"),
        ((GOOD[0], 1.0, 3), "input 1 must be a tensor .* not float"),
        ((*GOOD[:2], 1.5), "input 2 must be a number of type i64, not 1.5"),
        ((*GOOD[:2], torch.tensor(3)), r"input 2 is declared as a number .* pass tensor.item\(\)"),
        ((*GOOD[:2], 2**70), "input 2 is .* does not fit i64"),
        ((GOOD[0].to_sparse(), *GOOD[1:]), "only strided tensors are taken"),
        ((torch.ones(2, 4, device="meta"), *GOOD[1:]), "meta tensor"),
    ],
)
def test_inputs_that_do_not_fit_are_refused_with_the_place(fusion, inputs, message):
    with pytest.raises(InputError, match=message):
        fusion.execute(list(inputs))


def test_inputs_must_be_a_list_or_tuple(fusion):
    with pytest.raises(ArgumentError, match="list or tuple"):
        fusion.execute(torch.ones(2, 4))


def test_refused_call_leaves_aliased_inputs_untouched():
    with FusionDefinition() as fd:
        x, y = fd.define_tensor(1), fd.define_tensor(1)
        fd.add_output(x + 1, alias_input=x)
        fd.add_output(x + y)
    x = torch.zeros(3)
    with pytest.raises(InputError):
        fd.execute([x, torch.zeros(4)])
    assert x.tolist() == [0.0, 0.0, 0.0]


def test_error_of_pytorch_names_the_operator_and_leaves_aliased_inputs_untouched():
    with FusionDefinition() as fd:
        x = fd.define_tensor(1)
        index = fd.define_tensor(1, dtype=DataType.Int)
        fd.add_output(x * 2, alias_input=x)
        fd.add_output(fd.ops.index_select(x, index, 0))
    x = torch.ones(3)
    with pytest.raises(ExecutionError, match="index_select"):
        fd.execute([x, torch.tensor([7])])
    assert x.tolist() == [1.0, 1.0, 1.0]


def in_definition(statement):
    with FusionDefinition() as fd:
        statement(fd)


@pytest.mark.parametrize(
    ("error", "message", "statement"),
    [
        (ShapeError, "sizes 3 and 4 do not broadcast", lambda fd: fd.define_tensor([3]) + fd.define_tensor([4])),
        (AxisError, "axis 2 is out of range for rank 2", lambda fd: fd.ops.sum(fd.define_tensor(2), [2])),
        (AxisError, "axis -3 is out of range for rank 2", lambda fd: fd.ops.softmax(fd.define_tensor(2), -3)),
        (AxisError, "name an axis twice", lambda fd: fd.ops.sum(fd.define_tensor(2), [0, -2])),
        (AxisError, "needs each of the 2 axes", lambda fd: fd.ops.permute(fd.define_tensor(2), [0])),
        (UnknownOperatorError, "did you mean .*softmax", lambda fd: fd.ops.softmx(fd.define_tensor(2))),
        (ArgumentError, "misses the argument 'y'", lambda fd: fd.ops.add(fd.define_tensor(2))),
        (ArgumentError, "takes 1 arguments, got 2", lambda fd: fd.ops.exp(fd.define_tensor(2), 1)),
        (ArgumentError, "has no parameter 'axs'", lambda fd: fd.ops.sum(fd.define_tensor(2), axs=[0])),
        (ArgumentError, "got two values for 'axes'", lambda fd: fd.ops.sum(fd.define_tensor(2), [0], dims=[1])),
        (HandleError, "a value of this definition is needed", lambda fd: fd.ops.exp(torch.ones(2))),
        (HandleError, "a tensor is needed here", lambda fd: fd.ops.permute(fd.define_scalar(), [0])),
        (DTypeError, "sub does not take bool operands", lambda fd: fd.ops.sub(*_bools(fd))),
        (DTypeError, "bitwise_and does not compute in f32", lambda fd: fd.define_tensor(1) & 1.5),
        (ShapeError, "cannot take the shape", lambda fd: fd.ops.reshape(fd.define_tensor([2, 3]), [4])),
        (ShapeError, "not a multiple of 4", lambda fd: fd.ops.reshape(fd.define_tensor([2, 3]), [4, -1])),
        (DefinitionError, "no truth", lambda fd: bool(fd.define_tensor(1) > 0)),
        (DefinitionError, "a size must be -1", lambda fd: fd.define_tensor([-2])),
        (ArgumentError, "one of shape", lambda fd: fd.define_tensor()),
        (ArgumentError, "needs strides too", lambda fd: fd.define_tensor(sizes=[2, 3])),
        (DTypeError, "f8e5m2", lambda fd: fd.define_tensor(1, dtype=DataType.Float8_e5m2)),
        (ArgumentError, "is not a data type", lambda fd: fd.ops.cast(fd.define_tensor(1), "float")),
        (DefinitionError, "only a tensor input", lambda fd: _alias_of_computed(fd)),
        (DefinitionError, "cannot be written into the input", lambda fd: _alias_of_other_type(fd)),
        (ShapeError, "needs at least one element", lambda fd: fd.ops.amax(fd.define_tensor([0, 3]), [0])),
        (ShapeError, "cannot multiply", lambda fd: fd.define_tensor([2, 3]) @ fd.define_tensor([4, 5])),
    ],
)
def test_fault_in_a_definition_has_an_error_that_says_what_and_where(error, message, statement):
    with pytest.raises(error, match=message) as caught:
        in_definition(statement)
    assert isinstance(caught.value, ingot.IngotError)


def _bools(fd):
    return [fd.define_tensor(1, dtype=DataType.Bool) for _ in range(2)]


def _alias_of_computed(fd):
    x = fd.define_tensor(1)
    fd.add_output(x, alias_input=x * 2)


def _alias_of_other_type(fd):
    x = fd.define_tensor(1)
    fd.add_output(x > 0, alias_input=x)


def test_error_names_the_operator_and_its_operands():
    with pytest.raises(ShapeError, match=r"in add\(f32\[3\], f32\[4\]\)"):
        in_definition(lambda fd: fd.ops.add(fd.define_tensor([3]), fd.define_tensor([4])))


def test_handle_of_another_definition_is_refused():
    with FusionDefinition() as other:
        foreign = other.define_tensor(1)
        other.add_output(foreign)
    with pytest.raises(HandleError, match="another definition"):
        in_definition(lambda fd: fd.ops.add(fd.define_tensor(1), foreign))
    with pytest.raises(HandleError, match="another definition"):
        in_definition(lambda fd: fd.add_output(foreign))


def test_definition_without_outputs_is_refused_when_it_ends():
    with pytest.raises(DefinitionError, match="no outputs"):
        in_definition(lambda fd: fd.define_tensor(1))


def test_definition_is_unusable_after_an_error_inside_its_block():
    fd = FusionDefinition()
    with pytest.raises(ZeroDivisionError), fd:
        fd.add_output(fd.define_tensor(1))
        raise ZeroDivisionError("of the user's own")
    with pytest.raises(DefinitionError, match="failed and cannot be used: ZeroDivisionError"):
        fd.execute([torch.ones(1)])
    with pytest.raises(DefinitionError, match="failed and cannot be used"):
        fd.define_tensor(1)
    with pytest.raises(DefinitionError, match="defined once"), fd:
        pass


def test_definition_goes_on_after_a_caught_error():
    with FusionDefinition() as fd:
        x = fd.define_tensor(2)
        with pytest.raises(AxisError):
            fd.ops.sum(x, [5])
        fd.add_output(fd.ops.sum(x, [1]))
    assert fd.execute([torch.ones(2, 3)])[0].tolist() == [3.0, 3.0]
    assert "[5]" not in repr(fd)


def test_definition_is_used_only_where_it_can_be():
    fd = FusionDefinition()
    with pytest.raises(DefinitionError, match="inside its `with"):
        fd.define_tensor(1)
    with pytest.raises(DefinitionError, match="nothing is defined yet"):
        fd.execute([])
    with FusionDefinition() as fd:
        x = fd.define_tensor(1)
        with pytest.raises(DefinitionError, match="still open"):
            fd.execute([torch.ones(1)])
        fd.add_output(x)
    with pytest.raises(DefinitionError, match="the definition has ended"):
        fd.ops.exp(x)
    with pytest.raises(DefinitionError, match="the definition has ended"):
        fd.add_output(x)


def test_unknown_operator_is_an_attribute_error_so_that_hasattr_answers():
    fd = FusionDefinition()
    assert hasattr(fd.ops, "add")
    assert not hasattr(fd.ops, "ad")
    assert not hasattr(fd.ops, "library")
