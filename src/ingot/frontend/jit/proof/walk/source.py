"""The syntax tree of a function's code.

In: a code object. Out: the node it was compiled from, and the class around it, or None. What always holds: the node,
compiled again, gives that very code, so that a file that has changed since it was imported is not taken for its code.
"""

from __future__ import annotations
import __future__

import ast
import dataclasses
import functools
import linecache
import operator
import re
import types
from collections.abc import Iterator
from typing import Any

_FUTURES = functools.reduce(
    operator.or_, (getattr(__future__, name).compiler_flag for name in __future__.all_feature_names)
)
_GENERATOR = 0x20 | 0x80 | 0x200  # generators, coroutines, asynchronous generators
_PARTS = ("co_code", "co_names", "co_varnames", "co_freevars", "co_cellvars") + (
    "co_argcount",
    "co_kwonlyargcount",
    "co_posonlyargcount",
)

Definition = ast.FunctionDef | ast.Lambda


@dataclasses.dataclass(frozen=True)
class Source:
    node: Definition
    class_name: str | None
    """The innermost class around the function: names with two leading underscores are spelled after it."""
    is_generator: bool


@dataclasses.dataclass(frozen=True)
class _Candidate:
    node: Definition
    path: tuple[ast.AST, ...]
    """The nodes around it, from the outermost."""


_imports: dict[str, tuple[list[str], list[frozenset[str]]]] = {}
"""Of each file: its lines, the names that it imports anywhere, and those that it imports in no block."""
_trees: dict[tuple[str, int, int], tuple[list[str], ast.Module]] = {}
"""Pieces of files that were parsed: file, first and last line."""
_found: dict[int, tuple[types.CodeType, Source | None]] = {}
_initialisers: dict[int, tuple[types.CodeType, Source | None]] = {}
"""Kept by the identity of the code, which is kept alive: hashing code takes as long as reading it."""
_MOST_FOUND = 4096
"""Functions whose text is kept; with more, all are forgotten."""


def source_of(function: types.FunctionType) -> Source | None:
    code = function.__code__
    if (entry := _found.get(id(code))) is None:
        _make_room()
        entry = _found[id(code)] = (code, _find(code, function.__globals__))
    return entry[1]


def _make_room() -> None:
    """Programs may generate any number of functions."""
    if len(_found) + len(_initialisers) >= _MOST_FOUND:
        for table in (_imports, _trees, _found, _initialisers):
            table.clear()


def _find(code: types.CodeType, names: dict[str, Any]) -> Source | None:
    file = code.co_filename
    if file.startswith("<frozen "):  # parts of the standard library are built into the interpreter
        file = str(names.get("__file__", ""))
    lines = linecache.getlines(file)
    if not lines:
        return None
    # A large file takes long to parse: the function alone is tried first, then the statement around it.
    for piece in (_function_alone, _statement_around, _whole_file):
        try:
            tree = piece(file, lines, code)
            choices = [frozenset(_module_imports(tree))] if piece is _whole_file else _imported(file, lines)
            for imported in choices:
                found = _matching(tree, imported, code)
                if found is not None:
                    return found
        except (SyntaxError, ValueError, RecursionError):
            continue
    return None


def _matching(tree: ast.Module, imported: frozenset[str], code: types.CodeType) -> Source | None:
    candidates = list(_candidates(tree, (), code.co_name, code.co_firstlineno))
    if code.co_name == "<lambda>":
        candidates = _innermost(candidates, code)
    for candidate in candidates:
        if any(_is_same_code(found, code) for found in _compiled(imported, candidate, code)):
            classes = [node.name for node in candidate.path if isinstance(node, ast.ClassDef)]
            return Source(candidate.node, classes[-1] if classes else None, bool(code.co_flags & _GENERATOR))
    return None


# --- pieces of files --------------------------------------------------------------------------------------------------


def _function_alone(file: str, lines: list[str], code: types.CodeType) -> ast.Module:
    """A function or method that is not inside another function, with the heads of the classes around it."""
    first = code.co_firstlineno - 1
    if "<" in code.co_qualname or first >= len(lines):
        raise ValueError(code.co_qualname)
    heads = [f"{' ' * depth}class {name}:\n" for depth, name in enumerate(code.co_qualname.split(".")[:-1])]
    indent = _indent(lines[first])
    if not heads and indent:
        heads = ["if 1:\n"]
    if first < len(heads):
        raise ValueError(code.co_qualname)
    begin = next((n for n in range(first, len(lines)) if lines[n].lstrip().startswith("def ")), first)
    return _parsed([*heads, *lines[first : _end(lines, begin, indent)]], first - len(heads))


def _parsed(lines: list[str], before: int) -> ast.Module:
    """Lines of a file that are preceded by others: with as many empty ones, nodes have their place in the file."""
    return ast.parse("".join(["\n" * before, *lines]))


