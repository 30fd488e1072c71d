"""What a comparison of models on a GPU runs in: the GPU, what there is to say of it, and nothing on disk."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

import torch

NO_GPU = "this comparison needs an NVIDIA GPU; python -m benchmarks is the one for CPUs"


@contextmanager
def nothing_on_disk() -> Iterator[None]:
    """No contestant finds what an earlier run has compiled or measured. To be entered before any of them is used."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        # All of these are read when first needed.
        os.environ |= {"TORCHINDUCTOR_CACHE_DIR": folder, "TRITON_CACHE_DIR": folder, "CUDA_CACHE_DISABLE": "1"}
        os.environ["INGOT_CACHE_DIR"] = ""
        yield


def current_gpu() -> torch.device | None:
    return torch.device("cuda", torch.cuda.current_device()) if torch.cuda.is_available() else None


def about(device: torch.device) -> dict[str, str]:
    if device.type != "cuda":
        return {}
    return {"GPU": torch.cuda.get_device_name(device), "CUDA": str(torch.version.cuda)}
