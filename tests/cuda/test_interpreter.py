"""The core on an NVIDIA GPU: every operator against eager, passes bit for bit, devices that do not mix."""

from __future__ import annotations

import pytest
import torch

from ingot import DataType, FusionDefinition, IngotError
from ingot.base.errors import InputError
from ingot.ir.interpreter import Interpreter
from ingot.ops import Op, table
from ingot.passes.graph_passes import optimize
from tests.ops import generation
from tests.ops.generation import Refusal
from tests.property.random_graphs import seeded_graph

pytestmark = pytest.mark.cuda

PUBLIC = [op for op in table().values() if op.is_public]
SHAPES = ((3, 4), (2, 3, 5), (33,), (), (0, 3))


def on_gpu(value):
    return value.cuda() if isinstance(value, torch.Tensor) else value


@pytest.mark.parametrize("op", PUBLIC, ids=lambda op: op.name)
def test_operator_gives_on_the_gpu_what_it_gives_on_the_cpu(op: Op):
    """The CPU's results are compared with eager elsewhere; eager on a GPU has inaccuracies of its own."""
    assert op.samples is not None
    for shape in SHAPES:
        for sample in op.samples(shape)[:4]:
            for dtype in generation.DTYPES if generation.depends_on_dtype(sample) else generation.DTYPES[:1]:
                call = generation.with_tensors(sample, dtype, "transposed")
                graph = generation.attempt(lambda call=call: generation.graph_of(op, call), IngotError)
                if isinstance(graph, Refusal) or any(node.has_effect for node in graph.nodes):
                    continue
                gpu_call = generation.replace(call, torch.Tensor, on_gpu)
                actual = generation.attempt(lambda c=gpu_call, g=graph: generation.run_graph(g, c), IngotError)
                if isinstance(actual, Refusal):
                    assert actual.is_missing_kernel, actual.error
                    continue
                actual = [value.cpu() if isinstance(value, torch.Tensor) else value for value in actual]
                expected = generation.run_graph(graph, call)
                for ours, theirs in zip(actual, expected, strict=True):
                    about = f"for {dtype.text} {shape} {sample.keywords}"
                    # Which of 0.0 and -0.0 is the larger one differs between devices.
                    generation.assert_matches(ours, theirs, op.tolerance, signed_zeros=False, about=about)


@pytest.mark.parametrize("block", range(8))
def test_passes_keep_every_bit_on_the_gpu(block):
    compared = 0
    for seed in range(block * 40, (block + 1) * 40):
        drawn = seeded_graph(seed)
        outcomes = []
        for graph in (drawn.graph, optimize(drawn.graph).graph):
            arguments = [on_gpu(argument) for argument in drawn.arguments]
            torch.manual_seed(seed)
            try:
                results = Interpreter(graph).run(arguments, "cuda")
            except IngotError as error:
                outcomes.append(error)
                continue
            outcomes.append([*results, *arguments])
        if isinstance(outcomes[0], IngotError):
            continue  # the GPU lacks a kernel, for an operation that may be dead in the other graph
        assert not isinstance(outcomes[1], IngotError), f"{outcomes[1]}\n{drawn.graph.text}"
        for before, after in zip(*outcomes, strict=True):
            assert _identical(before, after), f"seed {seed}\n{drawn.graph.text}"
        compared += 1
    assert compared > 20


def _identical(before, after) -> bool:
    if not isinstance(before, torch.Tensor):
        return before == after or before != before
    if before.dtype is not after.dtype or before.shape != after.shape or before.device != after.device:
        return False
    same = (before == after) | ((before != before) & (after != after))
    if before.is_floating_point():
        same &= (torch.signbit(before) == torch.signbit(after)) | (before != before)
    return bool(same.all())


def test_fusion_runs_where_its_inputs_are():
    with FusionDefinition() as fd:
        x, y = fd.define_tensor(2, dtype=DataType.Half), fd.define_tensor(0)
        fd.add_output(fd.ops.softmax(x * y, -1))
    x = torch.randn(64, 128, device="cuda", dtype=torch.half)
    for y in (torch.tensor(2.0), torch.tensor(2.0, device="cuda")):
        (result,) = fd.execute([x, y])
        assert result.device == x.device
        torch.testing.assert_close(result, torch.softmax(x.float() * 2, -1))
    fd.validate([x, torch.tensor(2.0)])


def test_tensors_on_different_devices_are_refused():
    with FusionDefinition() as fd:
        fd.add_output(fd.define_tensor(1) + fd.define_tensor(1))
    with pytest.raises(InputError, match="input 1 is on cpu, but input 0 is on cuda:0; move them to one device"):
        fd.execute([torch.ones(2, device="cuda"), torch.ones(2)])


def test_random_numbers_follow_the_seed_of_the_gpu():
    with FusionDefinition() as fd:
        fd.add_output(fd.ops.rand_like(fd.define_tensor(1)))
    x = torch.empty(64, device="cuda")
    torch.manual_seed(5)
    (drawn,) = fd.execute([x])
    torch.manual_seed(5)
    assert torch.equal(drawn, torch.rand(64, device="cuda"))
