"""The record of an operator, and the table that holds them all.

An operator is one record in one place. A primitive becomes one graph node: it has a type rule (`infer`) and a meaning
in plain PyTorch (`reference`). A composite is a Python function over other operators and never appears in a graph.
The table refuses incomplete records when they are made, so importing ingot is the check.
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import Enum, auto
from types import MappingProxyType
from typing import Any

from ingot.base.dtypes import COMPUTED, DataType
from ingot.base.errors import UnknownOperatorError
from ingot.ops.attributes import Attributes
from ingot.ops.parameters import Signature
from ingot.ops.promotion import Promotion
from ingot.ops.samples import EXACT, Samples, Tolerance


@dataclass(frozen=True, slots=True)
class Combination:
    """How a reduction adds one element to what it has so far, in the words of `ops.emission`."""

    identity: Callable[[DataType], Any]
    """identity(dtype): what it has before the first element."""
    combine: Callable[..., Any]
    """combine(emitter, so far, element), both of the accumulator's type. Its order is free: it is associative and
    commutative, up to rounding."""
    accumulator: Callable[[DataType], DataType]
    """The type in which elements of a type are accumulated."""


class Kind(Enum):
    """How an operator relates elements of its result to elements of its operands."""

    POINTWISE = auto()
    REDUCTION = auto()
    SCAN = auto()
    VIEW = auto()
    """Moves elements without computing: an index map."""
    GATHER = auto()
    FACTORY = auto()
    RANDOM = auto()
    LIBRARY = auto()
    STRUCTURE = auto()
    """What graphs are made of besides operators: inputs, constants, sizes, items of library results."""
    COMPOSITE = auto()


@dataclass(frozen=True, eq=False)
class Op:
    """One operator. Build it with `operator`, `pointwise`, `fused_approximation` or `structure`, never by hand."""

    name: str
    kind: Kind
    summary: str
    build: Callable[..., Any] | None
    """build(builder, ...) gives the result handles; None for what users do not call."""
    signature: Signature | None
    infer: Callable[..., Any] | None
    """infer(operand types, attributes, assume) gives the type of the node; None for composites."""
    attributes: type[Attributes]
    reference: Callable[..., Any] | None
    """reference(torch, *operands, **attributes): what the node means; None where the interpreter itself knows."""
    eager: Callable[..., Any] | None
    """eager(torch, ...): the same call written in PyTorch, for tests and for validation."""
    promotion: Promotion | None
    dtypes: frozenset[DataType]
    """Types it computes in, after promotion."""
    commutative: bool
    stable: bool
    """Whether PyTorch gives the same bits wherever in memory an element lies. Vector and scalar code paths differ for
    transcendental functions, and in the sign of a zero for maximum; the interpreter evens that out."""
    number_exponent: bool
    """Whether the reference wants a scalar last operand as a Python number: eager's pow then treats x**2 as x*x."""
    samples: Samples | None
    tolerance: Tolerance
    operand_dtypes: frozenset[DataType] = COMPUTED
    """Types its operands may have before promotion."""
    keeps_precision: tuple[str, ...] = ()
    """Parameters that PyTorch reads in float32 where the others are of a half type and they have no dimensions: a
    tensor of bfloat16 is multiplied by 0.1, whereas all other operands are rounded to bfloat16 first."""
    emit: Callable[..., Any] | None = None
    """emit(emitter, *operands, **attributes): the instructions for one element, in the words of `ops.emission`; None
    for what runs through PyTorch."""
    bounded: tuple[str, ...] = ()
    """Parameters where PyTorch refuses a number that the operands' type cannot hold; elsewhere it wraps around."""
    combination: Combination | None = None
    """For a reduction: how generated code accumulates its elements; None for what runs through PyTorch."""
    takes_one_type: bool = False
    """Whether operands must have one data type: PyTorch promotes none of them."""
    of_complex: Callable[..., Any] | None = None
    """of_complex(builder, ...): what it is of complex numbers, in terms of other operators; None where it takes none.
    Where it only moves values, that is `build` itself."""

    @property
    def is_primitive(self) -> bool:
        return self.kind is not Kind.COMPOSITE

    @property
    def keeps_half_types(self) -> bool:
        """Whether half types stay half in every dialect: where values are only moved, and in scans."""
        return self.promotion in (None, Promotion.MOVEMENT) or self.kind is Kind.SCAN

    @property
    def is_public(self) -> bool:
        """Whether users reach it as `fd.ops.<name>`."""
        return self.build is not None

    @property
    def is_fused_approximation(self) -> bool:
        """Whether it stands in kernels alone, in the place of another operator; no graph holds it."""
        return self.kind is Kind.POINTWISE and self.build is None

    @property
    def is_function(self) -> bool:
        """Whether it takes more than arithmetic: then PyTorch may be more than an ulp away from the exact result."""
        return self.tolerance.ulps > 1

    def __repr__(self) -> str:
        return f"<op {self.name}>"


