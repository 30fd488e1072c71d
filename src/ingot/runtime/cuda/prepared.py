"""A CUDA kernel made ready for tensors of certain types, sizes and strides.

What schedules and compiles a kernel makes one of these; what launches it, in Python or natively, needs nothing
else but addresses, numbers and a stream. It holds for one device: the handles of its functions belong to the context
they were loaded in. Of where tensors lie it asks only that their addresses are multiples of some power of two, so it
can be made for tensors without memory, and the device is said apart from them.
"""

from __future__ import annotations

from dataclasses import dataclass

from ingot.runtime.kernels import OutputTypes

Extent = tuple[int, int, int]
"""How many there are along x, y and z."""


@dataclass(frozen=True, slots=True)
class Launch:
    """One function run by a grid of thread blocks."""

    function: int
    """The driver's handle of it."""
    grid: Extent
    """Thread blocks."""
    block: Extent
    """Threads of each."""
    executables: int = 0
    """Where native code keeps the graphs that it launches it by; 0 if it shall launch it as it is."""
    overlaps: bool = False
    """Whether it may be on its way while the launch before it ends, because it waits for that by itself."""


@dataclass(frozen=True, slots=True)
class PreparedLaunches:
    """A call of a kernel; addresses and scalars are still to come. Its launches follow each other on one stream, and
    each is given all words, by value, as its one parameter."""

    launches: tuple[Launch, ...]
    words: tuple[int, ...]
    addresses: tuple[int, ...]
    """The word for each buffer's address: outputs first, then inputs."""
    scalars: tuple[int, ...]
    """The word for each scalar."""
    outputs: OutputTypes
    """Shape and type of each result, which is row-major."""
    alignments: tuple[int, ...] = ()
    """What each buffer's address must be a multiple of, outputs first; new memory always is. A launch with any other
    address would fail, and take the device's context with it: the launcher checks."""
    workspace_bytes: int = 0
    """Bytes of memory that the launches share; its content is of no use before and after them."""
    workspace_word: int | None = None
    """The word for its address; None if they need none."""
    counters: int = 0
    """Numbers by which blocks count themselves, which are 0 before and after: see `counters`."""
    counters_word: int | None = None
    """The word for their address; None if they need none."""
