"""What each function of torch is to a follower, by its identity or name.

In: the function that a torch call arrives as. Out: its `Role`. Deny by default: a function that no table names is run
as PyTorch runs it, after everything pending.
"""

from __future__ import annotations

import types
from enum import Enum, auto
from functools import lru_cache
from typing import Any

import torch


class Role(Enum):
    METADATA = auto()
    """Tells sizes, types and the like, which shells have; it looks at no memory."""
    PYTHON = auto()
    """Written in Python and made of other functions of torch, which are followed one by one."""
    OPERATION = auto()
    """Computes tensors from tensors; whether it can wait is found out when it first runs."""
    WHOLE = auto()
    """Everything else: runs alone, after everything pending."""


_METADATA_ATTRIBUTES = (
    *("shape", "dtype", "device", "ndim", "layout", "is_cuda", "is_cpu", "is_meta", "is_sparse", "is_sparse_csr"),
    *("is_quantized", "is_nested", "is_mkldnn", "is_mps", "is_xpu", "is_xla", "is_vulkan", "is_ipu", "is_maia"),
    *("itemsize", "nbytes", "requires_grad", "is_leaf", "grad", "names"),
)
_METADATA_METHODS = (
    *("size", "dim", "stride", "storage_offset", "numel", "nelement", "ndimension", "is_contiguous"),
    *("is_floating_point", "is_complex", "is_signed", "is_same_size", "element_size", "get_device", "__len__"),
    *("is_inference", "is_conj", "is_neg", "has_names", "__hash__"),
)
_PYTHON_MODULES = ("torch.nn.functional", "torch.functional", "torch._jit_internal")
_PYTHON_METHODS = (
    *("split", "norm", "__rsub__", "__rdiv__", "__rtruediv__", "__floordiv__", "__rfloordiv__"),
    *("__rpow__", "__rmatmul__", "__rmod__", "__pow__", "__ipow__", "__rlshift__", "__rrshift__", "__contains__"),
)
_OPAQUE = ("multi_head_attention_forward",)
"""Written in Python, but PyTorch takes another way through them where a mode watches."""

_QUIET_MODULES = (
    *("torch.nn.modules.transformer", "torch.nn.modules.activation"),
    *_PYTHON_MODULES,
)
"""Modules whose functions compute the same, or the right thing, where they are told of no mode."""
_OPERATOR = "_handle_torch_function_and_wrap_type_error_to_not_implemented"
"""The decorator that turns functions in torch._tensor into operators, which ask for modes first."""


def is_quiet(code: types.CodeType, module: str) -> bool:
    """Whether code that asks if a mode watches is told of none: what it does then is followed, piece by piece. Code
    outside of torch must not notice; code of torch that is not known here may look at memory unseen."""
    if module.partition(".")[0] != "torch":
        return True
    if module == "torch._tensor":
        return code.co_name in _PYTHON_METHODS or code.co_qualname.startswith(_OPERATOR)
    return module in _QUIET_MODULES and code.co_name not in _OPAQUE


_METADATA = frozenset(
    found
    for name in (*_METADATA_METHODS, *_METADATA_ATTRIBUTES)
    for owner in (torch.Tensor, torch)
    if (found := getattr(owner, name, None)) is not None and callable(getattr(found, "__get__", found))
    if not isinstance(found, type | torch.dtype)
)
EXPOSING = frozenset(
    (torch.Tensor.data_ptr, torch.Tensor.__dlpack__, vars(torch.Tensor)["__cuda_array_interface__"].__get__)
)
"""Functions that give away an address in memory, through which others may write for as long as they like. Arrays of
numpy's may as well, but tensors tell while there are any."""
_FREE_NUMBERS = frozenset(
    f"{before}{name}{after}"
    for name in ("add", "sub", "mul", "div", "truediv", "subtract", "multiply", "divide", "true_divide")
    for before, after in (("", ""), ("", "_"), ("__", "__"), ("__r", "__"), ("__i", "__"))
)
"""Functions whose plain numbers feed arithmetic alone: other numbers of the same types need no other kernel."""
_SMALL_NUMBERS = frozenset(
    f"{name}{after}" for name in ("addcmul", "addcdiv", "lerp", "clamp", "clip", "rsub") for after in ("", "_")
)
"""The same, but PyTorch raises an error for numbers that an operand's dtype cannot hold."""
LARGEST_FREE, LARGEST_SMALL = 2**62, 100
"""The largest absolute values of such open numbers; the second fits every dtype."""
_ALWAYS_VIEWS = frozenset(
    (
        *("view", "transpose", "permute", "unsqueeze", "squeeze", "expand", "narrow", "select", "unbind", "t"),
        *("chunk", "split", "split_with_sizes", "movedim", "moveaxis", "swapaxes", "swapdims", "expand_as", "view_as"),
        "detach",
    )
)
"""Operations that never copy: they can be done on memory that is not written yet."""
_VIEWS_OF_ROWS = frozenset({"reshape", "flatten", "unflatten", "contiguous", "ravel"})
"""Operations that never copy a row-major tensor."""


