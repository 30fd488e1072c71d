"""From operations to steps: which of them become regions of generated code, which are calls, and in what order.

In: the operations of a trace. Out: steps over real tensors:

    region   pure operations and the views between them, as one graph, run when a real tensor is needed
    call     one operation as PyTorch runs it

Pure operations wait until a real tensor is needed: a call that reads it, the end, or a write into memory that they
read. A region then takes all that the needed values are made from, and nothing else; values that later operations read
are results of it too. So an operation that a call does not need moves past it, to where it can be fused with its
readers. But what may raise an error because of values stays on its side of writes and random draws.

A region is on one device. Tensors of the CPU without dimensions, which PyTorch takes for numbers beside tensors on
other devices, are inputs of a region, or computed in it once more, if all that they are made of are such numbers, too.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import torch

from ingot.frontend.jit.lowering.value_errors import has_lasting_effect, may_raise
from ingot.frontend.jit.trace.ssa import SSA, Operation, OperationKind, Version
from ingot.frontend.jit.trace.trace import TraceValue, all_of, draws_numbers, written_arguments


@dataclass(frozen=True, slots=True)
class Region:
    """Operations that become generated code."""

    operations: tuple[Operation, ...]
    """Pure ones and views, in program order."""
    inputs: tuple[Version, ...]
    outputs: tuple[Version, ...]
    writes: tuple[Version, ...]
    """Versions that are written into the register they are of, which is an input too."""
    device: torch.device

    @property
    def names_device(self) -> bool:
        """Whether its inputs determine the device."""
        return self.device.type == "cpu" or any(not version.note.is_number for version in self.inputs)


@dataclass(frozen=True, slots=True)
class EagerCall:
    """One operation on real tensors."""

    operation: Operation


Step = Region | EagerCall


@dataclass(slots=True)
class Partition:
    """What to do, in order. Every version that a step or the results name is made by an earlier step or is a leaf."""

    versions: SSA
    steps: list[Step]
    leaves: list[Version]
    """Versions that exist before the call and are used, arguments and environment tensors."""
    homes: dict[Version, Version]
    """Versions that were written into a leaf's own memory, and that leaf."""

    @property
    def has_effects(self) -> bool:
        """Whether taking the steps twice has another effect than taking them once."""
        calls = [step.operation.event.target for step in self.steps if isinstance(step, EagerCall)]
        return self.versions.mutates_leaves or any(map(draws_numbers, calls))


def partition(versions: SSA) -> Partition:
    """The steps that do what the trace did."""
    planner = _Planner(versions)
    for operation in versions.operations:
        if operation.is_live:
            planner.keep_in_order(operation)
        if operation.kind is OperationKind.CALL and operation.is_live:
            planner.call(operation)
    planner.finish()
    return Partition(versions, planner.steps, list(planner.leaves), planner.homes)