def _statement_around(file: str, lines: list[str], code: types.CodeType) -> ast.Module:
    """The statement of the module that a function is in."""
    first = min(code.co_firstlineno - 1, len(lines) - 1)
    while first > 0 and (_indent(lines[first]) or not lines[first][:1].isidentifier()):
        first -= 1
    while first > 0 and lines[first - 1].startswith("@"):
        first -= 1
    begin = next((n for n in range(first, len(lines)) if not lines[n].startswith("@")), first)
    end = _end(lines, begin, 0)
    entry = _trees.get((file, first, end))
    if entry is None or entry[0] is not lines:
        entry = _trees[file, first, end] = (lines, _parsed(lines[first:end], first))
    return entry[1]


def _whole_file(file: str, lines: list[str], code: types.CodeType) -> ast.Module:
    entry = _trees.get((file, 0, len(lines)))
    if entry is None or entry[0] is not lines:
        entry = _trees[file, 0, len(lines)] = (lines, ast.parse("".join(lines)))
    return entry[1]


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _end(lines: list[str], begin: int, indent: int) -> int:
    """The line after a statement that begins in a line: the next one that is not further in."""
    for number in range(begin + 1, len(lines)):
        text = lines[number].lstrip()
        if text and text[0] not in "#)]}" and _indent(lines[number]) <= indent:
            return number
    return len(lines)


_IMPORT = re.compile(r"[ \t]*(?:from\s+\S+\s+)?import\s+(\([^)]*\)|[^\n#]*(?:\\\n[^\n#]*)*)")


def _import_statements(text: str) -> Iterator[re.Match[str]]:
    """Lines that look like imports. Only those with the word are looked at: files may be long."""
    position = text.find("import")
    while position >= 0:
        if match := _IMPORT.match(text, text.rfind("\n", 0, position) + 1):
            yield match
        position = text.find("import", max(position + 6, match.end() if match else 0))


def _imported(file: str, lines: list[str]) -> list[frozenset[str]]:
    """Names that a module may import. Python compiles calls of their attributes differently."""
    entry = _imports.get(file)
    if entry is None or entry[0] is not lines:
        everywhere: set[str] = set()
        outside: set[str] = set()
        for match in _import_statements("".join(lines)):
            for part in re.sub(r"#[^\n]*|[()\\]", " ", match.group(1)).split(","):
                name = part.split()[-1:]
                everywhere.update(one.split(".")[0] for one in name)
                outside.update(one.split(".")[0] for one in name if match.group(0)[0] not in " \t")
        entry = _imports[file] = (lines, [frozenset(everywhere), frozenset(outside)])
    return entry[1]


def _module_imports(node: ast.AST) -> Iterator[str]:
    """The names that a module imports, exactly."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield from (alias.asname or alias.name.split(".")[0] for alias in child.names)
        elif isinstance(child, ast.If | ast.Try | ast.With | ast.ExceptHandler | ast.For | ast.While):
            yield from _module_imports(child)


def _candidates(node: ast.AST, path: tuple[ast.AST, ...], name: str, line: int) -> Iterator[_Candidate]:
    """Definitions of a name that begin in a line; only what lies around that line is looked at."""
    for child in ast.iter_child_nodes(node):
        if not hasattr(child, "lineno"):
            yield from _candidates(child, path, name, line)
            continue
        is_definition = isinstance(child, ast.FunctionDef | ast.Lambda)
        is_head = isinstance(child, ast.ClassDef | ast.If) and len(child.body) == 1  # it may stand in any line
        if not is_head and not (_first_line(child) <= line <= child.end_lineno):  # type: ignore[attr-defined]
            continue
        if is_definition and _first_line(child) == line and getattr(child, "name", "<lambda>") == name:
            yield _Candidate(child, path)
        yield from _candidates(child, (*path, child), name, line)


def _first_line(node: Any) -> int:
    decorators = getattr(node, "decorator_list", None)
    return decorators[0].lineno if decorators else node.lineno


def _innermost(candidates: list[_Candidate], code: types.CodeType) -> list[_Candidate]:
    """The lambda of a line that the code's instructions lie in: the last one around them all."""
    spans = [span for span in code.co_positions() if None not in span and span[2] != span[3]]
    if not spans:
        return candidates if len(candidates) == 1 else []
    start = min((span[0], span[2]) for span in spans)  # type: ignore[type-var]
    end = max((span[1], span[3]) for span in spans)  # type: ignore[type-var]
    around = [
        candidate
        for candidate in candidates
        if (candidate.node.body.lineno, candidate.node.body.col_offset) <= start  # type: ignore[union-attr]
        and end <= (candidate.node.body.end_lineno, candidate.node.body.end_col_offset)  # type: ignore[union-attr]
    ]
    return around[-1:]


