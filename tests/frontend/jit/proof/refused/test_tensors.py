"""Operations that must not be proven: they read values, or change or show what no recording keeps."""

from __future__ import annotations

from typing import Any

import numpy
import pytest
import torch
import torch.nn.functional as F

from tests.frontend.jit.proof.cases import Case, Cases, check_refused, tensor

refused = Cases()
ARRAY = numpy.ones(4, dtype=numpy.float32)


@refused(reason="reads the attribute 'mark' of a tensor")
def asks_what_may_be_an_argument_for_an_attribute(x):
    return x if hasattr(x.to(torch.float32), "mark") else x * 2


@refused(reason="values of a tensor")
def branches_on_values(x):
    return x * 2 if x.sum() > 0 else x


@refused(reason="values of a tensor")
def loops_on_values(x):
    while x.norm() > 1:
        x = x / 2
    return x


@refused()
def takes_an_item(x):
    return x * x.sum().item()


@refused(reason="value of a tensor")
def converts_to_a_number(x):
    return x * float(x.sum())


@refused()
def makes_a_list_of_values(x):
    return x * len(x.tolist())


@refused(reason="by a mask")
def selects_by_a_mask(x):
    return x[x > 0]


@refused()
def finds_nonzero(x):
    return torch.nonzero(x)


@refused()
def finds_unique(x):
    return torch.unique(x)


@refused()
def compares_values(x):
    return x * 2 if torch.equal(x, x) else x


@refused()
def asserts_about_values(x):
    return x * 2 if torch.allclose(x, x) else x


@refused()
def takes_a_value_into_text(x):
    name = f"{x.sum()}"
    return x * len(name)


@refused()
def leaves_for_numpy(x):
    return torch.from_numpy(x.numpy() * 2)


@refused()
def uses_a_numpy_array(x):
    return x * torch.as_tensor(ARRAY)


@refused()
def looks_for_a_tensor(x):
    return x * 2 if x in [x.clone(), x] else x


@refused(reason="'data_ptr'|data_ptr")
def asks_for_the_address(x):
    return x * (x.data_ptr() % 2)


@refused(reason="'grad'")
def reads_the_gradient(x):
    return x if x.grad is None else x + x.grad


@refused(reason="'_version'")
def reads_the_version(x):
    return x * x._version


@refused()
def sets_requires_grad(x):
    x.requires_grad_(False)
    return x * 2


@refused()
def hangs_on_a_tensor(x):
    x.seen = True
    return x * 2


@refused()
def registers_a_hook(x):
    y = x * 2
    y.register_hook(lambda gradient: gradient)
    return y


@refused()
def goes_backward(x):
    y = x.detach().requires_grad_()
    (y * 2).sum().backward()
    return y


@refused(reason="two objects")
def compares_identities_of_tensors(x):
    return x * 2 if x.contiguous() is x else x


@refused(tensor(3, 4).to_sparse())
def sparse_tensors(x):
    return x * 2


class Subclass(torch.Tensor):
    pass


@refused(tensor(3).as_subclass(Subclass))
def subclasses_of_tensors(x):
    return x * 2


@refused()
def drops_gradients_by_a_custom_function(x):
    return _Identity.apply(x)


class _Identity(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:  # type: ignore[override]
        return x.clone()


@refused()
def resizes(x):
    y = x.clone()
    y.resize_(2, 2)
    return y


@refused(reason="'out'")
def writes_into_out(x):
    y = torch.empty(0)
    torch.add(x, x, out=y)
    return y


@refused()
def encodes_by_values(x):
    return F.one_hot((x > 0).long())


@pytest.mark.parametrize("case", refused, ids=str)
def test_is_refused(case: Case):
    check_refused(case)
