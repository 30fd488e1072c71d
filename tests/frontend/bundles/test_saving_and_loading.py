"""A bundle does what the function did that it was saved from."""

import os
from collections import namedtuple
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import BertConfig, BertModel

import ingot
from ingot.frontend.bundles.bundle_file import read_bundle
from ingot.frontend.bundles.trace_parser import parse_trace
from ingot.frontend.bundles.trace_text import trace_text
from tests.warm_processes import run_python

Pair = namedtuple("Pair", ["left", "right"])


@dataclass
class Outputs:
    hidden: torch.Tensor
    extra: Any = None


def _twice(function, examples, path):
    """What a function is saved to, and loaded again."""
    ingot.save(function, path, examples)
    return ingot.load(path)


def _same(one, other):
    """Compare tensors closely, plain values exactly, and containers by their names and lengths."""
    if isinstance(one, torch.Tensor):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)
    elif isinstance(one, dict):
        assert one.keys() == other.keys()
        _same([one[name] for name in one], [other[name] for name in one])
    elif isinstance(one, list | tuple):
        assert type(one).__name__ == type(other).__name__ and len(one) == len(other)
        for left, right in zip(one, other, strict=True):
            _same(left, right)
    else:
        assert type(one) is type(other) and one == other


def test_a_bundle_is_loaded_with_numerics_of_its_own(tmp_path, no_eager_comparison):
    def squares(x, target):
        return torch.nn.functional.mse_loss(x, target, reduction="none") * 2

    x, target = (torch.randn(64, 33, generator=torch.Generator().manual_seed(seed)).bfloat16() for seed in (0, 1))
    ingot.save(ingot.jit(squares), tmp_path / "squares.ingot", (x, target))
    loaded = ingot.load(tmp_path / "squares.ingot", numerics="eager")
    for _ in range(3):
        assert torch.equal(loaded(x, target), squares(x, target))
    with pytest.raises(ingot.IngotError, match="numerics must be one of"):
        ingot.load(tmp_path / "squares.ingot", numerics="exact")  # pyright: ignore[reportArgumentType]


def _nested(x, options):
    return {"pair": Pair(x * 2, [x + 1, "text"]), "rest": (None, 2.5, torch.float16, options["flag"])}


def _in_place(x, y):
    x.mul_(2).add_(y)
    return x, x[0], y.view(-1)


def _random(x):
    return torch.nn.functional.dropout(x, 0.5) + torch.randn(3, 4)


def _made(x):
    return x + torch.arange(4) + torch.tensor([1.0, 2.0, 3.0, 4.0]) * torch.full((4,), 0.5)


def _fresh(*shape):
    torch.manual_seed(1)
    return torch.randn(*shape)


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        (_nested, lambda: (_fresh(3, 4), {"flag": True})),
        (_in_place, lambda: (_fresh(3, 4), _fresh(3, 4) + 1)),
        (_random, lambda: (_fresh(3, 4),)),
        (_made, lambda: (_fresh(3, 4),)),
        (lambda x: Outputs(torch.softmax(x, -1)), lambda: (_fresh(3, 4),)),
        (lambda x: torch.max(x, 1), lambda: (_fresh(3, 4),)),
        (lambda x: x.t() @ x, lambda: (_fresh(4, 3).t(),)),
    ],
    ids=["nested", "in_place", "random", "factories", "dataclass", "named_tuple", "strides"],
)
def test_calls_do_what_eager_does(function, arguments, tmp_path):
    loaded = _twice(ingot.jit(function, python="skip"), arguments(), tmp_path / "f.ingot")
    given: Any = None
    result: Any = None
    for seed in range(4):
        given, expected_from = arguments(), arguments()
        torch.manual_seed(seed)
        expected = function(*expected_from)
        torch.manual_seed(seed)
        result = loaded(*given)
        if isinstance(expected, Outputs):
            assert result.extra is None and result["hidden"] is result[0]
            result, expected = result.hidden, expected.hidden
        _same(result, expected)
        _same(given, expected_from)  # what is written in place
    if function is _in_place:
        assert result[0] is given[0] and result[1]._base is not None
        assert result[2].data_ptr() == given[1].data_ptr()


def test_a_default_dtype_of_the_loading_process_changes_nothing(tmp_path):
    loaded = _twice(lambda x: x + torch.ones(3), torch.zeros(3), tmp_path / "f.ingot")
    zeros = torch.zeros(3)
    torch.set_default_dtype(torch.float64)
    try:
        assert loaded(zeros).dtype is torch.float32
    finally:
        torch.set_default_dtype(torch.float32)


