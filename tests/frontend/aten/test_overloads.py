"""Overloads that write, and the functional ones that return what they write."""

from __future__ import annotations

import pytest
import torch

from ingot.frontend.aten import functional_form, lowering_for

aten = torch.ops.aten


@pytest.mark.parametrize(
    ("writing", "functional", "written"),
    [
        (aten.add_.Tensor, aten.add.Tensor, "self"),
        (aten.add.out, aten.add.Tensor, "out"),
        (aten.sum.IntList_out, aten.sum.dim_IntList, "out"),
        (aten.mul_.Scalar, aten.mul.Scalar, "self"),
        (aten.__iand__.Tensor, aten.__and__.Tensor, "self"),
        (aten.copy_.default, aten.copy.default, "self"),
        (aten.fill_.Scalar, aten.fill.Scalar, "self"),
        (aten.fill_.Tensor, aten.fill.Tensor, "self"),
        (aten.zero_.default, aten.zero.default, "self"),
        (aten.clamp_min_.Tensor, aten.clamp_min.Tensor, "self"),
        (aten.div_.Tensor_mode, aten.div.Tensor_mode, "self"),
        (aten.eq_.Scalar, aten.eq.Scalar, "self"),
    ],
    ids=str,
)
def test_what_is_written_is_what_the_functional_overload_returns(writing, functional, written):
    assert functional_form(writing) == (functional, written)
    assert lowering_for(functional) is not None


@pytest.mark.parametrize(
    "overload",
    [
        aten.add.Tensor,
        aten.max.dim_max,
        aten.transpose_.default,
        aten.squeeze_.dim,
        aten.normal_.default,
        aten.bernoulli_.float,
        aten._native_batch_norm_legit.default,
        aten.set_.source_Tensor,
        aten.resize_.default,
    ],
    ids=str,
)
def test_overloads_without_one_written_result_have_no_functional_form(overload):
    assert functional_form(overload) is None


def test_no_functional_form_writes_anything():
    for name in dir(aten):
        packet = getattr(aten, name)
        for overload in getattr(packet, "overloads", list)():
            found = functional_form(getattr(packet, overload))
            assert found is None or not found[0]._schema.is_mutable