@lru_cache(maxsize=4096)
def role_of(function: Any) -> Role:
    """What a function is to a follower."""
    name = getattr(function, "__name__", "")
    if name in ("__get__", "__set__", "__delete__"):
        return _role_of_attribute(name, getattr(function, "__self__", None))
    if function in _METADATA:
        return Role.METADATA
    if function is torch.Tensor.numpy or function in EXPOSING:  # the follower notes whose memory is shown
        return Role.WHOLE
    if name == "unflatten":  # calls the method of the same name that its class hides
        return Role.OPERATION
    if isinstance(function, types.FunctionType):
        is_made_of_others = function.__module__ in _PYTHON_MODULES or (
            name in _PYTHON_METHODS and getattr(torch.Tensor, name, None) is function
        )
        return Role.PYTHON if is_made_of_others and name not in _OPAQUE else Role.WHOLE
    if isinstance(function, types.BuiltinFunctionType | types.MethodDescriptorType | types.WrapperDescriptorType):
        return Role.OPERATION
    return Role.WHOLE


def _role_of_attribute(accessor: str, attribute: Any) -> Role:
    if accessor == "__get__" and attribute in _METADATA:
        return Role.METADATA
    is_view = getattr(attribute, "__name__", "") in ("T", "mT")
    return Role.OPERATION if accessor == "__get__" and is_view else Role.WHOLE


@lru_cache(maxsize=4096)
def name_of(function: Any) -> str:
    """A function's name, that of the attribute for one that reads an attribute."""
    name = getattr(function, "__name__", "")
    return getattr(function.__self__, "__name__", name) if name == "__get__" else name


_NEVER_WAITS = frozenset(
    (
        *("embedding", "item", "tolist", "__bool__", "__float__", "__int__", "__index__", "nonzero", "multinomial"),
        *("topk", "sort", "argsort", "gather", "index_select", "unique", "isin", "equal", "allclose"),
        *("arange", "zeros", "ones", "full", "empty", "linspace", "eye", "tensor", "as_tensor", "rand", "randn"),
        *(
            "_set_grad_enabled",
            "randint",
            "randperm",
            "bernoulli",
            "rand_like",
            "randn_like",
            "empty_like",
            "new_empty",
            "new_tensor",
        ),
    )
)
"""Functions that always run at once."""


_GIVES_OPERAND = frozenset(
    (
        *("dropout", "alpha_dropout", "feature_dropout", "feature_alpha_dropout", "to", "contiguous", "float", "half"),
        *("double", "bfloat16", "int", "long", "type_as", "cpu", "resolve_conj", "resolve_neg", "positive", "__pos__"),
    )
)


def gives_operand(name: str) -> bool:
    """Whether a function with this name may do nothing and give back its first argument, judged by metadata and
    options alone."""
    return name in _GIVES_OPERAND


def never_waits(name: str) -> bool:
    """Whether calls of a function with this name always run at once, and write nothing that exists."""
    return name in _NEVER_WAITS


def views_memory(name: str) -> bool:
    """Whether calls of a function with this name give other names to memory, copy, or gather: on tensors that are
    written they run at once."""
    return name in _ALWAYS_VIEWS or name in _VIEWS_OF_ROWS or name in ("T", "mT", "__getitem__")


@lru_cache(maxsize=4096)
def largest_free_number(function: Any) -> int:
    """The largest absolute value of open numbers among a function's arguments; 0 if none may be open."""
    name = name_of(function)
    return LARGEST_FREE if name in _FREE_NUMBERS else LARGEST_SMALL if name in _SMALL_NUMBERS else 0


def is_always_view(function: Any, args: tuple[Any, ...]) -> bool:
    """Whether a call gives a view of its first argument for all sizes."""
    name = name_of(function)
    if name in _ALWAYS_VIEWS or name in ("T", "mT"):
        return True
    if name in _VIEWS_OF_ROWS:
        return isinstance(args[0], torch.Tensor) and args[0].is_contiguous()
    return name == "__getitem__" and _is_basic(args[1])


def views_by_layout(function: Any) -> bool:
    """Whether sizes and strides decide if a function gives other names to the memory of its first argument."""
    return name_of(function) in _VIEWS_OF_ROWS


def _is_basic(index: Any) -> bool:
    """Whether an index is made of numbers, slices, None and ..., which never copy."""
    if type(index) is tuple:
        return all(type(part) is not tuple and _is_basic(part) for part in index)
    if type(index) is slice:
        return all(type(part) in (int, type(None)) for part in (index.start, index.stop, index.step))
    return type(index) in (int, type(None), type(Ellipsis))