def test_sizes_in_which_examples_differ_stay_open(tmp_path):
    model = torch.nn.Sequential(torch.nn.Linear(8, 6), torch.nn.LayerNorm(6), torch.nn.GELU()).eval()
    loaded = _twice(ingot.jit(model), [(torch.randn(3, 8),), (torch.randn(5, 8),)], tmp_path / "f.ingot")
    assert len(loaded.recordings) == 1 and "{size0}" in loaded.signature
    for rows in (2, 7, 7, 31, 4):
        x = torch.randn(rows, 8)
        _same(loaded(x), model(x).detach())
    assert loaded.recordings[0].function.recordings == 1
    with pytest.raises(ingot.IngotError, match="at least 2, not 1"):
        loaded(torch.randn(1, 8))


def test_examples_that_cannot_be_one_recording_are_several(tmp_path):
    function = lambda x, scale=1.0: (x * scale).sum(-1)
    examples = [(torch.ones(3),), (torch.ones(2, 3),), {"x": torch.ones(3), "scale": 2.0}]
    loaded = _twice(ingot.jit(function), examples, tmp_path / "f.ingot")
    assert len(loaded.recordings) == 3
    _same(loaded(torch.ones(3)), torch.tensor(3.0))
    _same(loaded(torch.ones(2, 3)), torch.full((2,), 3.0))
    _same(loaded(scale=2.0, x=torch.ones(3)), torch.tensor(6.0))
    with pytest.raises(ingot.IngotError, match=r"argument 1 must be 2\.0.*not 3\.0"):
        loaded(torch.ones(3), 3.0)


def test_saving_leaves_no_trace_and_buffers_are_written_as_eager_writes_them(tmp_path):
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.BatchNorm1d(8), torch.nn.Dropout(0.3))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    x = torch.randn(4, 8)
    state = torch.get_rng_state()
    loaded = _twice(model, x, tmp_path / "f.ingot")
    assert torch.equal(state, torch.get_rng_state())
    _same(model.state_dict(), before)
    _same(dict(loaded.state_dict()), before)
    for seed in range(4):
        torch.manual_seed(seed)
        expected = model(x).detach()
        torch.manual_seed(seed)
        _same(loaded(x), expected)
        _same(dict(loaded.state_dict()), dict(model.state_dict()))


def test_weights_can_be_read_and_loaded_but_not_converted(tmp_path):
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU()).eval()
    loaded = _twice(model, torch.randn(2, 4), tmp_path / "f.ingot")
    other = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU()).eval()
    x = torch.randn(2, 4)
    for _ in range(3):
        loaded(x)
    loaded.load_state_dict(other.state_dict())
    _same(loaded(x), other(x).detach())
    assert [name for name, _ in loaded.named_parameters()] == ["0.weight", "0.bias"]
    assert "kernel" in loaded.explain() or "product" in loaded.explain()
    assert loaded.eval() is loaded
    for refused in (loaded.half, loaded.train, lambda: setattr(loaded.get_submodule("0"), "weight", None)):
        with pytest.raises(ingot.IngotError):
            refused()


