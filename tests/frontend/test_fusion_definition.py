"""FusionDefinition as its users meet it: defining, executing, looking inside."""

import inspect
import os
import pydoc
import re

import pytest
import torch

import ingot
from ingot import DataType, FusionDefinition, FusionManager
from ingot.base.errors import ValidationError
from ingot.ops import table
from tests.warm_processes import run_python


def define_readme_fusion(manager=None):
    with FusionDefinition(manager) as fd:
        t0 = fd.define_tensor(symbolic_sizes=[-1, 1, -1], contiguous=[True, True, True], dtype=DataType.Float)
        t1 = fd.define_tensor(3)
        c0 = fd.define_constant(3.0)
        t2 = fd.ops.add(t0, t1)
        t3 = fd.ops.mul(t2, c0)
        t4 = fd.ops.sum(t3, [-1], False, DataType.Float)
        fd.add_output(t4)
    return fd


def rebuild(fd):
    """Execute the printed definition as Python."""
    scope = {"FusionDefinition": FusionDefinition, "DataType": DataType}
    exec(repr(fd), scope)
    with FusionDefinition() as again:
        scope["nvfuser_fusion"](again)
    return again


# --- executing --------------------------------------------------------------------------------------------------------


def test_readme_example_runs_for_any_sizes_without_a_new_definition():
    manager = FusionManager.get()
    define_readme_fusion(manager)
    for rows, columns, depth in [(2, 4, 8), (3, 5, 7), (6, 2, 3), (0, 3, 2), (2, 0, 2), (2, 2, 0)]:
        first, second = torch.randn(rows, 1, depth), torch.randn(rows, columns, depth)
        (result,) = manager.execute([first, second])
        torch.testing.assert_close(result, ((first + second) * 3).sum(-1))


def test_symbolic_size_that_turns_out_to_be_one_broadcasts():
    fd = define_readme_fusion()
    first, second = torch.randn(1, 1, 8), torch.randn(4, 5, 8)
    torch.testing.assert_close(fd.execute([first, second])[0], ((first + second) * 3).sum(-1))
    first, second = torch.randn(4, 1, 1), torch.randn(1, 5, 8)
    torch.testing.assert_close(fd.execute([first, second])[0], ((first + second) * 3).sum(-1))


def test_symbolic_size_that_turns_out_to_be_zero_gives_what_eager_gives():
    with FusionDefinition() as fd:
        fd.add_output(fd.ops.softmax(fd.define_tensor(2), -1))
    for shape in [(4, 0), (0, 4), (0, 0)]:
        assert fd.execute([torch.ones(shape)])[0].shape == shape


def test_sizes_taken_from_a_broadcast_input_follow_it():
    with FusionDefinition() as fd:
        x, y = fd.define_tensor(2), fd.define_tensor(2)
        fd.add_output(fd.ops.reshape(fd.ops.add(x, y), [x.shape()[0] * y.shape()[1]]))
    x, y = torch.randn(3, 4), torch.randn(3, 4)
    assert torch.equal(fd.execute([x, y])[0], (x + y).reshape(-1))
    x = torch.randn(3, 1)
    assert torch.equal(fd.execute([x, y])[0], (x + y).reshape(-1))
    assert rebuild(fd).graph.digest == fd.graph.digest


def test_results_are_a_list_in_order_and_inputs_may_be_a_tuple():
    with FusionDefinition() as fd:
        x = fd.define_tensor(1)
        scale = fd.define_scalar()
        fd.add_output(x * scale)
        fd.add_output(x + scale)
    x = torch.randn(4)
    results = fd.execute((x, 2.5))
    assert isinstance(results, list)
    assert torch.equal(results[0], x * 2.5)
    assert torch.equal(results[1], x + 2.5)
    assert torch.equal(fd.execute([x, 7])[0], x * 7)


def test_half_arithmetic_yields_float_until_cast():
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1], dtype=DataType.BFloat16)
        wide = x * x
        fd.add_output(wide)
        fd.add_output(fd.ops.cast(wide, DataType.BFloat16))
        fd.add_output(fd.ops.permute(fd.ops.broadcast(x, [False, True]), [1, 0]))
    x = torch.randn(9).bfloat16()
    wide, narrow, moved = fd.execute([x])
    assert wide.dtype is torch.float32
    assert torch.equal(wide, x.float() * x.float())
    assert torch.equal(narrow, x * x)
    assert moved.dtype is torch.bfloat16


