"""How arguments and results of a bundle are nested, without the classes that only the saving process has.

In: the shape of nested values, or JSON. Out: a structure that is compared, written as JSON and filled with leaves.
Lists, tuples, dictionaries and named tuples come back as what they were. Dataclasses and records of other packages,
such as the outputs of Hugging Face's models, come back as a NamedResults with the same fields.
"""

from __future__ import annotations

import keyword
from collections import OrderedDict, namedtuple
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ingot.base.errors import BundleError, UnsupportedError
from ingot.frontend.jit.arguments.structure import Shape

_KINDS = ("leaf", "list", "tuple", "dict", "ordered_dict", "named_tuple", "record")
_NAMED = _KINDS[3:]
"""Those whose parts have names."""
_DEEPEST = 32


class NamedResults(dict[str, Any]):
    """Results with names: `results.logits`, `results["logits"]` and `results[0]` are the same."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"there is no {name!r} among {', '.join(self)}") from None

    def __getitem__(self, name: str | int | slice) -> Any:
        if isinstance(name, str):
            return super().__getitem__(name)
        return tuple(self.values())[name]


@dataclass(frozen=True, slots=True)
class Structure:
    """A leaf, or a kind of container with the structures of its parts."""

    kind: str
    parts: tuple[Structure, ...] = ()
    keys: tuple[str, ...] = ()
    """The names of the parts, where they have any."""
    name: str = ""
    """What a named tuple or record is called."""

    @property
    def leaves(self) -> int:
        """How many leaves there are."""
        return 1 if self.kind == "leaf" else sum(part.leaves for part in self.parts)

    def __str__(self) -> str:
        if self.kind == "leaf":
            return "*"
        named = [f"{key}={part}" for key, part in zip(self.keys, self.parts, strict=True)] if self.keys else self.parts
        inner = ", ".join(map(str, named))
        return {"list": f"[{inner}]", "tuple": f"({inner})"}.get(self.kind, f"{self.name or self.kind}({inner})")


def structure_of(shape: Shape) -> Structure:
    """The structure of nested values; refuses containers that no file can tell of."""
    parts = tuple(structure_of(part) for part in shape.parts)
    kind = shape.kind if shape.kind is None or isinstance(shape.kind, type) else shape.kind.type
    context = getattr(shape.context, "value", shape.context)
    if kind is None:
        return Structure("leaf")
    if kind in (list, tuple):
        return Structure(kind.__name__, parts)
    if issubclass(kind, tuple):
        names = getattr(kind, "_fields", None) or getattr(kind, "__match_args__", ())
        return Structure("named_tuple", parts, _names(names, parts, kind), kind.__name__)
    if kind in (dict, OrderedDict):
        return Structure("dict" if kind is dict else "ordered_dict", parts, _names(context, parts, kind))
    return Structure("record", parts, _names(context, parts, kind), kind.__name__)


def _names(names: Any, parts: Sequence[Structure], kind: type) -> tuple[str, ...]:
    is_list = isinstance(names, list | tuple) and all(type(name) is str for name in names)
    if not is_list or len(names) != len(parts):
        raise UnsupportedError(
            f"a bundle cannot hold a {kind.__name__} whose parts are not all named by texts; pass and return lists, "
            "tuples and dictionaries with texts as keys"
        )
    return tuple(names)


def builder_of(structure: Structure) -> Callable[[Sequence[Any]], Any]:
    """A function that puts leaves together."""
    if structure.kind == "leaf":
        return lambda leaves: leaves[0]
    if all(part.kind == "leaf" for part in structure.parts) and structure.kind in ("list", "tuple"):
        return list if structure.kind == "list" else tuple
    classes = _named_tuples(structure)
    return lambda leaves: _filled(structure, iter(leaves), classes)


def _named_tuples(structure: Structure) -> dict[Structure, Any]:
    found: dict[Structure, Any] = {}
    for part in structure.parts:
        found |= _named_tuples(part)
    if structure.kind == "named_tuple":
        found[structure] = namedtuple(structure.name, structure.keys)
    return found


def _filled(structure: Structure, leaves: Iterator[Any], classes: dict[Structure, Any]) -> Any:
    if structure.kind == "leaf":
        return next(leaves)
    parts = [_filled(part, leaves, classes) for part in structure.parts]
    if structure.kind in ("list", "tuple"):
        return parts if structure.kind == "list" else tuple(parts)
    if structure.kind == "named_tuple":
        return classes[structure](*parts)
    kind = {"dict": dict, "ordered_dict": OrderedDict, "record": NamedResults}[structure.kind]
    return kind(zip(structure.keys, parts, strict=True))


# --- JSON -------------------------------------------------------------------------------------------------------------


def structure_to_json(structure: Structure) -> Any:
    """A structure as plain data."""
    if structure.kind == "leaf":
        return "leaf"
    data: dict[str, Any] = {"kind": structure.kind, "parts": [structure_to_json(part) for part in structure.parts]}
    if structure.kind in _NAMED:
        data["keys"] = list(structure.keys)
    return data | ({"name": structure.name} if structure.name else {})


def structure_from_json(data: Any, depth: int = 0) -> Structure:
    """A structure from plain data that anyone may have written."""
    if data == "leaf":
        return Structure("leaf")
    if not isinstance(data, dict) or depth > _DEEPEST or not set(data) <= {"kind", "parts", "keys", "name"}:
        raise BundleError("the manifest describes nested values in a way that is not known")
    kind, parts, keys, name = (data.get(one) for one in ("kind", "parts", "keys", "name"))
    if kind not in _KINDS[1:] or not isinstance(parts, list):
        raise BundleError(f"the manifest names a container that is not known: {str(kind)[:40]!r}")
    found = tuple(structure_from_json(part, depth + 1) for part in parts)
    if (kind in _NAMED) != (keys is not None) or (kind in ("named_tuple", "record")) != (name is not None):
        raise BundleError(f"the manifest describes a {kind} without its names, or with names that it has not")
    names = keys if keys is not None else []
    if not isinstance(names, list) or not all(type(one) is str for one in names) or len(set(names)) < len(names):
        raise BundleError("the names of parts are texts that differ")
    if keys is not None and len(names) != len(found):
        raise BundleError("a container has as many names as parts")
    if name is not None and not _is_name(name):
        raise BundleError(f"{str(name)[:40]!r} is no name of a class")
    if kind == "named_tuple" and not all(_is_name(one) and not one.startswith("_") for one in names):
        raise BundleError("the fields of a named tuple are Python names")
    return Structure(kind, found, tuple(names), name or "")


def _is_name(text: Any) -> bool:
    return isinstance(text, str) and len(text) < 200 and text.isidentifier() and not keyword.iskeyword(text)
