"""What Python asks of tensors without an operation, by name: functions, methods and attributes of torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

READS_SIZES = frozenset(
    {"shape", "size", "numel", "nelement", "__len__", "stride", "storage_offset", "nbytes", "is_contiguous"}
)
"""Questions whose answer depends on sizes or strides."""

SAYS_SIZES = frozenset({"shape", "size", "numel", "nelement", "__len__", "__getitem__"})
"""Questions whose answer is made of sizes alone, and indexing."""

READS_MEMORY = frozenset(
    {
        "numpy",
        "tolist",
        "__array__",
        "data_ptr",
        "untyped_storage",
        "storage",
        "_typed_storage",
        "__repr__",
        "__str__",
        "__format__",
        "__dlpack__",
        "__reduce_ex__",
        "__deepcopy__",
        "share_memory_",
        "requires_grad_",
        "data",
        "grad",
        "register_hook",
        "backward",
        "set_",
        "_version",
        "grad_fn",
        "is_leaf",
        "retain_grad",
        "_base",
        "is_shared",
        "is_inference",
    }
)
"""Questions whose answer depends on a tensor's memory, its gradients or its history."""

OBLIVIOUS = frozenset(
    [
        "relu",
        "relu6",
        "gelu",
        "silu",
        "elu",
        "celu",
        "selu",
        "leaky_relu",
        "hardswish",
        "hardsigmoid",
        "hardtanh",
        "softplus",
        "mish",
        "logsigmoid",
        "tanhshrink",
        "softsign",
        "sigmoid",
        "tanh",
        "softmax",
        "log_softmax",
        "softmin",
        "layer_norm",
        "group_norm",
        "rms_norm",
        "dropout",
        "alpha_dropout",
        "mse_loss",
        "l1_loss",
        "smooth_l1_loss",
        "huber_loss",
        "embedding",
        "batch_norm",
        "glu",
        "linear",
        "threshold",
        "normalize",
        "unflatten",
        "split",
        "pad",
        "max_pool1d",
        "max_pool2d",
        "max_pool3d",
        "adaptive_avg_pool2d",
        "adaptive_avg_pool3d",
        "adaptive_max_pool2d",
        "dropout1d",
        "dropout2d",
        "cross_entropy",
        "nll_loss",
        "kl_div",
        "multi_head_attention_forward",
        "__rsub__",
        "__rdiv__",
        "__rpow__",
        "__rtruediv__",
        "__rfloordiv__",
        "__rmatmul__",
        "__pow__",
        "__radd__",
        "__rmul__",
        "__contains__",
    ]
)
"""Functions of torch that are written in Python and do not take another way for other sizes."""


def is_oblivious(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether a function of torch that is written in Python does the same for all sizes, given these arguments."""
    if name == "pad":  # in other modes it refuses sizes that are too small for it, and no operation does
        return (args[2] if len(args) > 2 else kwargs.get("mode", "constant")) == "constant"
    return name in OBLIVIOUS