THROUGH_PYTORCH = None
"""Said in place of an emission: no code is generated for this operator."""

_TABLE: dict[str, Op] = {}
_REFUSED: dict[str, str] = {}


def table() -> Mapping[str, Op]:
    """All operators by name, in order of definition."""
    return MappingProxyType(_TABLE)


def refuse(name: str, reason: str) -> None:
    """Say why an operator of nvFuser's is not there."""
    _REFUSED[name] = reason


def refused() -> Mapping[str, str]:
    """The operators of nvFuser's that are not there, and why."""
    return MappingProxyType(_REFUSED)


def lookup(name: str) -> Op:
    """The operator of this name, or an error that suggests the nearest ones."""
    found = _TABLE.get(name)
    if found is None and name in _REFUSED:
        raise UnknownOperatorError(f"there is no operator {name!r}: {_REFUSED[name]}; see docs/nvfuser-interface.md")
    if found is None:
        public = [op.name for op in _TABLE.values() if op.is_public]
        near = difflib.get_close_matches(name, public, n=3)
        hint = f"did you mean {', '.join(near)}?" if near else "`ingot ops` lists all of them."
        raise UnknownOperatorError(f"there is no operator {name!r}; {hint}")
    return found


def operator(
    kind: Kind,
    *,
    samples: Samples,
    eager: str | Callable[..., Any],
    name: str | None = None,
    infer: Callable[..., Any] | None = None,
    attributes: type[Attributes] = Attributes,
    reference: Callable[..., Any] | None = None,
    promotion: Promotion | None = None,
    dtypes: frozenset[DataType] = COMPUTED,
    stable: bool = True,
    tolerance: Tolerance = EXACT,
    operand_dtypes: frozenset[DataType] = COMPUTED,
    keeps_precision: tuple[str, ...] = (),
    emit: Callable[..., Any] | None = THROUGH_PYTORCH,
    combination: Combination | None = THROUGH_PYTORCH,
    takes_one_type: bool = False,
):
    """Decorator: the function builds the operator, its signature is the operator's, its docstring the summary."""

    def register(build: Callable[..., Any]) -> Callable[..., Any]:
        _add(
            Op(
                name=name or build.__name__.rstrip("_"),
                kind=kind,
                summary=(build.__doc__ or "").strip(),
                build=build,
                signature=Signature.of(build),
                infer=infer,
                attributes=attributes,
                reference=reference,
                eager=_resolve_later(eager),
                promotion=promotion,
                dtypes=dtypes,
                commutative=False,
                stable=stable,
                number_exponent=False,
                samples=samples,
                tolerance=tolerance,
                operand_dtypes=operand_dtypes,
                keeps_precision=keeps_precision,
                emit=emit,
                combination=combination,
                takes_one_type=takes_one_type,
            )
        )
        return build

    return register


