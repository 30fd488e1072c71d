"""Whole ONNX models, compiled, give what onnxruntime gives."""

import io
from collections.abc import Callable
from typing import Any

import numpy
import pytest
import torch

pytest.importorskip("onnx")

import onnx
from onnx import TensorProto, helper

import ingot
from tests.frontend.onnx.building import compare, floats, model_of, reference, tensors

node = helper.make_node
MODELS: dict[str, Callable[[], tuple[Any, dict[str, Any]]]] = {}


def model(build: Callable[[], tuple[Any, dict[str, Any]]]) -> Callable[[], tuple[Any, dict[str, Any]]]:
    MODELS[build.__name__] = build
    return build


def ints(*values: int) -> Any:
    return numpy.array(values, numpy.int64)


@model
def perceptron():
    nodes = [
        node("Gemm", ["x", "w1", "b1"], ["h"], transB=1),
        node("Relu", ["h"], ["r"]),
        node("MatMul", ["r", "w2"], ["m"]),
        node("Add", ["m", "b2"], ["a"]),
        node("Softmax", ["a"], ["y"], axis=-1),
    ]
    weights = {"w1": floats(16, 8), "b1": floats(16), "w2": floats(16, 5), "b2": floats(5)}
    inputs = {"x": floats(3, 8)}
    return model_of(nodes, inputs, ["y"], weights, sizes={"x": ["batch", 8]}), inputs


