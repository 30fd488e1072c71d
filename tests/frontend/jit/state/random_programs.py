"""Random programs over state: their grammar, their source text, and their run over time in a world.

A recipe is a list of statements over the tensors `x` and `y`, and a schedule of calls with changes of state between
them. Two worlds built from one recipe do the same eagerly. Numbers are small integers: sums are exact in any order.

A statement becomes source text, `x`, `y` and earlier results being `t`:

    operation    t2 = bounded(t0 * t1)
    read         t3 = bounded(t1 * config.scale)
    effect       log.append(int(t3.sum().item()))
    write        t0[1:].add_(2)
    branch       if t0.sum() > 2: ... else: ...
"""

from __future__ import annotations

import itertools
import linecache
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from tests.frontend.jit.state.running import Moment, look
from tests.frontend.jit.state.state_kinds import KINDS, Globals, fresh_globals
from tests.frontend.jit.state.worlds import Compile, World, numbers

OPERATIONS = (
    "{a} + {b}",
    "{a} - {b}",
    "{a} * {b}",
    "torch.maximum({a}, {b})",
    "torch.where({a} > {b}, {a}, {b} + {k})",
    "{a} * {k} + 1",
    "torch.relu({a})",
    "{a}.sum(0) + {b}",
    "{a}.cumsum(0)",
    "{a}.flip(0) + {k}",
    "torch.cat([{a}, {b}])[:{a}.shape[0]]",
    "{a} * {a}.shape[0]",
    "{a} / {a}.size(1) + len({b})",
    "{a} + torch.arange({a}.shape[0]).unsqueeze(1)",
    "{a} + torch.randint(-2, 3, (4,))",
    "{a} + (torch.from_numpy({b}.numpy() * 2) if not {b}.requires_grad else {b})",
    "inner({a}) + {k}",
)
VIEWS = ("{a}.view(-1).view({a}.shape)", "{a}.t().t()", "{a}[:]", "{a}[:1].expand_as({a})", "{a}.detach()", "{a}")
EXTRAS = (
    "{a}[:3] * 2",
    "{a}[{k}:] + 1",
    "{a}[{a} > 0]",
    "{a}[-2:, ::2].relu()",
    "{a}.t()",
    "{a}.shape[0]",
    "{a}.sum()",
)
EFFECTS = (
    "log.append({k})",
    "log.append(tuple({a}.shape))",
    "log.append(int({a}.sum().item()))",
    "counts['calls'] += {k}",
    "counts['last'] = {a} * 2",
    "values.append(len(values))",
    "module.seen.add_({k}).clamp_(-9, 9)",
    "module.factor += 1",
    "table['k'] = (table['k'] + 1) % 4",
    "print({k})",
)
WRITES = (
    "{a}.add_({k}).clamp_(-9, 9)",
    "{a}.mul_({b}).clamp_(-9, 9)",
    "{a}[1:].mul_({k}).clamp_(-9, 9)",
    "{a}[:, ::2] = {k}",
    "{a}.view(-1)[:3].zero_()",
    "{a}[{a} > {k}] = 1",
    "{a}[0] += {b}[-1]; {a}.clamp_(-9, 9)",
)
CONDITIONS = (
    "{a}.sum() > {k}",
    "{a}[0, 0].item() > {k}",
    "bool(({a} > {k}).any())",
    "{a}.shape[0] > {k} + 1",
    "{read} > 1",
    "{a} is {b}",
)
FAULTS = (
    "if {a}.sum() > 6 * {k}: raise ValueError",
    "if len(log) % 5 == 4: raise KeyError",
    "{a}[{k}]",
    "torch.index_select({a}, 0, torch.tensor([{k}]))",
)


@dataclass(frozen=True)
class Statement:
    """One line, or a branch with lines of its own; numbers choose, whatever they are."""

    form: str
    template: int
    a: int
    b: int
    k: int
    read: str
    then: tuple[Statement, ...] = ()
    otherwise: tuple[Statement, ...] = ()


@dataclass(frozen=True)
class Call:
    changes: tuple[tuple[str, int], ...]
    """Kinds of state that change before the call, and to what."""
    rows: int
    arguments: str
    way: str


ARGUMENTS = ("apart", "twice", "overlapping", "last result", "gradient")
WAYS = ("plain", "plain", "plain", "profiled", "thread")


@dataclass(frozen=True)
class Recipe:
    statements: tuple[Statement, ...]
    returned: tuple[int, ...]
    calls: tuple[Call, ...]

    def source(self) -> str:
        return _Writing().source(self)


