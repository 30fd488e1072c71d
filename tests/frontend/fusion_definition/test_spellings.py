"""nvFuser's spellings: each is taken, and means what it means there."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from ingot import DataType, FusionCache, FusionDefinition, IngotError, LRUCache
from ingot.base.errors import (
    AbsentNameError,
    ArgumentValueError,
    DefinitionError,
    DTypeError,
    InputError,
    ShapeError,
    UnsupportedError,
)


def results_of(define, inputs=(), **options):
    """The results of a fusion that a function defines, by itself and printed and defined again."""
    with FusionDefinition() as fd:
        for value in define(fd):
            fd.add_output(value)
    scope = {"FusionDefinition": FusionDefinition, "DataType": DataType}
    exec(repr(fd), scope)
    with FusionDefinition() as again:
        scope["nvfuser_fusion"](again)
    assert again.graph == fd.graph
    assert repr(again) == repr(fd)
    fd.validate(list(inputs))
    return fd.execute(list(inputs), **options)


# --- values -----------------------------------------------------------------------------------------------------------


def test_values_have_methods_for_what_they_are():
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, 3], dtype=DataType.Half)
        n = fd.define_scalar(DataType.Int)
        y = x + n
        assert (x.ndim, x.num, y.num) == (2, 0, 2)
        assert (x.dtype(), n.dtype(), y.dtype()) == (DataType.Half, DataType.Int, DataType.Float)
        assert x.is_tensor() and not n.is_tensor()
        rows, columns = x.shape()
        assert len(x.shape()) == x.shape().size == 2
        fd.add_output(y + rows * columns)
    (result,) = fd.execute([torch.ones(2, 3).half(), 5])
    assert torch.equal(result, torch.full((2, 3), 12.0))


def test_sizes_are_operands_and_make_other_sizes():
    def define(fd):
        x = fd.define_tensor(2)
        rows, columns = fd.ops.shape(x)
        yield fd.ops.sum(x, [1]) / columns
        yield fd.ops.reshape(x, [rows * columns])
        yield fd.ops.full([fd.ops.div(rows + columns, 2)], fill_value=rows, dtype=DataType.Int)
        yield fd.ops.where(x > 0, x, columns)
        yield fd.ops.full([fd.ops.maximum(rows, columns)], 1.0, DataType.Float)

    x = torch.randn(4, 6)
    mean, flat, filled, chosen, longest = results_of(define, [x])
    torch.testing.assert_close(mean, x.mean(1))
    assert torch.equal(flat, x.reshape(-1))
    assert filled.tolist() == [4] * 5
    assert torch.equal(chosen, torch.where(x > 0, x, 6.0))
    assert longest.shape == (6,)


def test_scalars_and_vectors_take_types_by_position():
    def define(fd):
        given = fd.define_scalar(DataType.Int)
        known = fd.define_scalar(2, DataType.Float)
        assert (given.dtype(), known.dtype()) == (DataType.Int, DataType.Float)
        assert fd.define_scalar().dtype() is DataType.Double
        shape = fd.define_vector([given, 3], dtype=DataType.Int)
        sizes = fd.define_vector(2)
        yield fd.ops.full(shape, known, DataType.Float)
        yield fd.ops.full(sizes, known, DataType.Float)

    first, second = results_of(define, [4, 1.0, [2, 5]])
    assert (first.shape, second.shape) == ((4, 3), (2, 5))
    with pytest.raises(TypeError, match="a vector holds sizes"), FusionDefinition() as fd:
        fd.define_vector(2, DataType.Float)


def test_inputs_are_listed_in_order():
    with FusionDefinition() as fd:
        x, n, v = fd.define_tensor(1), fd.define_scalar(), fd.define_vector(2)
        fd.define_scalar(3.0)
        fd.add_output(x * n)
    assert fd.inputs() == [x, n, v]


def test_shifts_have_numbers_on_their_left():
    (left, right) = results_of(
        lambda fd: [1 << (x := fd.define_tensor(1, dtype=DataType.Int)), 256 >> x], [torch.tensor([1, 3])]
    )
    assert (left.tolist(), right.tolist()) == ([2, 8], [128, 32])


# --- operators --------------------------------------------------------------------------------------------------------


def test_keywords_of_shape_operators():
    def define(fd):
        x = fd.define_tensor([2, 3])
        yield fd.ops.slice(x, start_indices=[0, 1], end_indices=[2, 3], strides=[1, 1], manual_normalization=0)
        yield fd.ops.pad(x, [1, 0], fd.define_scalar(7, DataType.Int))
        wide = fd.ops.broadcast_in_dim(x, shape=[4, 2, 3], broadcast_dims=[1, 2])
        yield fd.ops.squeeze(wide * 2.0, dims=[0], squeeze_expanded=True)
        left, right = fd.ops.pad(x, [0, 3]), fd.ops.pad(x, [3, 0])
        yield fd.ops.cat([left, right], dim=1, manual_padding=True)
        yield fd.ops.cat([x, x], dim=0, manual_padding=False)

    x = torch.randn(2, 3)
    part, padded, narrow, joined, stacked = results_of(define, [x])
    assert torch.equal(part, x[:, 1:])
    assert torch.equal(padded, torch.nn.functional.pad(x, [1, 0], value=7.0))
    assert torch.equal(narrow, x * 2)
    assert torch.equal(joined, torch.cat([x, x], 1))
    assert torch.equal(stacked, torch.cat([x, x]))


@pytest.mark.parametrize(
    ("message", "statement"),
    [
        ("not inside an axis of 3", lambda fd, x: fd.ops.slice(x, [0, 0], [2, 9], manual_normalization=True)),
        ("not known to repeat", lambda fd, x: fd.ops.squeeze(x, [0], squeeze_expanded=True)),
        ("joins results of pad", lambda fd, x: fd.ops.cat([x, x], 0, manual_padding=True)),
        ("do not fill", lambda fd, x: fd.ops.cat([fd.ops.pad(x, [0, 3])], 1, manual_padding=True)),
        ("needs a length of at least 0, not -3", lambda fd, x: fd.ops.iota(-3)),
        ("cat needs at least one tensor", lambda fd, x: fd.ops.cat([])),
        ("cannot take 4 of the 3 elements", lambda fd, x: fd.ops.topk(x, 4)),
        ("given both or not at all", lambda fd, x: fd.ops.uniform(0.0, 1.0, [2], rng_seed=1)),
        ("is needed here that is known", lambda fd, x: fd.ops.var(x, [0], fd.define_scalar())),
        ("is at least 0 and below 1", lambda fd, x: fd.ops.sdpfa_fwd(*[_stack(fd, x)] * 3, dropout_p=1.0)),
        ("beyond the end", lambda fd, x: fd.ops.select(x, 5, 0)),
    ],
)
def test_what_makes_no_sense_is_refused(message, statement):
    with pytest.raises(IngotError, match=message), FusionDefinition() as fd:
        statement(fd, fd.define_tensor([2, 3]))


def _stack(fd, x):
    return fd.ops.broadcast(x, [True, False, False])


def test_a_data_type_right_after_the_tensor_is_the_type_of_the_result():
    def define(fd):
        x = fd.define_tensor([2, 3], dtype=DataType.Half)
        yield fd.ops.prod(x, DataType.Float)
        yield fd.ops.sum(x, DataType.Half)
        yield fd.ops.sum(x, dims=[0], dtype=DataType.Double)
        yield fd.ops.max(x, torch.float64)
        yield fd.ops.uniform(0.0, 1.0, [3], DataType.Double)

    results = results_of(define, [torch.rand(2, 3).half()])
    assert [result.dtype for result in results] == [
        torch.float32,
        torch.float16,
        torch.float64,
        torch.float64,
        torch.float64,
    ]


def test_scans_keep_half_types_and_take_an_initial_value():
    def define(fd):
        x = fd.define_tensor(1, dtype=DataType.BFloat16)
        yield fd.ops.cumsum(x, 0)
        yield fd.ops.cumsum(x, dim=0, init=fd.define_scalar(10.0))
        yield fd.ops.cumprod(fd.define_tensor(1), 0, 2.0)
        yield fd.ops.cummax(x, 0, init=2)

    x = torch.tensor([1.0, 2.0, 3.0])
    plain, raised, product, largest = results_of(define, [x.bfloat16(), x])
    assert plain.dtype is raised.dtype is torch.bfloat16
    assert plain.tolist() == [1.0, 3.0, 6.0]
    assert raised.tolist() == [11.0, 13.0, 16.0]
    assert product.tolist() == [2.0, 4.0, 12.0]
    assert largest.tolist() == [2.0, 2.0, 3.0]


def test_products_take_arg1_and_arg2():
    def define(fd):
        x, y, z = fd.define_tensor(2), fd.define_tensor(2), fd.define_tensor(1)
        yield fd.ops.matmul(arg1=x, arg2=y)
        yield fd.ops.linear(arg1=x, arg2=x, bias=z)

    x, y, z = torch.randn(3, 4), torch.randn(4, 5), torch.randn(3)
    product, linear = results_of(define, [x, y, z])
    torch.testing.assert_close(product, x @ y)
    torch.testing.assert_close(linear, torch.nn.functional.linear(x, x, z))


def test_random_numbers_depend_on_seed_and_offset_alone():
    def define(fd):
        seed, offset = fd.define_scalar(DataType.Int), fd.define_scalar(DataType.Int)
        yield fd.ops.uniform(minval=2.0, maxval=3.0, shape=[50, 40], rng_seed=seed, rng_offset=offset)
        yield fd.ops.normal(1.0, 2.0, [50, 40], rng_seed=seed, rng_offset=offset, dtype=DataType.Double)

    first, again = results_of(define, [7, 0]), results_of(define, [7, 0])
    assert all(map(torch.equal, first, again))
    for other in ([8, 0], [7, 1]):
        assert not any(map(torch.equal, first, results_of(define, other)))
    uniform, normal = first
    assert 2 <= uniform.min() < 2.01 < 2.99 < uniform.max() < 3
    assert abs(uniform.mean() - 2.5) < 0.03
    assert abs(normal.mean() - 1) < 0.2
    assert abs(normal.std() - 2) < 0.15
    assert normal.dtype is torch.float64


def test_select_takes_an_index_that_comes_with_the_call():
    def define(fd):
        x, index = fd.define_tensor(2), fd.define_scalar(dtype=DataType.Int)
        yield fd.ops.select(x, index, 0)
        yield fd.ops.select(x, index, dim=1)

    x = torch.randn(4, 6)
    for index in (0, 2, -1):
        rows, columns = results_of(define, [x, index])
        assert torch.equal(rows, x[index])
        assert torch.equal(columns, x[:, index])
    with pytest.raises(IngotError):
        results_of(define, [x, 9])


def test_stride_order_decides_how_a_result_lies():
    def define(fd):
        x = fd.define_tensor([2, 3, 4])
        yield fd.ops.stride_order(x + 1.0, stride_order=[0, 2, 1])
        yield fd.ops.stride_order(x, [0, 1, 2]) * 2.0

    x = torch.randn(2, 3, 4)
    laid_out, computed = results_of(define, [x])
    assert torch.equal(laid_out, x + 1)
    assert laid_out.stride() == (1, 8, 2)
    assert computed.is_contiguous()


def test_outputs_take_an_order_of_strides_or_an_alias_in_the_second_place():
    with FusionDefinition() as fd:
        x = fd.define_tensor([2, 3])
        fd.add_output(x * 2.0, [0, 1])
        fd.add_output(x + 1.0, x)
    x = torch.zeros(2, 3)
    (result,) = fd.execute([x])
    assert result.stride() == (1, 2)
    assert x.tolist() == [[1.0] * 3] * 2


def test_attention_is_that_of_pytorch_forward_and_backward():
    torch.manual_seed(0)
    query, key, value, gradient = (torch.randn(2, 3, 5, 8, requires_grad=True) for _ in range(4))

    def define(fd):
        q, k, v, g = (fd.define_tensor([2, 3, 5, 8]) for _ in range(4))
        causal, none = fd.define_scalar(True, dtype=DataType.Bool), fd.define_scalar(0.0)
        output, logarithm, seed, offset = fd.ops.sdpfa_fwd(q, k, v, none, causal, None)
        gradients = fd.ops.sdpfa_bwd(g, q, k, v, output, logarithm, none, causal, seed, offset, scale=None)
        yield from (output, *gradients)

    tensors = [tensor.detach() for tensor in (query, key, value, gradient)]
    output, *gradients = results_of(define, tensors)
    expected = torch.nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
    torch.testing.assert_close(output, expected.detach())
    wanted = torch.autograd.grad(expected, (query, key, value), gradient.detach())
    torch.testing.assert_close(tuple(gradients), wanted)


def test_dropout_of_attention_is_the_same_in_both_directions():
    def define(fd):
        q, k, v = (fd.define_tensor([1, 2, 64, 16]) for _ in range(3))
        output, logarithm, seed, offset = fd.ops.sdpfa_fwd(q, k, v, dropout_p=0.5)
        _, _, of_value = fd.ops.sdpfa_bwd(q, q, k, v, output, logarithm, 0.5, False, seed, offset, None)
        yield output
        yield of_value

    q, k = torch.randn(1, 2, 64, 16), torch.randn(1, 2, 64, 16)
    torch.manual_seed(3)
    output, of_value = results_of(define, [q, k, torch.ones(1, 2, 64, 16)])
    # With ones for values, each row of the output is the sum of the weights that are kept; with the gradient q, the sum
    # over keys of the gradient of the values is q times these sums.
    torch.testing.assert_close(of_value.sum(-2), (q * output).sum(-2))
    assert 0.1 < output.std() < 0.5


@pytest.mark.parametrize("value", [1e-38, 1e-20, 1e-3, 0.5, 1.0, 1.5, 1.999])
def test_inverse_of_erfc_is_right_far_out(value):
    (result,) = results_of(
        lambda fd: [fd.ops.erfc(fd.ops.erfcinv(fd.define_tensor(1, dtype=DataType.Double)))],
        [torch.tensor([value], dtype=torch.float64)],
    )
    assert math.isclose(result.item(), value, rel_tol=1e-12)


# --- executing --------------------------------------------------------------------------------------------------------


def doubling(**settings):
    with FusionDefinition(**settings) as fd:
        fd.add_output(fd.define_tensor(1) * 2.0)
    return fd


def test_options_of_execute_are_taken(capsys):
    fd, x = doubling(), torch.ones(3)
    for _ in range(3):
        options: dict[str, Any] = {
            "_enable_options": ["id_model"],
            "_disable_options": [],
            "override_user_schedule": True,
        }
        assert fd.execute([x], **options)[0].tolist() == [2.0] * 3
    assert capsys.readouterr().err == ""
    fd.execute([x], print_repro=True)
    assert "def nvfuser_fusion" in capsys.readouterr().err
    with pytest.raises(UnsupportedError, match="enable_profiling"):
        fd.execute([x], profile=True)
    with pytest.raises(TypeError, match="no option 'devise'"):
        fd.execute([x], devise="cpu")
    with pytest.raises(TypeError, match="is a list of names"):
        fd.execute([x], _enable_options="id_model")
    with pytest.raises(ValueError, match="0 or more"):
        fd.execute([x], device=-1)


def test_scripts_reproduce_calls():
    fd = doubling()
    with pytest.raises(DefinitionError, match="save_repro_inputs=True"):
        fd.last_repro_script()
    for size in (3, 5):
        fd.execute([torch.ones(size)], save_repro_inputs=True)
        assert f"make_tensor(({size},)" in fd.last_repro_script()
    assert fd.last_repro_script() == fd.repro_script_for([torch.ones(5)])
    scope = {}
    exec(fd.repro_script_for(), scope)
    assert scope["inputs"][0].shape == (2,)


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)])
def test_a_fusion_without_tensors_runs_where_the_definition_or_the_call_says(device):
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("there is no GPU")
    for of_definition, of_call in ((device, None), (None, device), ("cpu", device)):
        with FusionDefinition(device=of_definition) as fd:
            fd.add_output(fd.ops.iota(fd.define_scalar(DataType.Int)))
        for _ in range(3):
            (result,) = fd.execute([4], device=of_call)
            assert result.device.type == device
            assert result.tolist() == [0, 1, 2, 3]


def test_negative_length_at_a_call_is_an_error():
    with FusionDefinition() as fd:
        fd.add_output(fd.ops.iota(fd.define_scalar(DataType.Int)))
    with pytest.raises(InputError, match="-3"):
        fd.execute([-3])


def test_equal_definitions_have_one_number_and_valid_ones_say_nothing():
    first, second = doubling(), doubling()
    with FusionDefinition() as other:
        other.add_output(other.define_tensor(1) * 3.0)
    assert first.id() == second.id() != other.id()
    assert first.validate_definition() is None
    with pytest.raises(DefinitionError, match="nothing is defined"):
        FusionDefinition().validate_definition()


def test_caches_count_what_is_looked_up():
    cache, fd = LRUCache(2), doubling()
    first = cache.cache_compile(fd)
    assert cache.cache_compile(doubling()) is first
    assert first.execute([torch.ones(2)])[0].tolist() == [2.0, 2.0]
    assert cache.num_fusions() == 1
    assert "Total Lookups: 2\nCache Hits: 1\nHit Rate: 50.0%" in cache.stats()
    for factor in (3.0, 4.0):
        with FusionDefinition() as other:
            other.add_output(other.define_tensor(1) * factor)
        cache.cache_compile(other)
    assert cache.num_fusions() == 2


def test_the_one_fusion_cache_is_that_of_the_manager(capsys):
    cache = FusionCache.get()
    before = cache.num_fusions()
    with FusionDefinition() as fd:
        fd.add_output(fd.define_tensor(1) * 0.123)
    fd.execute([torch.ones(1)])
    assert FusionCache.get().num_fusions() == before + 1
    cache.print_stats()
    assert f"Total Fusions: {before + 1}" in capsys.readouterr().out
    FusionCache.reset()
    assert cache.num_fusions() == 0
    with pytest.raises(DefinitionError, match=r"FusionCache\.get\(\)"):
        FusionCache()


# --- errors -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "builtin", "statement"),
    [
        (ShapeError, ValueError, lambda fd: fd.define_tensor([3]) + fd.define_tensor([4])),
        (ShapeError, IndexError, lambda fd: fd.ops.sum(fd.define_tensor(1), [3])),
        (DTypeError, TypeError, lambda fd: fd.define_tensor(1) & 1.5),
        (DTypeError, TypeError, lambda fd: fd.ops.cast(fd.define_tensor(1), DataType.Float8_e4m3fn)),
        (ArgumentValueError, ValueError, lambda fd: fd.ops.slice(fd.define_tensor([3]), [0], [2], [0])),
        (AbsentNameError, AttributeError, lambda fd: fd.define_tensor(1).split(0, 4)),
    ],
)
def test_errors_are_caught_by_the_names_that_ported_code_has(kind, builtin, statement):
    for caught in (kind, builtin, RuntimeError):
        with pytest.raises(caught) as error, FusionDefinition() as fd:
            statement(fd)
        assert isinstance(error.value, IngotError)
    assert issubclass(InputError, ValueError)