def pointwise(
    name: str,
    build: Callable[..., Any],
    summary: str,
    *,
    infer: Callable[..., Any],
    samples: Samples,
    emit: Callable[..., Any] | None,
    eager: str | Callable[..., Any] | None = None,
    promotion: Promotion,
    dtypes: frozenset[DataType],
    commutative: bool = False,
    stable: bool = True,
    number_exponent: bool = False,
    tolerance: Tolerance = EXACT,
    operand_dtypes: frozenset[DataType] = COMPUTED,
    keeps_precision: tuple[str, ...] = (),
    bounded: tuple[str, ...] = (),
) -> None:
    """Add an element-by-element primitive; its node and its call have the same meaning in PyTorch."""
    meaning = _resolve_later(eager or f"torch.{name}")
    _add(
        Op(
            name=name,
            kind=Kind.POINTWISE,
            summary=summary,
            build=build,
            signature=Signature.of(build),
            infer=infer,
            attributes=Attributes,
            reference=meaning,
            eager=meaning,
            promotion=promotion,
            dtypes=dtypes,
            commutative=commutative,
            stable=stable,
            number_exponent=number_exponent,
            samples=samples,
            tolerance=tolerance,
            operand_dtypes=operand_dtypes,
            keeps_precision=keeps_precision,
            emit=emit,
            bounded=bounded,
        )
    )


def fused_approximation(
    name: str,
    of: str,
    summary: str,
    *,
    emit: Callable[..., Any],
    reference: Callable[..., Any] | None = None,
) -> None:
    """Add what kernels may compute in the place of an element-by-element primitive, or of it and the operator that
    follows, where a program needs less than all that it promises. Without a reference it means the same."""
    exact = lookup(of)
    _add(
        replace(
            exact,
            name=name,
            summary=summary,
            build=None,
            signature=None,
            reference=reference or exact.reference,
            eager=None,
            samples=None,
            emit=emit,
        )
    )


def of_complex(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator: what operators of the table are of complex numbers. The function takes what their own take."""

    def register(build: Callable[..., Any]) -> Callable[..., Any]:
        for name in names:
            _TABLE[name] = replace(_taking_none(name), of_complex=build)
        return build

    return register


def same_of_complex(*names: str) -> None:
    """These operators of the table are built of complex numbers as they are of real ones."""
    for name in names:
        _TABLE[name] = replace(_taking_none(name), of_complex=lookup(name).build)


def _taking_none(name: str) -> Op:
    """An operator that takes no complex numbers yet."""
    if lookup(name).of_complex is not None:
        raise TypeError(f"what {name} is of complex numbers is said twice")
    return lookup(name)


def structure(
    name: str,
    kind: Kind,
    summary: str,
    *,
    infer: Callable[..., Any],
    attributes: type[Attributes],
    reference: Callable[..., Any] | None = None,
) -> None:
    """Add a primitive that users do not call by name."""
    _add(
        Op(
            name=name,
            kind=kind,
            summary=summary,
            build=None,
            signature=None,
            infer=infer,
            attributes=attributes,
            reference=reference,
            eager=None,
            promotion=None,
            dtypes=COMPUTED,
            commutative=False,
            stable=True,
            number_exponent=False,
            samples=None,
            tolerance=EXACT,
        )
    )


_INTERPRETED = frozenset({Kind.STRUCTURE, Kind.LIBRARY})


def _add(op: Op) -> None:
    """Refuse what is incomplete or defined twice: a missing rule must never become a silent default."""
    if op.name in _TABLE:
        raise TypeError(f"operator {op.name} is defined twice")
    if not op.summary:
        raise TypeError(f"operator {op.name} has no summary")
    if op.is_primitive and op.infer is None:
        raise TypeError(f"primitive {op.name} has no type rule")
    if op.is_primitive and op.reference is None and op.kind not in _INTERPRETED:
        raise TypeError(f"primitive {op.name} has no reference")
    if not op.is_primitive and (op.infer is not None or op.reference is not None):
        raise TypeError(f"composite {op.name} has rules of a primitive")
    _TABLE[op.name] = op


def _resolve_later(target: str | Callable[..., Any]) -> Callable[..., Any]:
    """A dotted name becomes a function that finds it at its first call, so that this package never imports torch."""
    if callable(target):
        return target
    module_name, _, attribute = target.rpartition(".")

    def call(_: Any, *arguments: Any, **keywords: Any) -> Any:
        return getattr(importlib.import_module(module_name), attribute)(*arguments, **keywords)

    return call
