"""Every record of the table gives what onnxruntime gives."""

from typing import Any

import numpy
import pytest
import torch

pytest.importorskip("onnx")

import ingot
from ingot.frontend.onnx.imported_model import ImportedModel
from ingot.frontend.onnx.model_file import read_model
from ingot.frontend.onnx.operator_table import known_operators
from tests.frontend.onnx.building import compare, floats, reference, single, tensors

X = floats(2, 3, 4)
Y = floats(2, 3, 4, seed=1)
IMAGE = floats(2, 4, 7, 9)
WHOLE = numpy.array([[7, -7, 3], [-2, 5, 1]], numpy.int64)
OTHER = numpy.array([[2, 2, -2], [3, -3, 1]], numpy.int64)
UNIT = numpy.clip(X, -0.9, 0.9)
POSITIVE = numpy.abs(X) + 0.1
FLAGS = X > 0


def ints(*values: int) -> Any:
    return numpy.array(values, numpy.int64)


def scalar(number: Any, dtype: Any = numpy.int64) -> Any:
    return numpy.array(number, dtype)


CASES: list[tuple[str, list[Any], dict[str, Any], int, tuple[int, ...]]] = []


def case(operator: str, *arrays: Any, opset: int = 17, known: tuple[int, ...] = (), **attributes: Any) -> None:
    CASES.append((operator, list(arrays), attributes, opset, known))


for _name in [
    "Abs",
    "Atan",
    "Ceil",
    "Cos",
    "Erf",
    "Exp",
    "Floor",
    "HardSwish",
    "Neg",
    "Relu",
    "Round",
    "Sigmoid",
    "Sign",
    "Sin",
    "Softplus",
    "Softsign",
    "Tan",
    "Tanh",
    "Identity",
    "Elu",
    "Celu",
    "Selu",
    "LeakyRelu",
    "HardSigmoid",
    "ThresholdedRelu",
    "Shrink",
    "IsNaN",
]:
    case(_name, X)
for _name in ["Asin", "Acos", "Atanh", "Asinh"]:
    case(_name, UNIT)
for _name in ["Log", "Sqrt", "Reciprocal"]:
    case(_name, POSITIVE)
case("Acosh", POSITIVE + 1)
case("Cosh", X)
case("Sinh", X)
case("Mish", X, opset=18)
case("Not", FLAGS)
case("BitwiseNot", WHOLE, opset=18)
case("IsInf", numpy.array([1, numpy.inf, -numpy.inf], numpy.float32))
case("IsInf", numpy.array([1, numpy.inf, -numpy.inf], numpy.float32), detect_negative=0)
for _name in ["Add", "Sub", "Mul", "Div", "Max", "Min", "Sum", "Mean"]:
    case(_name, X, Y)
for _name in ["Add", "Sub", "Mul", "Div"]:
    case(_name, X, scalar(1.7, numpy.float32), known=(1,))
    case(_name, scalar(1.7, numpy.float32), X, known=(0,))
for _name in ["Add", "Sub", "Mul", "Div"]:
    case(_name, WHOLE, OTHER)
for _name in ["Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"]:
    case(_name, WHOLE, OTHER)
for _name in ["And", "Or", "Xor"]:
    case(_name, FLAGS, Y > 0)
for _name in ["BitwiseAnd", "BitwiseOr", "BitwiseXor"]:
    case(_name, WHOLE, OTHER, opset=18)