def test_div_truncates_integers_and_truediv_does_not():
    with FusionDefinition() as fd:
        x, y = (fd.define_tensor(1, dtype=DataType.Int) for _ in range(2))
        fd.add_output(fd.ops.div(x, y))
        fd.add_output(fd.ops.truediv(x, y))
        fd.add_output(x / y)
    quotient, exact, operator = fd.execute([torch.tensor([7, -7]), torch.tensor([2, 2])])
    assert quotient.tolist() == [3, -3]
    assert exact.tolist() == operator.tolist() == [3.5, -3.5]


def test_reductions_take_axes_dims_and_dim():
    with FusionDefinition() as fd:
        x = fd.define_tensor(3)
        for keywords in ({"axes": [0, 2]}, {"dims": [0, 2]}, {"axes": [-3, -1]}):
            fd.add_output(fd.ops.sum(x, **keywords))
        fd.add_output(fd.ops.max(x, dim=1, keep_dim=True))
        variance, mean = fd.ops.var_mean(x, dims=[1], correction=0)
        fd.add_output(variance)
        fd.add_output(mean)
    x = torch.randn(2, 3, 4)
    *sums, largest, variance, mean = fd.execute([x])
    for result in sums:
        torch.testing.assert_close(result, x.sum((0, 2)))
    assert torch.equal(largest, x.amax(1, keepdim=True))
    torch.testing.assert_close((variance, mean), torch.var_mean(x, 1, correction=0))


def test_aliased_output_is_written_in_place_and_not_returned():
    with FusionDefinition() as fd:
        x, counter = fd.define_tensor(1), fd.define_tensor(1)
        fd.add_output(counter + 1, alias_input=counter)
        fd.add_output(x * counter)
    x, counter = torch.randn(4), torch.zeros(4)
    for count in range(3):
        (result,) = fd.execute([x, counter])
        assert torch.equal(result, x * count)
        assert counter.tolist() == [count + 1.0] * 4


def test_aliases_are_written_after_everything_is_computed():
    with FusionDefinition() as fd:
        x, y = fd.define_tensor(1), fd.define_tensor(1)
        fd.add_output(y, alias_input=x)
        fd.add_output(x, alias_input=y)
    x, y = torch.tensor([1.0]), torch.tensor([2.0])
    assert fd.execute([x, y]) == []
    assert (x.item(), y.item()) == (2.0, 1.0)


def test_results_never_share_memory_with_inputs_or_each_other():
    with FusionDefinition() as fd:
        x = fd.define_tensor(2)
        fd.add_output(x)
        fd.add_output(x)
        fd.add_output(fd.ops.permute(x, [1, 0]))
    x = torch.randn(3, 4)
    results = fd.execute([x])
    pointers = {tensor.data_ptr() for tensor in (x, *results)}
    assert len(pointers) == 4
    assert all(tensor.is_contiguous() for tensor in results)


def test_batch_norm_in_training_updates_running_statistics_in_place():
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1, 3, -1])
        mean, var = fd.define_tensor(shape=[3]), fd.define_tensor(shape=[3])
        output, _, _ = fd.ops.batch_norm(x, running_mean=mean, running_var=var, training=True)
        fd.add_output(output)
    x = torch.randn(4, 3, 5)
    mean, var = torch.zeros(3), torch.ones(3)
    expected_mean, expected_var = mean.clone(), var.clone()
    (output,) = fd.execute([x, mean, var])
    expected = torch.nn.functional.batch_norm(x, expected_mean, expected_var, training=True)
    torch.testing.assert_close((output, mean, var), (expected, expected_mean, expected_var))
    assert rebuild(fd).graph.digest == fd.graph.digest


