"""A function by its name, and arguments to call it with.

In: `module:function`, and texts such as `float32[64,128]`, `int64[8]`, `3` or `0.5`. Out: the function, and arguments.
Without texts the module's EXAMPLE_INPUTS, or what its example_inputs() returns, are the arguments. Code is imported
from the current directory; nothing is evaluated but literals.
"""

from __future__ import annotations

import ast
import importlib
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import click

from ingot.cli.example_inputs import parse_input


def found_function(name: str) -> tuple[ModuleType, Any]:
    """What `module:function` names, and its module; attributes of attributes may be named, too."""
    module_name, colon, path = name.partition(":")
    if not colon or not module_name or not path:
        raise click.UsageError(f"{name!r} does not name a function; write module:function")
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise click.UsageError(f"{module_name} cannot be imported: {error}") from error
    found: Any = module
    for part in path.split("."):
        if not hasattr(found, part):
            raise click.UsageError(f"{module_name} has no {path}")
        found = getattr(found, part)
    if not callable(found):
        raise click.UsageError(f"{name} is a {type(found).__name__}, which cannot be called")
    return module, found


def example_arguments(module: ModuleType, texts: Sequence[str]) -> tuple[Any, ...]:
    """The arguments that texts describe; without texts those that the module brings."""
    return tuple(map(_argument, texts)) if texts else own_examples(module)


def own_examples(module: ModuleType) -> tuple[Any, ...]:
    """The arguments that a module brings."""
    given = getattr(module, "EXAMPLE_INPUTS", None)
    if given is None and callable(getattr(module, "example_inputs", None)):
        given = module.example_inputs()
    if given is None:
        raise click.UsageError(
            f"no inputs: give --input once for each argument, such as --input 'float32[64,128]', or define "
            f"EXAMPLE_INPUTS or example_inputs() in {module.__name__}"
        )
    return tuple(given) if isinstance(given, list | tuple) else (given,)


def _argument(text: str) -> Any:
    try:
        return parse_input(text).tensor(0)
    except (ValueError, RuntimeError) as error:
        try:
            return ast.literal_eval(text)
        except (ValueError, SyntaxError):
            raise click.UsageError(f"{text!r} is neither a tensor nor a literal: {error}") from None