_WRITES = frozenset(
    (
        *("__setitem__", "__set__", "__delete__", "batch_norm", "instance_norm", "native_batch_norm", "__setstate__"),
        *("cudnn_batch_norm", "miopen_batch_norm", "batch_norm_update_stats", "_native_batch_norm_legit", "copy_to"),
        *("fused_moving_avg_obs_fake_quant", "_fused_moving_avg_obs_fq_helper", "rrelu", "rrelu_with_noise"),
        *("batch_norm_gather_stats", "batch_norm_gather_stats_with_counts", "embedding", "embedding_bag"),
    )
)
"""Functions that may write what they are given although their names do not tell."""


def may_write(function: Any, kwargs: dict[str, Any]) -> bool:
    """Whether a call may write its operands, judged by its name."""
    return "out" in kwargs or _writes_by_name(name_of(function))


@lru_cache(maxsize=4096)
def _writes_by_name(name: str) -> bool:
    is_in_place = name.endswith("_") and not name.endswith("__")
    is_operator = name.startswith("__i") and name.endswith("__") and name not in ("__invert__", "__index__", "__int__")
    return is_in_place or is_operator or name in _WRITES


# --- aten ------------------------------------------------------------------------------------------------------------

_WAITS = frozenset(
    (
        *("mm", "addmm", "bmm", "baddbmm", "addbmm", "addmv", "mv", "dot", "linear", "matmul", "convolution"),
        *("_softmax", "_log_softmax", "native_layer_norm", "native_group_norm", "native_batch_norm"),
        *("_native_batch_norm_legit_no_training", "_fused_rms_norm", "sum", "mean", "amax", "amin", "var"),
        *("var_mean", "std", "std_mean", "any", "all", "argmax", "argmin", "logsumexp", "cat", "stack"),
        *("clone", "_to_copy", "max", "min", "prod", "norm", "cumsum", "tril", "triu"),
        *("_scaled_dot_product_flash_attention_for_cpu", "_scaled_dot_product_flash_attention"),
        *("_scaled_dot_product_attention_math", "_scaled_dot_product_efficient_attention"),
        *("_scaled_dot_product_cudnn_attention", "scaled_dot_product_attention"),
        *("_scaled_dot_product_fused_attention_overrideable", "max_pool2d_with_indices", "avg_pool2d"),
        *("avg_pool1d", "_adaptive_avg_pool2d", "adaptive_avg_pool2d", "upsample_nearest2d"),
        *("upsample_bilinear2d", "constant_pad_nd", "roll", "flip", "zeros_like", "ones_like", "full_like"),
        *("new_zeros", "new_ones", "new_full", "zeros", "ones", "full", "arange", "scalar_tensor"),
        *("masked_fill", "where", "_safe_softmax", "softmax", "log_softmax", "repeat", "linalg_vector_norm"),
        *("_unsafe_view", "mkldnn_rnn_layer", "mse_loss", "pixel_shuffle", "copy", "_conv_depthwise2d"),
        *("cudnn_convolution", "mkldnn_convolution"),
    )
)
"""Operators that compute from what they are given and can raise errors only because of sizes and types."""
_RAISES_FOR_VALUES = frozenset({"remainder", "fmod", "floor_divide", "div", "pow", "bitwise_left_shift", "gcd", "lcm"})
"""Pointwise operators that raise errors because of values, if those are integers."""
_EMPTY = frozenset({"empty", "empty_like", "new_empty", "empty_strided", "new_empty_strided", "empty_permuted"})


def base_name(target: torch._ops.OpOverload) -> str:
    """The name of the operator that computes what this one computes, in place or not."""
    name = target.overloadpacket.__name__
    return name[:-1] if name.endswith("_") and not name.endswith("__") else name


def can_wait(target: torch._ops.OpOverload, is_of_integers: bool, draws: bool) -> bool:
    """Whether an operator can run later than it is called: no value can make it raise an error, nothing is random."""
    if target.namespace != "aten":
        return False
    tags, name = target.tags, base_name(target)
    if draws or torch.Tag.data_dependent_output in tags:
        return False
    if torch.Tag.dynamic_output_shape in tags or name in _EMPTY:
        return False
    if is_of_integers and name in _RAISES_FOR_VALUES:
        return False
    return name in _WAITS or torch.Tag.pointwise in tags


def is_view(target: torch._ops.OpOverload) -> bool:
    """Whether an operator gives other names to memory."""
    returns = target._schema.returns
    return bool(returns) and all(one.alias_info is not None and not one.alias_info.is_write for one in returns)