@model
def convolutions():
    nodes = [
        node("Conv", ["x", "w1", "b1"], ["c"], pads=[1, 1, 1, 1]),
        node("BatchNormalization", ["c", "s", "b", "m", "v"], ["n"]),
        node("Relu", ["n"], ["r"]),
        node("MaxPool", ["r"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        node("Conv", ["p", "w2"], ["d"], group=2, auto_pad="SAME_UPPER"),
        node("Add", ["d", "p"], ["e"]),
        node("GlobalAveragePool", ["e"], ["g"]),
        node("Flatten", ["g"], ["f"]),
        node("Gemm", ["f", "w3", "b3"], ["y"], transB=1),
    ]
    weights = {"w1": floats(8, 3, 3, 3), "b1": floats(8), "w2": floats(8, 4, 3, 3), "w3": floats(4, 8), "b3": floats(4)}
    weights |= {"s": floats(8), "b": floats(8, seed=1), "m": floats(8, seed=2), "v": numpy.abs(floats(8, seed=3))}
    inputs = {"x": floats(2, 3, 12, 12)}
    return model_of(nodes, inputs, ["y"], weights, 14), inputs


@model
def recurrent():
    nodes = [
        node("LSTM", ["x", "w", "r", "b"], ["all", "h", "c"], hidden_size=6),
        node("Squeeze", ["all", "one"], ["s"]),
        node("MatMul", ["s", "o"], ["y"]),
    ]
    weights = {"w": floats(1, 24, 5), "r": floats(1, 24, 6), "b": floats(1, 48), "one": ints(1), "o": floats(6, 2)}
    inputs = {"x": floats(4, 2, 5)}
    return model_of(nodes, inputs, ["y", "h", "c"], weights), inputs


@model
def attention():
    """Heads are split by sizes that are computed from the input's shape, as exporters write it."""
    nodes = [
        node("Shape", ["x"], ["shape"]),
        node("Gather", ["shape", "zero"], ["batch"]),
        node("Gather", ["shape", "one"], ["length"]),
        node("Unsqueeze", ["batch", "first"], ["batch1"]),
        node("Unsqueeze", ["length", "first"], ["length1"]),
        node("Concat", ["batch1", "length1", "heads"], ["split"], axis=0),
        node("Concat", ["batch1", "length1", "width"], ["joined"], axis=0),
    ]
    for name in "qkv":
        nodes.append(node("MatMul", ["x", f"w{name}"], [f"{name}1"]))
        nodes.append(node("Reshape", [f"{name}1", "split"], [f"{name}2"]))
        perm = [0, 2, 3, 1] if name == "k" else [0, 2, 1, 3]
        nodes.append(node("Transpose", [f"{name}2"], [f"{name}3"], perm=perm))
    nodes += [
        node("MatMul", ["q3", "k3"], ["scores"]),
        node("Div", ["scores", "scale"], ["scaled"]),
        node("Softmax", ["scaled"], ["weights"], axis=-1),
        node("MatMul", ["weights", "v3"], ["mixed"]),
        node("Transpose", ["mixed"], ["back"], perm=[0, 2, 1, 3]),
        node("Reshape", ["back", "joined"], ["flat"]),
        node("Add", ["flat", "x"], ["sum"]),
        node("LayerNormalization", ["sum", "gain", "bias"], ["y"]),
    ]
    weights = {"zero": numpy.array(0), "one": numpy.array(1), "first": ints(0), "heads": ints(2, 4), "width": ints(8)}
    weights |= {f"w{name}": floats(8, 8, seed=number) for number, name in enumerate("qkv")}
    weights |= {"scale": numpy.array(2.0, numpy.float32), "gain": floats(8), "bias": floats(8, seed=1)}
    inputs = {"x": floats(2, 5, 8)}
    return model_of(nodes, inputs, ["y"], weights, sizes={"x": ["batch", "length", 8]}), inputs


@model
def norms():
    nodes = [
        node("InstanceNormalization", ["x", "s", "b"], ["i"]),
        node("LRN", ["i"], ["l"], size=3),
        node("ReduceMean", ["l", "last"], ["m"], keepdims=1),
        node("Sub", ["l", "m"], ["d"]),
        node("LpNormalization", ["d"], ["y"], axis=1),
    ]
    weights = {"s": floats(4), "b": floats(4, seed=1), "last": ints(-1)}
    inputs = {"x": floats(2, 4, 6, 6)}
    return model_of(nodes, inputs, ["y"], weights, 18), inputs


@model
def elementwise():
    names = ["Tanh", "Sigmoid", "Erf", "Softplus", "Elu", "HardSigmoid", "Selu", "Sin", "Abs", "Exp"]
    nodes, last = [], "x"
    for number, name in enumerate(names):
        nodes += [node(name, [last], [f"a{number}"]), node("Add", [f"a{number}", "x"], [f"s{number}"])]
        last = f"s{number}"
    nodes += [
        node("Greater", [last, "zero"], ["mask"]),
        node("Where", ["mask", last, "x"], ["w"]),
        node("Clip", ["w", "low", "high"], ["c"]),
        node("Pow", ["c", "two"], ["p"]),
        node("Cast", ["p"], ["y"], to=TensorProto.DOUBLE),
    ]
    constants = {"zero": 0.0, "low": -2.0, "high": 3.0, "two": 2.0}
    weights = {name: numpy.array(number, numpy.float32) for name, number in constants.items()}
    inputs = {"x": floats(6, 7)}
    return model_of(nodes, inputs, ["y"], weights, sizes={"x": ["rows", 7]}), inputs


@model
def poolings():
    nodes = [
        node("AveragePool", ["x"], ["a"], kernel_shape=[3, 3], pads=[1, 1, 1, 1], count_include_pad=1),
        node("MaxPool", ["x"], ["m"], kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        node("Concat", ["a", "m"], ["c"], axis=1),
        node("AveragePool", ["c"], ["d"], kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1),
        node("GlobalMaxPool", ["d"], ["g"]),
        node("Squeeze", ["g", "axes"], ["y"]),
    ]
    inputs = {"x": floats(2, 3, 9, 8)}
    return model_of(nodes, inputs, ["y", "d"], {"axes": ints(2, 3)}), inputs


@model
def rearrangements():
    nodes = [
        node("Slice", ["x", "start", "end", "axis", "step"], ["s"]),
        node("Split", ["s", "parts"], ["l", "r"], axis=2),
        node("Concat", ["r", "l"], ["c"], axis=2),
        node("Transpose", ["c"], ["t"], perm=[2, 0, 1]),
        node("Reshape", ["t", "shape"], ["f"]),
        node("Gather", ["f", "picked"], ["g"], axis=1),
        node("Pad", ["g", "pads"], ["p"], mode="reflect"),
        node("ReduceSum", ["p", "over"], ["total"]),
        node("TopK", ["p", "two"], ["y", "indices"], axis=1),
    ]
    weights = {"start": ints(-1), "end": ints(-100), "axis": ints(1), "step": ints(-2), "parts": ints(2, 4)}
    weights |= {"shape": ints(-1, 4), "picked": ints(3, -4, 1), "pads": ints(1, 0, 0, 1)}
    weights |= {"over": ints(0), "two": ints(2)}
    inputs = {"x": floats(2, 4, 6)}
    return model_of(nodes, inputs, ["y", "indices", "total"], weights), inputs


@model
def upsampling():
    nodes = [
        node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]),
        node("Resize", ["c", "", "scales"], ["n"], coordinate_transformation_mode="asymmetric", nearest_mode="floor"),
        node("ConvTranspose", ["x", "u"], ["t"], strides=[2, 2]),
        node("Add", ["n", "t"], ["a"]),
        node("Resize", ["a", "", "", "sizes"], ["y"], mode="linear"),
    ]
    weights = {"w": floats(4, 3, 3, 3), "u": floats(3, 4, 2, 2), "sizes": ints(1, 4, 9, 15)}
    weights |= {"scales": numpy.array([1, 1, 2, 2], numpy.float32)}
    inputs = {"x": floats(1, 3, 5, 6)}
    return model_of(nodes, inputs, ["y"], weights), inputs


@model
def branches():
    """A graph inside a node, which uses values from outside."""
    chosen = helper.make_graph([node("Mul", ["x", "two"], ["then"])], "yes", [], [onnx.ValueInfoProto(name="then")])
    other = helper.make_graph([node("Neg", ["x"], ["else"])], "no", [], [onnx.ValueInfoProto(name="else")])
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("Gather", ["s", "zero"], ["n"]),
        node("Greater", ["n", "zero"], ["is_filled"]),
        node("If", ["is_filled"], ["chosen"], then_branch=chosen, else_branch=other),
        node("Tanh", ["chosen"], ["y"]),
    ]
    weights = {"zero": numpy.array(0), "two": numpy.array(2.0, numpy.float32)}
    inputs = {"x": floats(3, 4)}
    return model_of(nodes, inputs, ["y"], weights), inputs