def test_output_is_laid_out_in_the_stride_order_asked_for():
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[2, 3, 4, 5])
        fd.add_output(x * 2, stride_order=[3, 0, 2, 1])
    x = torch.randn(2, 3, 4, 5)
    (result,) = fd.execute([x])
    assert torch.equal(result, x * 2)
    assert result.stride() == x.to(memory_format=torch.channels_last).stride()
    assert rebuild(fd).graph.digest == fd.graph.digest


def test_vector_and_scalar_inputs_decide_shapes():
    with FusionDefinition() as fd:
        x = fd.define_tensor(1)
        shape = fd.define_vector(2)
        count = fd.define_scalar(dtype=DataType.Int)
        fd.add_output(fd.ops.broadcast_in_dim(x, shape, [1]))
        fd.add_output(fd.ops.full([count, 2], 1.5, DataType.Float))
        fd.add_output(fd.ops.full([shape[0] * 2], count, DataType.Int))
    x = torch.randn(3)
    wide, filled, counted = fd.execute([x, [4, 3], 5])
    assert torch.equal(wide, x.expand(4, 3))
    assert filled.shape == (5, 2)
    assert counted.tolist() == [5] * 8
    assert rebuild(fd).graph.digest == fd.graph.digest


def test_define_tensor_takes_every_spelling():
    t = torch.randn(4, 1, 6).transpose(0, 2)
    with FusionDefinition() as fd:
        handles = [
            fd.define_tensor(3),
            fd.define_tensor([-1, 1, -1]),
            fd.define_tensor(shape=[-1, 1, -1], contiguity=[True, None, True], dtype=DataType.Float),
            fd.define_tensor(shape=[-1, 1, -1], stride_order=[0, 1, 2], is_cpu=False),
            fd.define_tensor(symbolic_sizes=[6, 1, 4], contiguous=[True, True, True]),
            fd.define_tensor(sizes=t.size(), strides=t.stride()),
            fd.define_tensor(sizes=t.size(), strides=t.stride(), static_sizes=True),
            fd.from_pytorch(t),
            fd.define_tensor(ndims=3, dtype=torch.float32),
            fd.define_tensor([-1, 1, -1], [], DataType.Float, False, []),
        ]
        total = handles[0]
        for handle in handles[1:]:
            total = total + handle
        fd.add_output(total)
    torch.testing.assert_close(fd.execute([t] * len(handles))[0], t * len(handles))
    again = rebuild(fd)
    assert again.graph.digest == fd.graph.digest
    assert repr(again) == repr(fd)


def test_subclass_with_definition_method_needs_no_with_block():
    class Doubling(FusionDefinition):
        def definition(self):
            self.add_output(self.define_tensor(1) * 2)

    fd = Doubling()
    assert fd.execute([torch.ones(3)])[0].tolist() == [2.0, 2.0, 2.0]


def test_inputs_of_any_layout_are_read_as_they_are():
    fd = define_readme_fusion()
    base = torch.randn(6, 8, 10)
    first, second = base[::3, 1:2, ::2], base.permute(0, 2, 1)[::3, :4, :5]
    torch.testing.assert_close(fd.execute([first, second])[0], ((first + second) * 3).sum(-1))
    expanded = torch.randn(1).expand(2, 4, 5)
    torch.testing.assert_close(fd.execute([first, expanded])[0], ((first + expanded) * 3).sum(-1))


def test_parameters_that_require_gradients_are_taken_and_results_do_not():
    fd = define_readme_fusion()
    (result,) = fd.execute([torch.nn.Parameter(torch.ones(2, 1, 3)), torch.ones(2, 2, 3)])
    assert not result.requires_grad


def test_scalar_output_is_a_number_and_device_is_needed_only_without_tensors():
    with FusionDefinition() as fd:
        n = fd.define_scalar(dtype=DataType.Int)
        fd.add_output(n * 2)
        fd.add_output(fd.ops.iota(n, 0, 3))
    doubled, counted = fd.execute([4], device="cpu")
    assert doubled == 8
    assert counted.tolist() == [0, 3, 6, 9]


def test_random_numbers_come_from_torchs_generator():
    with FusionDefinition() as fd:
        x = fd.define_tensor(2)
        fd.add_output(fd.ops.rand_like(x))
        fd.add_output(fd.ops.randn_like(x))
    x = torch.empty(3, 4)
    torch.manual_seed(7)
    uniform, normal = fd.execute([x])
    torch.manual_seed(7)
    assert torch.equal(uniform, torch.rand(3, 4))
    assert torch.equal(normal, torch.randn(3, 4))
    fd.validate([x])