class _Writing:
    def __init__(self) -> None:
        self.lines: list[str] = []
        self.count = 2

    def source(self, recipe: Recipe) -> str:
        body = self._block(recipe.statements, 2)
        # Counted from the last one: what was computed last is most often returned.
        returned = ", ".join([f"t{self.count - 1 - index % self.count}" for index in recipe.returned])
        return "\n".join(
            [
                "def bounded(t):",
                "    return t.round().clamp(-9, 9)",
                "",
                "def make(cell, inner):",
                "    def set_cell(number):",
                "        nonlocal cell",
                "        cell = number",
                "",
                "    def f(x, y, *, keyword=1):",
                "        t0, t1, extras = x, y, []",
                *body,
                f"        return [{returned}], extras",
                "",
                "    return f, set_cell",
                "",
            ]
        )

    def _block(self, statements: tuple[Statement, ...], depth: int) -> list[str]:
        lines = [line for one in statements for line in self._statement(one, depth)]
        return lines or ["    " * depth + "pass"]

    def _statement(self, one: Statement, depth: int) -> list[str]:
        indent = "    " * depth
        names = {"a": f"t{one.a % self.count}", "b": f"t{one.b % self.count}", "k": one.k}
        names["read"] = KINDS[one.read].expression
        if one.form == "branch":
            return self._branch(one, indent, names, depth)
        templates = {"effect": EFFECTS, "write": WRITES, "fault": FAULTS, "extra": EXTRAS}.get(one.form)
        if templates is not None:
            line = templates[one.template % len(templates)].format(**names)
            return [indent + (f"extras.append({line})" if one.form == "extra" else line)]
        expression = {
            "operation": lambda: f"bounded({_chosen(OPERATIONS, one)})",
            "view": lambda: _chosen(VIEWS, one),
            "read": lambda: "bounded({a} " + "*+-"[one.template % 3] + " {read})",
        }[one.form]()
        line = f"{indent}t{self.count} = {expression.format(**names)}"
        self.count += 1
        return [line]

    def _branch(self, one: Statement, indent: str, names: dict[str, Any], depth: int) -> list[str]:
        """Tensors that are made inside a branch are not seen behind it."""
        condition, count = _chosen(CONDITIONS, one).format(**names), self.count
        if one.template % 7 == 6:
            lines = [
                f"{indent}while {names['a']}.abs().max() > 1:",
                f"{indent}    {names['a']} = {names['a']}.div(2).trunc()",
            ]
        else:
            then = self._block(one.then, depth + 1)
            self.count = count
            lines = [f"{indent}if {condition}:", *then, f"{indent}else:", *self._block(one.otherwise, depth + 1)]
        self.count = count
        return lines


def _chosen(templates: tuple[str, ...], one: Statement) -> str:
    return templates[one.template % len(templates)]


_FILES = itertools.count()


def _built(recipe: Recipe, world: World, state: Globals) -> Any:
    """The recipe's function, compiled as the world compiles; its source can be found as that of any function."""
    source, name = recipe.source(), f"<random program {next(_FILES)}>"
    linecache.cache[name] = (len(source), None, source.splitlines(True), name)
    world.at_end(linecache.cache.pop, name, None)
    exec(compile(source, name, "exec"), state)
    function, state["set_cell"] = state["make"](1, world.compile(lambda t: t * state["scale"] + 1))
    return world.compile(function)


def _arguments(call: Call, number: int, last: Any) -> tuple[torch.Tensor, torch.Tensor]:
    x = numbers(number, call.rows, 4)
    if call.arguments == "twice":
        return x, x
    if call.arguments == "overlapping":
        whole = numbers(number, call.rows + 1, 4)
        return whole[:-1], whole[1:]
    if call.arguments == "last result" and isinstance(last, torch.Tensor) and last.shape == x.shape:
        return x, last.detach()
    if call.arguments == "gradient":
        return x.requires_grad_(), numbers(number + 1, call.rows, 4)
    return x, numbers(number + 1, call.rows, 4)


def _in_thread(run: Callable[[], Any]) -> Any:
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(run()))
    thread.start()
    thread.join()
    return found[0]


def _profiled(run: Callable[[], Any]) -> Any:
    before = sys.getprofile()
    sys.setprofile(lambda *_: None)
    try:
        return run()
    finally:
        sys.setprofile(before)


_HOW: dict[str, Callable[[Callable[[], Any]], Any]] = {
    "plain": lambda run: run(),
    "profiled": _profiled,
    "thread": _in_thread,
}


def run_recipe(recipe: Recipe, compile_function: Compile) -> list[Moment]:
    """All calls of a recipe in a world of its own, and what could be seen of each."""
    with World(compile_function) as world:
        state = fresh_globals(world)
        function = _built(recipe, world, state)
        moments: list[Moment] = []
        results: list[Any] = [None]
        for number, call in enumerate(recipe.calls):
            for kind, value in call.changes:
                KINDS[kind].change(state, value)
            args = _arguments(call, number, results[-1])
            keywords = {"keyword": state["next_keyword"]} if "next_keyword" in state else {}
            torch.manual_seed(number)

            def run(args: Any = args, keywords: Any = keywords) -> Any:
                try:
                    return function(*args, **keywords)
                except Exception as error:
                    return error.with_traceback(None)

            result = _HOW[call.way](run)
            seen = [state[name] for name in ("log", "counts", "table", "values")]
            around = [*seen, state["module"].seen, state["module"].factor, torch.get_rng_state()]
            moments.append(Moment(look((result, args)), look(around)))
            results.append(result[0][0] if isinstance(result, tuple) else None)
        return [*moments, Moment(look(results), look(None))]