case("BitShift", numpy.array([1, 2, 3], numpy.uint8), numpy.array([1, 2, 1], numpy.uint8), direction="LEFT")
case("Mod", WHOLE, OTHER)
case("Mod", X, Y, fmod=1)
case("Pow", POSITIVE, Y)
case("Pow", X, scalar(2.0, numpy.float32), known=(1,))
case("PRelu", X, floats(3, 1))
case("Gelu", X, opset=20)
case("Gelu", X, opset=20, approximate="tanh")
case("Clip", X, scalar(-0.5, numpy.float32), scalar(0.5, numpy.float32), known=(1, 2))
case("Clip", X, None, scalar(0.5, numpy.float32))
case("Clip", X, opset=7, min=-0.5, max=0.5)
case("Where", FLAGS, X, Y)
case("Cast", X, to=7)
case("Cast", WHOLE, to=1)
case("CastLike", WHOLE, X)
case("Dropout", X, opset=12)
# products
case("MatMul", X, floats(4, 5), known=(1,))
case("MatMul", X, floats(2, 4, 5))
case("Gemm", floats(3, 4), floats(5, 4), floats(5), transB=1, known=(1, 2))
case("Gemm", floats(4, 3), floats(4, 5), floats(3, 1), transA=1, alpha=0.5, beta=2.0)
case("Einsum", X, floats(2, 4, 5), equation="bij,bjk->bik")
case("Conv", floats(2, 4, 9), floats(6, 2, 3), floats(6), group=2, pads=[1, 0], strides=[2])
case("Conv", IMAGE, floats(6, 4, 3, 3), floats(6), pads=[1, 1, 1, 1], dilations=[2, 1])
case("Conv", IMAGE, floats(6, 4, 3, 2), auto_pad="SAME_UPPER", strides=[2, 2])
case("Conv", IMAGE, floats(6, 4, 3, 2), auto_pad="SAME_LOWER", strides=[2, 3])
case("Conv", IMAGE, floats(4, 1, 3, 3), auto_pad="VALID", group=4)
case("Conv", floats(1, 2, 4, 5, 6), floats(3, 2, 2, 2, 2))
case("ConvTranspose", IMAGE, floats(4, 3, 3, 3), floats(3), strides=[2, 2], pads=[1, 1, 1, 1], output_padding=[1, 1])
case("ConvTranspose", IMAGE, floats(4, 3, 3, 3), strides=[2, 2], pads=[1, 0, 0, 1])
case("ConvTranspose", IMAGE, floats(4, 3, 3, 3), strides=[2, 2], auto_pad="SAME_UPPER")
case("ConvTranspose", IMAGE, floats(4, 3, 3, 3), floats(3), strides=[2, 2], output_shape=[14, 18])
# norms
_C = floats(4)
case("BatchNormalization", IMAGE, _C, _C, _C, numpy.abs(_C), opset=15)
case("InstanceNormalization", IMAGE, _C, _C)
case("LayerNormalization", X, floats(4), floats(4), known=(1, 2))
case("LayerNormalization", X, floats(3, 4), floats(3, 4), axis=1)
case("LayerNormalization", X, floats(4), outputs=3)
case("GroupNormalization", IMAGE, floats(4), floats(4), num_groups=2, opset=21)
case("RMSNormalization", X, floats(4), opset=23)
case("LRN", IMAGE, size=3)
case("LpNormalization", X, axis=1, p=2)
case("MeanVarianceNormalization", IMAGE)
case("Softmax", X)
case("Softmax", X, axis=1)
case("Softmax", X, opset=11)
case("LogSoftmax", X, opset=11, axis=2)
case("LogSoftmax", X, axis=0)
case("Hardmax", X)
# pooling
case("MaxPool", IMAGE, kernel_shape=[3, 2], strides=[2, 2], pads=[1, 1, 1, 1])
case("MaxPool", IMAGE, kernel_shape=[3, 3], strides=[2, 2], auto_pad="SAME_UPPER")
case("MaxPool", IMAGE, kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1)
case("MaxPool", floats(1, 2, 9), kernel_shape=[3], dilations=[2])
case("AveragePool", IMAGE, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
case("AveragePool", IMAGE, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1], count_include_pad=1)
case("AveragePool", IMAGE, kernel_shape=[2, 2], strides=[2, 2], auto_pad="SAME_LOWER")
case("AveragePool", IMAGE, kernel_shape=[2, 2], pads=[0, 0, 1, 1], count_include_pad=1)
case("GlobalAveragePool", IMAGE)
case("GlobalMaxPool", IMAGE)
# reductions
for _name in ["Sum", "Mean", "Max", "Min", "Prod", "L1", "L2", "SumSquare", "LogSumExp"]:
    case(f"Reduce{_name}", X, axes=[1], opset=11)
    case(f"Reduce{_name}", X, ints(0, -1), keepdims=0, opset=18, known=(1,))
    case(f"Reduce{_name}", X, opset=18)
