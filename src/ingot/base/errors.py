"""Every fault ingot reports, one class per kind.

All errors derive from `IngotError`, so `except ingot.IngotError` catches every error of ingot's own; warnings are
`IngotWarning`. A message states what happened, where, and what to try.

`IngotError` is a RuntimeError, those about a wrong value are ValueErrors too, those about a wrong type TypeErrors, so
that `except` clauses written for PyTorch or nvFuser catch them.
"""

from __future__ import annotations


class IngotError(RuntimeError):
    """Root of all errors raised by ingot."""

    def within(self, place: str) -> IngotError:
        """Add where the fault happened; returns the same error so that it can be re-raised."""
        if self.args and isinstance(self.args[0], str):
            self.args = (f"{self.args[0]}\n  in {place}", *self.args[1:])
        return self


class IngotWarning(UserWarning):
    """ingot runs something eagerly that it was asked to compile."""


class FaultWarning(IngotWarning):
    """ingot has made a mistake of its own while compiling; the message says what to report."""


class DefinitionError(IngotError):
    """A fusion or graph is defined wrongly: no outputs, used outside its `with`, used after an error."""


class HandleError(DefinitionError, TypeError):
    """A handle that belongs to another definition was used, or something that is no handle at all."""


class UnknownOperatorError(DefinitionError, AttributeError):
    """An operator that the op table does not hold.

    It is an AttributeError too, so that `hasattr(fd.ops, name)` answers instead of raising.
    """


class ArgumentError(DefinitionError, TypeError):
    """An operator was called with arguments it does not take."""


class ArgumentValueError(ArgumentError, ValueError):
    """An argument has the right type and a value that the operator does not take."""


class SignatureError(ArgumentError):
    """An operator was called with too many arguments, too few, or one of a name it does not know."""


class DTypeError(DefinitionError, TypeError):
    """An operator does not accept the data type of its operands."""


class ShapeError(DefinitionError, ValueError):
    """Shapes that do not broadcast, reshape, concatenate or otherwise fit."""


class AxisError(ShapeError, IndexError):
    """An axis out of range, or named twice."""


class VerificationError(IngotError):
    """A graph breaks one of its own rules; the message ends with the graph's text."""


class ParseError(IngotError, ValueError):
    """Text that is not a graph; the message quotes the line and points at the column."""


class InputError(IngotError, ValueError):
    """The inputs of a call do not match the definition: number, type, dtype, rank, size or device."""


class ExecutionError(IngotError):
    """PyTorch refused an operation while a graph was running; the cause is attached."""


class CodegenError(IngotError):
    """No machine code could be made for a kernel; what it computes runs through PyTorch instead."""


class CudaError(IngotError):
    """NVIDIA's driver is missing or refused a call; the message names that, the kernel and where its PTX is kept."""


class LoopError(IngotError):
    """The loops of a kernel would read or write where they must not: outside a buffer, twice, or before it is there."""


class ConfigError(IngotError, ValueError):
    """A configuration flag or environment variable has a value it cannot have."""


class CacheError(IngotError):
    """Kernels on disk cannot be moved, listed or removed: there is no cache, or a file is not one of its own."""


class UnsupportedError(IngotError):
    """Something ingot does not do; the message says what to use instead."""


class AbsentNameError(UnsupportedError, AttributeError):
    """A name of nvFuser's interface that is not here; the message says why.

    It is an AttributeError too, so that `hasattr` answers instead of raising.
    """


class InternalError(IngotError):
    """A mistake of ingot's own while compiling, reported by a FaultWarning; the function runs eagerly."""


class ValidationError(IngotError):
    """Results differ from what PyTorch computes for the same definition."""


class MismatchError(ValidationError):
    """A compiled call gives something else than eager, under config={"verify": True}; the message says what, where."""


class CaptureError(IngotError):
    """A function cannot be recorded whole, or not at all, where that was asked for."""


class BundleError(IngotError):
    """A file is not a bundle, is damaged, or holds what a bundle may not hold."""


class ImportedModelError(IngotError):
    """A model of another format cannot be read, or uses what ingot does not import."""
