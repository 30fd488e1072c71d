"""The op table itself: complete records, refusals of incomplete ones, and errors that help."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

from ingot import GraphBuilder, IngotError
from ingot.base.dtypes import COMPUTED, HELD
from ingot.base.errors import ArgumentError, UnknownOperatorError
from ingot.ir.operators import Operators
from ingot.ops import Kind, Op, inference, lookup, table
from ingot.ops.attributes import Attributes
from ingot.ops.parameters import KINDS, Operand
from ingot.ops.promotion import Promotion
from ingot.ops.record import THROUGH_PYTORCH, operator, pointwise, structure
from ingot.ops.samples import operands

from .generation import SHAPES

every_operator = pytest.mark.parametrize("op", [op for op in table().values() if op.is_public], ids=lambda op: op.name)


@every_operator
def test_record_is_complete(op: Op):
    assert op.summary.endswith(".") and op.summary[0] != " "
    assert op.dtypes and op.dtypes <= HELD
    assert op.eager is not None and op.signature is not None and op.samples is not None
    assert all(parameter.kind in KINDS for parameter in op.signature.parameters)
    assert any(op.samples(shape) for shape in SHAPES), "nothing would be tested"


@every_operator
def test_named_parameters_exist(op: Op):
    assert op.signature is not None
    names = {parameter.name for parameter in op.signature.parameters if parameter.kind == "Operand"}
    assert {*op.keeps_precision, *op.bounded} <= names


@every_operator
def test_signature_prints_and_matches_the_method(op: Op):
    assert op.signature is not None
    method = getattr(Operators, op.name)
    assert method.__doc__ == op.summary
    parameters = list(inspect.signature(method).parameters)[1:]
    assert parameters == [parameter.name for parameter in op.signature.parameters]
    assert str(op.signature).startswith("(") and all(name in str(op.signature) for name in parameters)


@every_operator
def test_too_many_arguments_are_refused(op: Op):
    assert op.signature is not None
    with pytest.raises(ArgumentError, match="arguments"):
        GraphBuilder().call(op.name, [1] * (len(op.signature.parameters) + 1))


@every_operator
def test_unknown_keyword_is_refused_with_the_signature(op: Op):
    with pytest.raises(IngotError, match="no parameter 'nonsense'"):
        GraphBuilder().call(op.name, (), {"nonsense": 1})


def test_operators_without_a_call_are_not_reached_by_name():
    for op in table().values():
        if not op.is_public:
            with pytest.raises(IngotError):
                GraphBuilder().call(op.name)
            assert not hasattr(GraphBuilder().ops, op.name)


@pytest.mark.parametrize(
    ("wrong", "right"), [("sofmax", "softmax"), ("lay_norm", "layer_norm"), ("maximun", "maximum")]
)
def test_unknown_operator_suggests_near_names(wrong: str, right: str):
    with pytest.raises(UnknownOperatorError, match=f"did you mean .*{right}"):
        lookup(wrong)
    with pytest.raises(UnknownOperatorError, match=right):
        getattr(GraphBuilder().ops, wrong)


def test_unknown_operator_unlike_any_other_points_to_the_list():
    with pytest.raises(UnknownOperatorError, match="ingot ops"):
        lookup("zzzzzzzz")


def test_the_table_cannot_be_written_to():
    with pytest.raises(TypeError):
        table()["new"] = lookup("add")  # type: ignore[index]


# --- incomplete records -----------------------------------------------------------------------------------------------


def documented(b: Any, x: Operand) -> Any:
    """Says what it does."""
    return x


def undocumented(b: Any, x: Operand) -> Any:
    return x


def misannotated(b: Any, x: int) -> Any:
    """Says what it does."""
    return x


def add(b: Any, x: Operand) -> Any:
    """Says what it does."""
    return x


def decorated(kind: Kind, build: Callable[..., Any], **more: Any) -> Callable[[], Any]:
    return lambda: operator(kind, samples=operands(), eager="torch.relu", **more)(build)


def reference(torch: Any, x: Any) -> Any:
    return x


INCOMPLETE = {
    "no summary": decorated(Kind.COMPOSITE, undocumented),
    "no type rule": decorated(Kind.VIEW, documented, reference=reference),
    "no reference": decorated(Kind.VIEW, documented, infer=inference.same),
    "rules of a primitive": decorated(Kind.COMPOSITE, documented, infer=inference.same),
    "is no kind": decorated(Kind.COMPOSITE, misannotated),
    "defined twice": decorated(Kind.COMPOSITE, add),
    "has no summary": lambda: pointwise(
        "new",
        documented,
        "",
        infer=inference.pointwise(),
        samples=operands(),
        promotion=Promotion.ARITHMETIC,
        dtypes=COMPUTED,
        emit=THROUGH_PYTORCH,
    ),
    "new has no reference": lambda: structure(
        "new", Kind.FACTORY, "Makes something.", infer=inference.same, attributes=Attributes
    ),
}


@pytest.mark.parametrize("fault", INCOMPLETE)
def test_incomplete_record_is_refused_and_the_table_stays_as_it_was(fault: str):
    before = dict(table())
    with pytest.raises(TypeError, match=fault):
        INCOMPLETE[fault]()
    assert dict(table()) == before


def test_record_without_samples_or_eager_cannot_even_be_written():
    with pytest.raises(TypeError):
        operator(Kind.COMPOSITE)  # type: ignore[call-arg]