@pytest.mark.parametrize("build", MODELS.values(), ids=MODELS)
def test_a_model_gives_what_the_reference_gives(build):
    made, given = build()
    expected = reference(made, given)
    loaded = ingot.load_onnx(made)
    with torch.no_grad():
        for _ in range(3):
            compare(loaded(**tensors(given)), expected, 2e-4)
    assert loaded.tier == "skipping", loaded.explain()
    assert loaded.input_names == list(given)


@pytest.mark.parametrize("build", [perceptron, attention])
def test_open_sizes_may_be_any(build):
    made, given = build()
    loaded = ingot.load_onnx(made)
    for rows in (1, 4, 5, 6, 9):
        more = {"x": floats(rows, *given["x"].shape[1:], seed=rows)}
        with torch.no_grad():
            compare(loaded(**tensors(more)), reference(made, more))
    if build is perceptron:
        assert loaded.recordings < 5


@pytest.mark.filterwarnings("ignore")
def test_a_transformer_that_torch_exported():
    layer = torch.nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, activation="gelu")
    encoder = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    whole = torch.nn.Sequential(torch.nn.Embedding(50, 32), encoder, torch.nn.Linear(32, 5)).eval()
    file: Any = io.BytesIO()
    ids, fast_path = torch.randint(0, 50, (2, 7)), torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    names: Any = {"input_names": ["ids"], "output_names": ["logits"], "dynamic_axes": {"ids": {0: "batch"}}}
    try:
        torch.onnx.export(whole, (ids,), file, dynamo=False, **names)
    except (ImportError, TypeError, RuntimeError) as error:
        pytest.skip(f"this version of PyTorch exports in another way: {error}")
    finally:
        torch.backends.mha.set_fastpath_enabled(fast_path)
    loaded = ingot.load_onnx(file.getvalue())
    with torch.no_grad():
        for rows in (2, 2, 2, 5):
            ids = torch.randint(0, 50, (rows, 7))
            torch.testing.assert_close(loaded(ids), whole(ids), atol=1e-4, rtol=1e-4)
    assert loaded.tier == "skipping"


def test_unknown_operators_are_all_named_at_once():
    nodes = [node("Frobnicate", ["x"], ["a"], name="first"), node("Loop", ["a"], ["y"], name="second")]
    with pytest.raises(ingot.IngotError, match=r"Frobnicate \(first\); Loop \(second\)"):
        ingot.load_onnx(model_of(nodes, {"x": floats(2)}, ["y"]))


def test_arguments_that_do_not_fit_are_refused():
    made, _ = perceptron()
    loaded = ingot.load_onnx(made)
    for given, message in (
        ((torch.ones(2, 8).double(),), r"torch\.float32\[batch, 8\], not torch\.float64\[2, 8\]"),
        ((torch.ones(2, 9),), r"not torch\.float32\[2, 9\]"),
        ((torch.ones(2, 8), torch.ones(2, 8)), "the model takes x"),
        ((3,), "must be a tensor"),
    ):
        with pytest.raises(ingot.IngotError, match=message):
            loaded(*given)


def test_weights_in_other_files_are_read_from_the_models_directory_alone(tmp_path):
    made, given = perceptron()
    folder = tmp_path / "model"
    folder.mkdir()
    options = {"save_as_external_data": True, "location": "weights.bin", "size_threshold": 0}
    onnx.save(made, str(folder / "model.onnx"), **options)
    again, _ = perceptron()
    with torch.no_grad():
        compare(ingot.load_onnx(folder / "model.onnx")(**tensors(given)), reference(again, given))
    (folder / "weights.bin").rename(tmp_path / "weights.bin")
    with pytest.raises(ingot.IngotError, match="no file in the model's directory"):
        ingot.load_onnx(folder / "model.onnx")
    (folder / "weights.bin").symlink_to(tmp_path / "weights.bin")
    with pytest.raises(ingot.IngotError, match="no file in the model's directory"):
        ingot.load_onnx(folder / "model.onnx")


def test_files_that_are_no_models_are_ingots_errors(tmp_path):
    made, _ = perceptron()
    data = made.SerializeToString()
    choose = numpy.random.default_rng(0)
    (tmp_path / "bad.onnx").write_bytes(data[:100])
    for source in (tmp_path / "bad.onnx", tmp_path / "missing.onnx", b"nothing of the kind", 3):
        with pytest.raises(ingot.IngotError):
            ingot.load_onnx(source)
    for _ in range(100):
        changed = bytearray(data)
        changed[choose.integers(len(data))] ^= 1 << int(choose.integers(8))
        try:
            ingot.load_onnx(bytes(changed)).graph  # noqa: B018
        except ingot.IngotError:
            continue


def test_a_model_can_be_saved_as_a_bundle(tmp_path):
    made, given = convolutions()
    ingot.save(ingot.load_onnx(made), tmp_path / "model.ingot", tensors(given))
    compare(ingot.load(tmp_path / "model.ingot")(**tensors(given)), reference(made, given))