case("ReduceLogSum", POSITIVE, ints(1), opset=18)
case("ReduceSum", X, ints(), noop_with_empty_axes=1, known=(1,))
case("ReduceSum", WHOLE, ints(1), known=(1,))
case("ArgMax", X, axis=1)
case("ArgMax", numpy.round(X), axis=2, keepdims=0, select_last_index=1)
case("ArgMin", X, axis=-1, keepdims=0)
case("CumSum", X, scalar(1), known=(1,))
case("CumSum", X, scalar(2), exclusive=1, reverse=1)
case("TopK", X, ints(2), axis=2, outputs=2, known=(1,))
case("TopK", X, ints(2), axis=1, largest=0, outputs=2)
# shapes and rearrangements
case("Shape", X)
case("Shape", X, start=1, opset=15)
case("Size", X)
case("ConstantOfShape", ints(2, 3), known=(0,))
case("Range", scalar(1), scalar(9), scalar(3), known=(0, 1, 2))
case("Range", scalar(1.0, numpy.float32), scalar(3.1, numpy.float32), scalar(0.5, numpy.float32), known=(0, 1, 2))
case("OneHot", ints(0, 2, -1), scalar(3), numpy.array([0, 5], numpy.float32), known=(1,))
case("OneHot", ints(0, 2, 1), scalar(3), numpy.array([0, 5], numpy.float32), axis=0, known=(1,))
case("EyeLike", floats(3, 4), k=1)
case("Reshape", X, ints(0, -1), known=(1,))
case("Flatten", X, axis=2)
case("Squeeze", floats(1, 3, 1), ints(0), known=(1,))
case("Squeeze", floats(1, 3, 1), opset=11)
case("Unsqueeze", X, ints(0, -1), known=(1,))
case("Unsqueeze", X, axes=[1], opset=11)
case("Transpose", X)
case("Transpose", X, perm=[1, 0, 2])
case("Concat", X, Y, axis=-1)
case("Split", X, ints(1, 3), axis=2, outputs=2, known=(1,))
case("Split", X, axis=2, split=[1, 3], outputs=2, opset=11)
case("Split", floats(2, 7), axis=1, num_outputs=3, outputs=3, opset=18)
case("Slice", X, ints(1, 0), ints(3, 100), ints(1, 2), ints(1, 2), known=(1, 2, 3, 4))
case("Slice", X, ints(-1), ints(-1000), ints(1), ints(-1), known=(1, 2, 3, 4))
case("Slice", X, ints(3), ints(0), ints(2), ints(-2), known=(1, 2, 3, 4))
case("Slice", X, starts=[0, 1], ends=[1, -1], axes=[0, 2], opset=9)
case("Expand", floats(3, 1), ints(2, 1, 4), known=(1,))
case("Tile", X, ints(1, 2, 3), known=(1,))
case("Pad", X, ints(0, 1, 2, 0, 0, 1), scalar(1.5, numpy.float32), known=(1, 2))
case("Pad", X, ints(0, 1, 1, 0, 1, 2), mode="reflect", known=(1,))
case("Pad", X, ints(0, 1, 2, 0, 0, 1), mode="edge", known=(1,))
case("Pad", X, pads=[0, 1, 2, 0, 0, 1], value=2.0, opset=9)
case("Pad", X, ints(1, -1), None, ints(2), opset=18, known=(1, 3))
case("Trilu", floats(4, 5), scalar(1), known=(1,))
case("Trilu", floats(4, 5), upper=0)
case("DepthToSpace", IMAGE, blocksize=2)
case("DepthToSpace", IMAGE, blocksize=2, mode="CRD")
case("SpaceToDepth", floats(1, 2, 4, 6), blocksize=2)
# indexing
case("Gather", X, scalar(1), axis=2, known=(1,))
case("Gather", X, numpy.array([[0, -1], [1, 2]]), axis=1)
case("Gather", floats(5, 3), ints(4, -5))
case("GatherElements", WHOLE, numpy.array([[0, -1, 1], [2, 0, 0]]), axis=1)
case("GatherND", X, numpy.array([[0, 1], [1, -1]]))
case("GatherND", X, numpy.array([[1], [-1]]), batch_dims=1)
case("ScatterND", floats(5, 2), numpy.array([[1], [3]]), floats(2, 2))
case("ScatterND", floats(5, 2), numpy.array([[1], [1]]), floats(2, 2), reduction="add", opset=16)
case("ScatterElements", floats(2, 3), numpy.array([[0, -1]]), floats(1, 2), axis=1)
case("ScatterElements", floats(2, 3), numpy.array([[0, 0]]), floats(1, 2), axis=1, reduction="add", opset=16)
case("NonZero", FLAGS)
case("Compress", X, numpy.array([True, False, True]), axis=1)
# resizing
_SCALES = numpy.array([1, 1, 2, 1.5], numpy.float32)
for _mode in ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"):
    for _kind in ("nearest", "linear"):
        case("Resize", IMAGE, None, _SCALES, mode=_kind, coordinate_transformation_mode=_mode, known=(2,))
