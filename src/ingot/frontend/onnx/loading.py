"""`ingot.load_onnx`: an ONNX model, compiled by calling it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from ingot.base.errors import IngotError
from ingot.frontend.jit.api.forms import jit
from ingot.frontend.jit.settings.options import Mode
from ingot.frontend.onnx.imported_model import ImportedModel
from ingot.frontend.onnx.model_file import read_model


def load_onnx(
    source: Any,
    *,
    freeze: bool = False,
    mode: Mode | None = None,
    config: Mapping[str, Any] | None = None,
) -> Any:
    """Load an ONNX model: a path, the bytes of a file, or an onnx.ModelProto.

    Gives a module that takes the inputs as tensors, in order or by name, and gives the outputs: one tensor, or a
    tuple. `input_names` and `output_names` are the model's. Its weights are parameters; `.to(device)` moves them.

    freeze, mode, config: as in `ingot.jit`.
    """
    name = os.fspath(source) if isinstance(source, str | os.PathLike) else "the model"
    try:
        model = ImportedModel(read_model(source))
    except IngotError as error:
        raise error.within(name) from error
    title = model.graph.name or "an ONNX model"
    return jit(model, python="skip", freeze=freeze, mode=mode, config=config, name=title)