# --- caching ----------------------------------------------------------------------------------------------------------


def test_defining_the_same_fusion_again_finds_the_compiled_one():
    manager = FusionManager.get()
    first = define_readme_fusion(manager).module
    kept = len(manager)
    assert define_readme_fusion(manager).module is first
    assert len(manager) == kept


def test_manager_is_one_and_cannot_be_constructed():
    assert FusionManager.get() is FusionManager.get()
    with pytest.raises(ingot.IngotError, match=r"FusionManager\.get\(\)"):
        FusionManager()


def test_manager_prints_the_definition_made_last(capsys):
    manager = FusionManager.get()
    fd = define_readme_fusion(manager)
    manager.print_ir()
    assert capsys.readouterr().out.strip() == fd.graph.text


# --- looking inside ---------------------------------------------------------------------------------------------------


def test_help_lists_every_operator_with_its_signature():
    text = pydoc.plain(pydoc.render_doc(FusionDefinition.Operators))
    for op in table().values():
        if op.is_public:
            assert re.search(rf"\b{op.name}\([\s|]*self,", text), "in one line or in several, as Python has it"
            assert op.summary.splitlines()[0] in text
    assert (
        str(inspect.signature(vars(FusionDefinition.Operators)["sum"]))
        == "(self, x, axes=None, keepdim=False, dtype=None)"
    )


def test_repro_script_runs(tmp_path):
    fd = define_readme_fusion()
    script = tmp_path / "repro.py"
    script.write_text(fd.repro_script_for([torch.ones(2, 1, 3), torch.ones(2, 3, 4).mT]))
    done = run_python(str(script))
    assert done.returncode == 0, done.stderr
    assert "tensor" in done.stdout


def run_with_dump(words, code):
    return run_python("-c", code, env={**os.environ, "INGOT_DUMP": words})


def test_dump_prints_every_stage():
    code = (
        "import torch\n"
        "from ingot import FusionDefinition\n"
        "with FusionDefinition() as fd:\n"
        "    fd.add_output(fd.ops.relu(fd.define_tensor(1)) * 1.0)\n"
        "fd.execute([torch.ones(1)])"
    )
    done = run_with_dump("python_definition", code)
    assert "def nvfuser_fusion(fd: FusionDefinition) -> None:" in done.stderr
    assert "fd.ops.relu(T0)" in done.stderr
    done = run_with_dump("graph,passes,optimized_graph", code)
    assert "%2 = mul(%1, 1.0:f32): f32[s0]" in done.stderr
    assert "algebraic_simplification: changed 1, removed 1" in done.stderr
    assert done.stderr.count("graph(%0: f32[s0]) {") == 2


def test_dump_refuses_unknown_words():
    code = "from ingot import FusionDefinition\nwith FusionDefinition() as fd: fd.add_output(fd.define_tensor(1))"
    done = run_with_dump("everything", code)
    assert done.returncode != 0
    assert "python_definition" in done.stderr


def test_validate_passes_for_a_right_fusion_and_leaves_inputs_alone():
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1, -1], dtype=DataType.Half)
        fd.add_output(fd.ops.softmax(x, -1))
        fd.add_output(x * 2, alias_input=None)
    x = torch.randn(3, 5).half()
    before = x.clone()
    results = fd.validate([x])
    assert torch.equal(x, before)
    torch.testing.assert_close(results[0], torch.softmax(x.float(), -1))


def test_validate_finds_a_wrong_result():
    fd = define_readme_fusion()
    first, second = torch.randn(2, 1, 3), torch.randn(2, 4, 3)
    with pytest.raises(ValidationError, match="result 0 differs from its reference in 8 of 8 elements"):
        fd.validate([first, second], reference_outputs=[((first + second) * 3).sum(-1) + 1])
    with pytest.raises(ValidationError, match="shape"):
        fd.validate([first, second], reference_outputs=[torch.zeros(3)])