def _compiled(imported: frozenset[str], candidate: _Candidate, code: types.CodeType) -> list[types.CodeType]:
    """Every code object of the smallest piece of the file that is compiled as the whole file would be."""
    body: Any = candidate.node
    for node in reversed(candidate.path):
        if isinstance(node, ast.ClassDef) and isinstance(body, ast.stmt):
            body = ast.copy_location(ast.ClassDef(node.name, [], [], [body], []), node)
            if "type_params" in ast.ClassDef._fields:
                body.type_params = []
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) or not isinstance(body, ast.stmt):
            body = node  # the function around it, or the statement that a lambda is in
    if not isinstance(body, ast.stmt):
        return []
    used = {name for one in (code, *_codes(code)) for name in one.co_names}
    imports = [ast.fix_missing_locations(ast.Import([ast.alias(name)])) for name in sorted(used & imported)]
    module = ast.Module([*imports, body], [])
    flags = code.co_flags & _FUTURES
    return list(_codes(compile(module, code.co_filename, "exec", flags, dont_inherit=True)))


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield constant
            yield from _codes(constant)


def dataclass_initialiser(cls: type, function: types.FunctionType) -> Source | None:
    """The source of an `__init__` that `dataclass` wrote: it is written again here, and has to give the same code."""
    code = function.__code__
    fields = cls.__dict__.get("__dataclass_fields__")
    if fields is None or cls.__dict__.get("__init__") is not function or not code.co_filename.startswith("<"):
        return None
    if (entry := _initialisers.get(id(code))) is None:
        _make_room()
        entry = _initialisers[id(code)] = (code, _written_again(cls, fields, code))
    return entry[1]


def _written_again(cls: type, fields: dict[str, Any], code: types.CodeType) -> Source | None:
    kinds = [vars(dataclasses)["_FIELD"], vars(dataclasses)["_FIELD_INITVAR"]]
    names = [field.name for field in fields.values() if field.init and field._field_type in kinds]
    positional = code.co_varnames[1 : code.co_argcount]
    keyword = code.co_varnames[code.co_argcount : code.co_argcount + code.co_kwonlyargcount]
    if sorted(names) != sorted((*positional, *keyword)):
        return None
    signature = ", ".join([code.co_varnames[0], *positional, *(["*", *keyword] if keyword else [])])
    first = code.co_varnames[0]
    lines = [f"  {_stored(cls, first, name, code)}" for name in names]
    if "__post_init__" in code.co_names:
        lines.append(f"  {first}.__post_init__()")
    text = f"def around({', '.join(code.co_freevars)}):\n def __init__({signature}):\n" + "\n".join(
        f" {x}" for x in lines
    )
    tree = ast.parse(text)
    for found in _codes(compile(tree, code.co_filename, "exec", dont_inherit=True)):
        if found.co_name == "__init__" and _does_the_same(found, code):
            outer = tree.body[0]
            assert isinstance(outer, ast.FunctionDef)
            node = outer.body[0]
            assert isinstance(node, ast.FunctionDef)
            return Source(node, None, False)
    return None


_FACTORIES = {"_HAS_DEFAULT_FACTORY": "_dflt_{}", "__dataclass_HAS_DEFAULT_FACTORY__": "__dataclass_dflt_{}__"}
"""How versions of Python name the factory of a default, by how they name a missing default."""


def _stored(cls: Any, first: str, name: str, code: types.CodeType) -> str:
    """The line of an `__init__` that sets an attribute."""
    value = name
    for marker, factory in _FACTORIES.items():
        if factory.format(name) in code.co_freevars:
            value = f"{factory.format(name)}() if {name} is {marker} else {name}"
    if cls.__dataclass_params__.frozen:
        return f'__dataclass_builtins_object__.__setattr__({first},"{name}",{value})'
    return f"{first}.{name}={value}"


def _does_the_same(one: types.CodeType, other: types.CodeType) -> bool:
    if any(getattr(one, part) != getattr(other, part) for part in _PARTS):
        return False
    return len(one.co_consts) == len(other.co_consts) and all(map(_is_same_constant, one.co_consts, other.co_consts))


def _is_same_code(one: types.CodeType, other: types.CodeType) -> bool:
    """Code compares its caches, too, which change while it runs; they are left out here."""
    if one.co_name != other.co_name or one.co_firstlineno != other.co_firstlineno:
        return False
    return one.co_exceptiontable == other.co_exceptiontable and _does_the_same(one, other)


def _is_same_constant(one: Any, other: Any) -> bool:
    if isinstance(one, types.CodeType) and isinstance(other, types.CodeType):
        return _is_same_code(one, other)
    return type(one) is type(other) and (repr(one) == repr(other) or (type(one) is frozenset and one == other))
