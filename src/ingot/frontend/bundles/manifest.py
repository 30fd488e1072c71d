"""What a bundle says of itself: how it is called, what it returns, and which tensors it has.

In: a manifest, or the JSON of one that anyone may have written. Out: the other of the two.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ingot.base.errors import BundleError
from ingot.frontend.bundles.structures import Structure, structure_from_json, structure_to_json
from ingot.frontend.bundles.trace_parser import parse_value
from ingot.frontend.bundles.trace_text import value_text
from ingot.frontend.bundles.weights import StoredTensor

FORMAT = "ingot bundle"
VERSION = 1
_FIELDS = frozenset({"format", "version", "name", "written_by", "parameters", "training", "recordings", "tensors"})
_MOST_TENSORS = 1_000_000


@dataclass(frozen=True, slots=True)
class TensorLeaf:
    """A place among the arguments where a tensor is passed, by its number among the different ones: where an earlier
    place has the same number, it has to be the same tensor."""

    position: int


@dataclass(frozen=True, slots=True)
class ValueLeaf:
    """A place among the arguments where a plain value is passed, which has to be this one."""

    value: Any


@dataclass(frozen=True, slots=True)
class CallForm:
    """How one recording is called, and what it returns."""

    arguments: Structure
    leaves: tuple[TensorLeaf | ValueLeaf, ...]
    result: Structure


@dataclass(frozen=True, slots=True)
class Manifest:
    """Everything in a bundle but the operations and the memory of tensors."""

    name: str
    versions: Mapping[str, str]
    """The versions of ingot and PyTorch that wrote it."""
    parameters: tuple[str, ...]
    """Names of the arguments that may be passed by position or by name."""
    training: bool | None
    """Whether the module was in training mode; None for what is no module."""
    forms: tuple[CallForm, ...]
    """One for each trace, in order."""
    tensors: tuple[StoredTensor, ...]

    def to_json(self) -> str:
        """The text of the manifest."""
        data = {
            "format": FORMAT,
            "version": VERSION,
            "name": self.name,
            "written_by": dict(self.versions),
            "parameters": list(self.parameters),
            "training": self.training,
            "recordings": [
                {
                    "arguments": structure_to_json(form.arguments),
                    "leaves": [_leaf_to_json(leaf) for leaf in form.leaves],
                    "result": structure_to_json(form.result),
                }
                for form in self.forms
            ],
            "tensors": [record.to_json() for record in self.tensors],
        }
        return json.dumps(data, indent=1)

    @classmethod
    def from_json(cls, text: str) -> Manifest:
        """The manifest that a text describes."""
        try:
            data = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise BundleError(f"the manifest is no JSON: {error}") from error
        if not isinstance(data, dict) or data.get("format") != FORMAT:
            raise BundleError("the manifest is not that of a bundle")
        if type(data.get("version")) is not int or data["version"] != VERSION:
            raise BundleError(
                f"the bundle has version {str(data.get('version'))[:20]} of the format, and this ingot reads version "
                f"{VERSION}; save it again with this version"
            )
        if set(data) != _FIELDS:
            raise BundleError(f"the manifest must tell {', '.join(sorted(_FIELDS))}, and nothing else")
        names, parameters = data.get("written_by"), _list(data, "parameters")
        if not _is_texts(parameters) or not isinstance(names, dict) or not _is_texts(list(names.values())):
            raise BundleError("the manifest lacks names of parameters or of versions")
        if not isinstance(data["name"], str) or not (data["training"] is None or type(data["training"]) is bool):
            raise BundleError("the manifest lacks a name, or says something else than a training mode")
        forms = tuple(_form(one) for one in _list(data, "recordings"))
        tensors = tuple(StoredTensor.from_json(one) for one in _list(data, "tensors"))
        return cls(data["name"], names, tuple(parameters), data["training"], forms, tensors)


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and all(type(one) is str for one in value)


def _list(data: Mapping[str, Any], name: str) -> list[Any]:
    found = data.get(name)
    if not isinstance(found, list) or len(found) > _MOST_TENSORS:
        raise BundleError(f"the manifest lacks a list of {name}")
    return found


def _leaf_to_json(leaf: TensorLeaf | ValueLeaf) -> dict[str, Any]:
    if isinstance(leaf, ValueLeaf):
        return {"value": value_text(leaf.value)}
    return {"tensor": leaf.position}


def _form(data: Any) -> CallForm:
    if not isinstance(data, dict) or set(data) != {"arguments", "leaves", "result"}:
        raise BundleError("the manifest describes a recording in a way that is not known")
    leaves: list[TensorLeaf | ValueLeaf] = []
    tensors = 0
    for leaf in _list(data, "leaves"):
        if isinstance(leaf, dict) and set(leaf) == {"value"} and isinstance(leaf["value"], str):
            leaves.append(ValueLeaf(parse_value(leaf["value"])))
            continue
        if not isinstance(leaf, dict) or set(leaf) != {"tensor"} or type(leaf["tensor"]) is not int:
            raise BundleError("the manifest describes an argument in a way that is not known")
        if not 0 <= leaf["tensor"] <= tensors:
            raise BundleError("the manifest counts the tensors that are passed wrongly")
        leaves.append(TensorLeaf(leaf["tensor"]))
        tensors = max(tensors, leaf["tensor"] + 1)
    form = CallForm(structure_from_json(data["arguments"]), tuple(leaves), structure_from_json(data["result"]))
    root = form.arguments
    if root.kind != "tuple" or [part.kind for part in root.parts] != ["tuple", "dict"] or root.leaves != len(leaves):
        raise BundleError("the manifest describes arguments that are no arguments of a call")
    return form