case("Resize", IMAGE, None, None, ints(2, 4, 3, 12), mode="linear", known=(3,))
case("Resize", IMAGE, None, None, ints(2, 4, 14, 18), mode="cubic", known=(3,))
case("Resize", IMAGE, None, _SCALES, nearest_mode="floor", coordinate_transformation_mode="asymmetric", known=(2,))
case("Resize", IMAGE, _SCALES, opset=10, known=(1,))
case("Upsample", IMAGE, _SCALES, opset=9, known=(1,))
# recurrent layers: inputs, weights, recurrent weights, biases, lengths, first states
for _direction, _count in (("forward", 1), ("reverse", 1), ("bidirectional", 2)):
    _x, _state = floats(5, 2, 3), floats(_count, 2, 4, seed=2)
    _gates = lambda number, count=_count: [
        floats(count, 4 * number, 3),
        floats(count, 4 * number, 4),
        floats(count, 8 * number),
    ]
    case("LSTM", _x, *_gates(4), None, _state, _state, hidden_size=4, direction=_direction, outputs=3)
    case("GRU", _x, *_gates(3), None, _state, hidden_size=4, direction=_direction, outputs=2)
    case("GRU", _x, *_gates(3), hidden_size=4, direction=_direction, linear_before_reset=1, outputs=2)
    case("RNN", _x, *_gates(1), hidden_size=4, direction=_direction, outputs=2)

NOT_HERE = {"Swish", "If", "Scatter"}
"""Records without a case above: too new for the runtime, tested with models, or another name."""


def test_every_record_has_a_case():
    assert {operator for operator, *_ in CASES} | NOT_HERE == set(known_operators())


@pytest.mark.parametrize(
    ("operator", "arrays", "attributes", "opset", "known"),
    CASES,
    ids=[f"{number}-{one[0]}" for number, one in enumerate(CASES)],
)
def test_a_node_gives_what_the_reference_gives(operator, arrays, attributes, opset, known):
    model, given = single(operator, arrays, attributes, opset, known)
    expected = reference(model, given)
    with torch.no_grad():
        compare(ImportedModel(read_model(model))(**tensors(given)), expected)


@pytest.mark.parametrize(
    ("operator", "arrays", "attributes", "message"),
    [
        ("Conv", [IMAGE, floats(6, 4, 3, 3)], {"auto_pad": "SOMEHOW"}, "auto_pad 'SOMEHOW'"),
        ("LSTM", [floats(5, 2, 3), floats(1, 16, 3), floats(1, 16, 4)], {"hidden_size": 4, "clip": 1.0}, "clip"),
        ("MaxPool", [IMAGE], {"kernel_shape": [2, 2], "outputs": 2}, "positions"),
        ("MatMul", [X, X], {}, "MatMul 'it' cannot be computed"),
    ],
)
def test_what_a_record_does_not_know_is_an_error_with_the_node(operator, arrays, attributes, message):
    model, given = single(operator, arrays, attributes, 17, ())
    with pytest.raises(ingot.IngotError, match=message) as caught:
        ImportedModel(read_model(model))(**tensors(given))
    assert "it" in str(caught.value)
