"""What the walk knows of PyTorch by name.

In: nothing. Out: which native functions are operations, which are refused although they are, and which attributes of
tensors are the same at each call.
"""

from __future__ import annotations

import types
from typing import Any

import torch
import torch.functional
import torch.nn.functional


def words(text: str) -> frozenset[str]:
    return frozenset(text.split())


def _native(name: str) -> Any:
    return getattr(torch._C, name)


_VARIABLE = frozenset(dir(_native("_VariableFunctions")))

OPERATIONS: dict[int, Any] = {
    id(function): function
    for module in ("_nn", "_linalg", "_fft", "_special")
    for function in vars(_native(module)).values()
    if isinstance(function, types.BuiltinFunctionType)
} | {
    id(function): function
    for name in _VARIABLE
    for function in (vars(torch).get(name), getattr(_native("_VariableFunctions"), name))
    if isinstance(function, types.BuiltinFunctionType)
}
"""By identity; the functions are held, so that no other object takes the identity of one of them."""

REFUSED = words(
    """
    item tolist numpy __array__ __bool__ __int__ __float__ __index__ __complex__ __contains__ __dlpack__
    __reversed__ set_ set_data resize_ resize_as_ resize_as_sparse_ data_ptr storage untyped_storage storage_offset
    storage_type requires_grad_ register_hook register_post_accumulate_grad_hook retain_grad backward detach_
    share_memory_ t_ transpose_ squeeze_ unsqueeze_ swapaxes_ swapdims_ as_strided_ rename_ apply_ map_ map2_ new
    record_stream from_file from_numpy frombuffer is_set_to is_shared is_pinned is_inference is_distributed equal
    allclose is_nonzero nonzero argwhere masked_select unique unique_consecutive bincount combinations get_device
    """
)
"""Methods and functions that read values, or that change or show something a recording does not have."""
PRIVATE = (
    *("__", "_foreach_", "_softmax", "_log_softmax", "_weight_norm", "_fused_", "_grouped_mm"),
    *("_transformer_encoder_layer_fwd", "_native_multi_head_attention"),
)
"""How names of operations begin that begin with an underscore."""

FACTORIES = words(
    """
    arange zeros ones empty full eye linspace logspace rand randn randint randperm tensor as_tensor range
    tril_indices triu_indices empty_strided hann_window hamming_window bartlett_window blackman_window kaiser_window
    scalar_tensor normal
    """
)
DETERMINISTIC_FACTORIES = words(
    """
    arange zeros ones full eye tensor tril_indices triu_indices scalar_tensor
    """
)
RANDOM = words(
    """
    rand randn randint randperm normal bernoulli multinomial poisson dropout alpha_dropout feature_dropout
    feature_alpha_dropout native_dropout rrelu rand_like randn_like randint_like empty empty_like new_empty
    empty_strided new_empty_strided
    """
)
"""Functions whose results differ from call to call, although their arguments do not."""
EXACT = frozenset([torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64])
ARGUMENT_TYPES = (int, float, bool, complex, str)
"""Classes that operations take as arguments."""