@dataclass(slots=True)
class _Planner:
    versions: SSA
    steps: list[Step] = field(default_factory=list)
    real: set[Version] = field(default_factory=set)
    """Versions for which there is a tensor by now."""
    done: set[Operation] = field(default_factory=set)
    """Operations that no region will take again."""
    leaves: dict[Version, None] = field(default_factory=dict)
    homes: dict[Version, Version] = field(default_factory=dict)
    position: int = -1
    """The operations up to here have come up."""
    raising: list[Operation] = field(default_factory=list)
    """Pure operations that wait, or have run, and may raise an error because of values."""
    lasting: list[Operation] = field(default_factory=list)
    """Pure operations that wait, or have run, and write into memory from before the call."""

    def keep_in_order(self, operation: Operation) -> None:
        """Have an error that values raise come after all writes and draws before it, and before all those after it: a
        program that catches the error finds what eager leaves."""
        raises = may_raise(operation)
        lasts = has_lasting_effect(operation, self.versions.written)
        if not raises and not lasts:
            return
        self.position = operation.index
        if raises:
            self._run_through(self.lasting)
        if lasts:
            self._run_through(self.raising)
        if operation.kind is OperationKind.PURE:
            self.raising += [operation] if raises else []
            self.lasting += [operation] if lasts else []

    def _run_through(self, waiting: list[Operation]) -> None:
        """Run operations that still wait."""
        self._flush(made for operation in waiting if operation not in self.done for made in operation.products)
        waiting.clear()

    def call(self, operation: Operation) -> None:
        """Run an operation as it is, after everything it needs or overwrites."""
        self.position = operation.index
        written = {version.note.storage for version in _written(operation)}
        self._settle(written)
        self._make_real(operation.operands)
        self.steps.append(EagerCall(operation))
        self.done.add(operation)
        self.real.update(operation.products)

    def finish(self) -> None:
        """Make the results real, and what must be written back."""
        self.position = len(self.versions.operations)
        written = [self.versions.current[register] for register in self.versions.written]
        self._flush([version.base for version in (*self._results(), *written)])
        self._make_real(self._results())

    def _results(self) -> list[Version]:
        from_trace = dict.fromkeys(self.versions.results)
        return sorted(from_trace, key=lambda version: (version.register.index, version.number))

    # --- making values real -------------------------------------------------------------------------------------------

    def _is_real(self, version: Version) -> bool:
        if version.producer is None:
            self.leaves.setdefault(version)
            return True
        return version in self.real

    def _make_real(self, needed: Iterable[Version]) -> None:
        """See that there is a tensor for each of these."""
        needed = list(needed)
        self._flush([version.base for version in needed])
        for version in needed:
            self._make_view_real(version)

    def _make_view_real(self, version: Version) -> None:
        if self._is_real(version):
            return
        operation = version.producer
        assert operation is not None and operation.kind is OperationKind.VIEW
        self._make_view_real(operation.operands[0])
        self.steps.append(EagerCall(operation))
        self.real.update(operation.products)

    def _settle(self, storages: set[int]) -> None:
        """Run waiting operations that read memory which is about to be overwritten, or that write there."""
        if not storages:
            return
        self._flush(
            made
            for operation in self._waiting()
            if any(version.note.storage in storages for version in (*operation.operands, *operation.products))
            for made in operation.products
        )

    def _waiting(self) -> list[Operation]:
        """Pure operations that have come up, are needed, and have not run."""
        return [
            operation
            for operation in self.versions.operations[: self.position]
            if operation.kind is OperationKind.PURE and operation.is_live and operation not in self.done
        ]

    # --- regions ------------------------------------------------------------------------------------------------------

    def _flush(self, needed: Iterable[Version]) -> None:
        """Regions that make these versions, which are no views, real: one for each device, the CPU's last, so that
        others have begun by then."""
        waiting = [version for version in needed if not self._is_real(version)]
        for device in sorted({version.note.device for version in waiting}, key=str, reverse=True):
            self._flush_on(device, [version for version in waiting if version.note.device == device])

    def _flush_on(self, device: torch.device, waiting: list[Version]) -> None:
        waiting = [version for version in waiting if not self._is_real(version)]
        if not waiting:  # another device has needed it before
            return
        taken: set[Operation] = set()
        wanted = set(waiting)
        while True:
            self._gather(waiting, taken, device)
            taken.update(self._copies_of(taken, device))
            writes = self._writes(taken, device)
            readers = self._readers(writes, taken)
            self._flush(made for made in readers if made.note.device != device and _reads_older(made, writes))
            waiting = [made for made in readers if made.note.device == device]
            wanted.update(waiting)
            if not waiting:
                break
        ordered = tuple(sorted(taken, key=lambda operation: operation.index))
        made = [version for operation in ordered for version in operation.products]
        outputs = [
            version
            for version in made
            if version.producer is not None
            and version.producer.kind is OperationKind.PURE
            and version.note.device == device
            and version not in writes
            and (version in wanted or self._is_wanted_later(version, taken))
        ]
        copied = {version: self._copy_of(version, taken, writes) for version in outputs}
        outputs = [version for version in outputs if copied[version] is None]
        inputs = self._inputs(ordered, writes)
        self.steps.append(Region(ordered, tuple(inputs), tuple(outputs), tuple(writes), device))
        for version in writes:
            self.homes[version] = self.versions.leaves[version.register]
        self.homes |= {version: leaf for version, leaf in copied.items() if leaf is not None}
        self.real.update(copied, writes)
        self.done.update(
            operation
            for operation in ordered
            if operation.kind is OperationKind.PURE and all(made.note.device == device for made in operation.products)
        )

    def _gather(self, waiting: list[Version], taken: set[Operation], device: torch.device) -> None:
        """Take the operations that these versions are made by, and all before them that have not run."""
        waiting = list(waiting)
        while waiting:
            version = waiting.pop()
            if version.note.device != device and not self._is_of_numbers(version):
                self._make_real([version])
            if self._is_real(version):
                continue
            operation = version.producer
            assert operation is not None and operation.kind is not OperationKind.CALL
            if operation in taken:
                continue
            if operation.is_taking_apart and self._is_real(operation.operands[0].base):
                self._make_view_real(version)
                continue
            taken.add(operation)
            waiting += operation.operands

    def _copies_of(self, taken: set[Operation], device: torch.device) -> list[Operation]:
        """Waiting operations that only copy results of these operations into memory from before the call: the kernel
        that computes a result can write it there, too."""
        return [
            operation
            for operation in self._waiting()
            if operation not in taken
            and operation.target.overloadpacket.__name__ == "copy"
            and operation.products[0].register in self.versions.written
            and operation.products[0].note.device == device
            and operation.operands[-1].producer in taken
            and all(operand.producer in taken or operand.producer is None for operand in operation.operands)
        ]

    def _copy_of(self, version: Version, taken: set[Operation], writes: list[Version]) -> Version | None:
        """The leaf into which a copy of a value is written, where the leaf can stand for the value, so that the value
        needs no memory of its own: both have the same layout, and no value of this trace is returned."""
        for copy in version.consumers if not self.versions.results else ():
            is_copy = copy in taken and copy.target.overloadpacket.__name__ == "copy" and copy.operands[-1] is version
            if not is_copy or copy.products[0] not in writes:
                continue
            leaf = self.versions.leaves[copy.products[0].register]
            if (leaf.note.dtype, leaf.note.shape, leaf.note.strides) == (
                version.note.dtype,
                version.note.shape,
                version.note.strides,
            ):
                return leaf
        return None

    def _is_of_numbers(self, version: Version) -> bool:
        """Whether a version and all that it is still to be made of are numbers, so that any device can compute it."""
        if not version.note.is_number or self._is_real(version):
            return version.note.is_number
        operation = version.producer
        assert operation is not None
        return operation.kind is not OperationKind.CALL and all(map(self._is_of_numbers, operation.operands))

    def _writes(self, taken: set[Operation], device: torch.device) -> list[Version]:
        """The last versions of registers from before the call, if they are among what is made."""
        latest: dict[TraceValue, Version] = {}
        for operation in sorted(taken, key=lambda operation: operation.index):
            for version in operation.products:
                if version.register in self.versions.written and version.note.device == device:
                    latest[version.register] = version
        return [version for version in latest.values() if self._is_current(version)]

    def _is_current(self, version: Version) -> bool:
        """Whether no operation that has come up has made a later version."""
        later = (
            operation
            for operation in self.versions.operations[: self.position]
            for made in operation.products
            if made.register == version.register and made.number > version.number
        )
        return next(later, None) is None

    def _readers(self, writes: list[Version], taken: set[Operation]) -> list[Version]:
        """Waiting operations that read memory which these writes will overwrite."""
        storages = {version.note.storage for version in writes}
        return [
            made
            for operation in self._waiting()
            if operation not in taken and any(version.note.storage in storages for version in operation.operands)
            for made in operation.products
        ]

    def _is_wanted_later(self, version: Version, taken: set[Operation]) -> bool:
        """Whether anything outside these operations will read a version, or a view of it."""
        if version in self.versions.results:
            return True
        for operation in version.consumers:
            if not operation.is_live:
                continue
            if operation.kind is OperationKind.VIEW:
                if any(self._is_wanted_later(view, taken) for view in operation.products):
                    return True
            elif operation not in taken and operation not in self.done:
                return True
        return False

    def _inputs(self, ordered: Iterable[Operation], writes: Iterable[Version]) -> list[Version]:
        """The real versions that operations read, in the order of first use, and the leaves that are written."""
        taken = set(ordered)
        found: dict[Version, None] = {}
        for operation in ordered:
            for operand in operation.operands:
                if operand.producer not in taken or operand in self.real:
                    found.setdefault(operand)
        for version in writes:
            leaf = self.versions.leaves[version.register]
            self.leaves.setdefault(leaf)
            found.setdefault(leaf)
        return list(found)


def _reads_older(made: Version, writes: Iterable[Version]) -> bool:
    """Whether a version is made of memory as it was before these were written there."""
    written = list(writes)
    storages = {version.note.storage for version in written}
    assert made.producer is not None
    operands = made.producer.operands
    return any(operand.note.storage in storages and operand.base not in written for operand in operands)


def _written(operation: Operation) -> list[Version]:
    """The operands a call writes into."""
    return list(all_of(Version, written_arguments(operation.target, operation.arguments, operation.keywords)))