def test_tensors_that_share_memory_share_it_again(tmp_path):
    class Tied(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.table = torch.nn.Parameter(torch.randn(6, 4))
            whole = torch.arange(8.0)
            self.register_buffer("whole", whole)
            self.register_buffer("part", whole[2:6])
            self.register_buffer("across", torch.randn(3, 4).t())

        def forward(self: Any, x):
            self.part.add_(1)
            return x @ self.table.t() @ self.table + self.whole.sum() + self.across.sum(1)

    model: Any = Tied().eval()
    loaded: Any = _twice(ingot.jit(model), torch.ones(2, 4), tmp_path / "f.ingot")
    for _ in range(3):
        _same(loaded(torch.ones(2, 4)), model(torch.ones(2, 4)).detach())
    assert torch.equal(loaded.whole, model.whole) and loaded.across.stride() == model.across.stride()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((torch.ones(2, 4),), r"recorded for calls like \(\*, \*\), not \(\*\)"),
        ((torch.ones(2, 4), [torch.ones(2, 4)]), r"not \(\*, \[\*\]\)"),
        ((torch.ones(2, 4), 3), "must be a tensor"),
        ((torch.ones(2, 4), torch.ones(2, 4).double()), r"float32\[2, 4\], not float64\[2, 4\]"),
        ((torch.ones(2, 4), torch.ones(2, 5)), r"not float32\[2, 5\]"),
        ((torch.ones(2, 4), torch.ones(4)), r"not float32\[4\]"),
        ((torch.ones(2, 4), torch.ones(2, 4, device="meta")), r"on .meta"),
        ((torch.ones(2, 4), torch.ones(2, 4, requires_grad=True)), "no_grad"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(arguments, message, tmp_path):
    loaded = _twice(lambda x, y: x + y, (torch.ones(2, 4), torch.ones(2, 4)), tmp_path / "f.ingot")
    with pytest.raises(ingot.IngotError, match=message):
        loaded(*arguments)


def test_a_tensor_that_was_passed_twice_has_to_be_passed_twice(tmp_path):
    x = torch.ones(3)
    loaded = _twice(lambda x, y: x * 2 + y, (x, x), tmp_path / "f.ingot")
    _same(loaded(x, x), torch.full((3,), 3.0))
    with pytest.raises(ingot.IngotError, match="the same tensor"):
        loaded(x, torch.ones(3))


def test_arguments_of_another_layout_are_copied_unless_that_can_be_noticed(tmp_path):
    across = torch.randn(4, 3).t()
    loaded = _twice(lambda x: x.reshape(-1) * 2, torch.randn(3, 4), tmp_path / "f.ingot")
    _same(loaded(across), across.reshape(-1) * 2)
    written = _twice(lambda x: x.add_(1), torch.randn(3, 4), tmp_path / "f.ingot")
    with pytest.raises(ingot.IngotError, match="cannot copy it"):
        written(across)


def _prints(x):
    print("a side effect")
    return x + 1


def _decides(x):
    return x + 1 if x.sum() > 0 else x


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (_prints, r"Python would have to run: .*\(.*test_saving_and_loading\.py:\d+\)"),
        (_decides, r"decides by the value of a tensor.*test_saving_and_loading\.py:\d+"),
        (ingot.jit(_made, python="run"), 'python="run"'),
        (lambda x: x[x > 0], "Python would have to run"),
    ],
    ids=["effect", "branch", "run", "sizes"],
)
def test_what_a_recording_does_not_tell_is_not_saved(function, message, tmp_path, capsys):
    with pytest.raises(ingot.IngotError, match=message):
        ingot.save(function, tmp_path / "f.ingot", torch.ones(3, 4))
    assert os.listdir(tmp_path) == []


def test_the_text_of_a_trace_parses_back(tmp_path):
    ingot.save(lambda x: _in_place(x, x + 1), tmp_path / "f.ingot", [torch.ones(3, 4), torch.ones(5, 4)])
    (text,) = read_bundle(tmp_path / "f.ingot").traces
    assert "aten.mul_.Tensor(%0, 2)" in text and "{size0}" in text
    assert trace_text(parse_trace(text)) == text


_ELSEWHERE = """
import sys, torch, ingot
sys.modules["transformers"] = None  # importing it is an ImportError
from pathlib import Path
folder = Path(sys.argv[1])
loaded = ingot.load(folder / "bert.ingot")
given = torch.load(folder / "given.pt")
for _ in range(3):
    result = loaded(input_ids=given["ids"])
torch.testing.assert_close(result.last_hidden_state, given["hidden"], atol=1e-5, rtol=1e-4)
torch.testing.assert_close(result["pooler_output"], given["pooled"], atol=1e-5, rtol=1e-4)
for rows in (2, 5):
    more = loaded(given["ids"][:1].repeat(rows, 1))
    torch.testing.assert_close(more[0][-1], given["hidden"][0], atol=1e-5, rtol=1e-4)
print("same")
"""


def test_a_bert_runs_in_a_process_that_cannot_import_its_code(tmp_path: Path):
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=200, hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128
    )
    model = BertModel(config).eval()
    ids = torch.randint(0, 200, (2, 16))
    with torch.no_grad():
        expected = model(ids)
    ingot.save(ingot.jit(model), tmp_path / "bert.ingot", [{"input_ids": ids}, {"input_ids": ids.repeat(3, 1)}])
    given = {"ids": ids, "hidden": expected.last_hidden_state, "pooled": expected.pooler_output}
    torch.save(given, tmp_path / "given.pt")
    done = run_python("-c", _ELSEWHERE, str(tmp_path))
    assert done.stdout == "same\n", done.stderr