TAKES_SIZES = words(
    """
    view reshape expand arange zeros ones full empty new_zeros new_ones new_empty new_full repeat
    """
)
"""Operations that keep the integers they are given as they are: sizes, none of which may be negative, and bounds."""
TAKES_NUMBERS = words(
    """
    add sub mul truediv div iadd isub imul itruediv eq ne lt le gt ge rsub
    """
)
"""Operations that compute with an integer they are given."""
SAYS_NOTHING_OF_SIZES = words(
    """
    dim ndimension is_floating_point is_complex is_signed element_size result_type can_cast type is_conj is_neg
    """
)
"""Operations that give a plain value which no size changes."""
UNSURE = frozenset(["stride", "is_contiguous", "is_non_overlapping_and_dense"])
"""Questions that tensors without memory may answer differently from tensors with memory."""
BY_DTYPE = words(
    """
    dtype itemsize nbytes is_floating_point is_complex is_signed element_size type result_type can_cast
    """
)
METADATA: dict[str, type] = {
    "shape": torch.Size,
    "dtype": torch.dtype,
    "ndim": int,
    "layout": torch.layout,
    "itemsize": int,
    "nbytes": int,
    "is_sparse": bool,
    "is_quantized": bool,
    "is_nested": bool,
    "is_sparse_csr": bool,
    "is_mkldnn": bool,
}
VIEWS = frozenset(["data", "T", "mT", "H", "mH", "real", "imag"])
ON_DEVICE = {
    "is_cuda": "cuda",
    "is_cpu": "cpu",
    "is_meta": "meta",
    "is_mps": "mps",
    "is_xpu": "xpu",
    "is_xla": "xla",
    "is_mtia": "mtia",
    "is_ipu": "ipu",
    "is_hpu": "hpu",
    "is_vulkan": "vulkan",
    "is_maia": "maia",
}
OPERATORS = words(
    """
    add sub mul truediv floordiv mod pow matmul and_ or_ xor lshift rshift neg pos invert eq ne lt le gt ge iadd
    isub imul itruediv ifloordiv imod ipow imatmul iand ior ixor ilshift irshift
    """
)

_OPAQUE = {
    torch.functional: "einsum norm split tensordot cdist stft istft meshgrid broadcast_tensors atleast_1d atleast_2d "
    "atleast_3d cartesian_prod block_diag chain_matmul",
    torch.nn.functional: "interpolate grid_sample affine_grid embedding_bag multi_head_attention_forward "
    "gumbel_softmax ctc_loss nll_loss cross_entropy",
    torch.Tensor: "norm split stft istft unflatten __rsub__ __rdiv__ __rpow__ __rfloordiv__ __rmod__ __rlshift__ "
    "__rrshift__ __rmatmul__ __pow__ __ipow__ __floordiv__ __truediv__ __div__ pow __len__",
}
OPAQUE = frozenset(
    function
    for owner, names in _OPAQUE.items()
    for name in names.split()
    if isinstance(function := vars(owner).get(name) or getattr(owner, name, None), types.FunctionType)
)
"""Python functions of PyTorch's that are taken as one operation, instead of being walked."""
READ_BY_OPAQUE: dict[str, Any] = {
    "torch": vars(torch),
    "torch.functional": vars(torch.functional),
    "torch.nn.functional": vars(torch.nn.functional),
    "torch._C._nn": vars(_native("_nn")),
    "torch._VF": vars(torch._VF),
}

SETTINGS = frozenset([torch.no_grad, torch.enable_grad, torch.inference_mode, torch.autocast])
"""Contexts that change how operations run. They are treated as operations."""
CASTS = words("float double half bfloat16 int long short bool char byte type_as")
"""Methods that give a tensor of another type, or the tensor itself."""
MAY_RETURN_ARGUMENT = CASTS | words(
    """
    contiguous to cpu cuda type coalesce pos __pos__ conj_physical adjoint real dequantize sum_to_size to_dense
    resolve_conj resolve_neg dropout feature_dropout alpha_dropout feature_alpha_dropout flatten ravel conj positive
    atleast_1d atleast_2d atleast_3d broadcast_tensors expand_as reshape pin_memory squeeze movedim rrelu
    """
)
"""Operations that may give one of their arguments itself; those in place do, too."""
SWITCHES: list[Any] = [
    _native(f"_get_{name}")
    for name in words(
        """
        cudnn_enabled cudnn_benchmark cudnn_deterministic cudnn_allow_tf32 cublas_allow_tf32 mkldnn_enabled
        mkldnn_deterministic flash_sdp_enabled mem_efficient_sdp_enabled math_sdp_enabled cudnn_sdp_enabled
        deterministic_algorithms deterministic_algorithms_warn_only nnpack_enabled mkldnn_allow_tf32
        """
    )
    if hasattr(torch._C, f"_get_{name}")
]
"""Native functions that say how a switch stands; they can be asked again."""
