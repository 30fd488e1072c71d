"""The memory of calls on a GPU: what Python writes for a record, what native code keeps, and what the driver reads."""

from __future__ import annotations

from ingot.runtime.native.assembler.structs import Field, Inline, Row, Rows, Struct, row, rows
from ingot.runtime.native.launch.record_structs import StepWords

MOST_STREAMS = 128
"""How many streams native code knows the counters of; launches on other streams go through Python."""
MOST_EXECUTABLES = 4
"""How many executable graphs a function has, one for a stream; on other streams its launches are plain ones."""


class SiteWords(Struct):
    """A device that a record's kernels run on."""

    context: Field
    """The handle of the context that the functions were loaded in."""
    kind: Field
    """The number by which torch's C interface knows such devices."""
    index: Field
    """The index of the device."""
    keys: Field
    """Dispatch keys of its ordinary tensors."""
    inference_keys: Field
    """Dispatch keys of its ordinary tensors made in inference mode."""
    device_mask: Field
    """The bits by which a tensor says which device it lies on."""
    device_bits: Field
    """The value of these bits for this device."""
    tensor_count: Field
    tensors: Field
    """New tensors: the results, in their order, and one for all intermediate values, if there are any."""
    counters: Field
    """Where the counters of streams are found, if a kernel of the record counts blocks of threads; else 0."""


class NewTensorWords(Struct):
    """A tensor to be made, as torch's C interface takes it."""

    rank: Field
    sizes: Field
    strides: Field
    dtype: Field


class StreamWords(Struct):
    """A stream whose counters are known."""

    handle: Field
    counters: Field


class StreamsWords(Struct):
    count: Field
    streams: Rows[StreamWords] = rows(MOST_STREAMS)


class DeviceStepWords(Struct):
    """A kernel on a GPU: launches that follow each other."""

    step: Inline[StepWords]
    launches: Field
    launch_count: Field


class LaunchExtentWords(Struct):
    """The extents of a launch in halves of words, as the driver has them in its structs."""

    grid_x_and_y: Field
    grid_z_and_block_x: Field
    block_y_and_z: Field
    shared_bytes: Field
    """Shared memory that the launch adds to what the kernel declares."""


class LaunchWords(Struct):
    function: Field
    grid_x: Field
    grid_y: Field
    grid_z: Field
    block_x: Field
    block_y: Field
    block_z: Field
    shared_bytes: Field
    executables: Field
    """Where the function's executable graphs are, or 0."""
    extents: Inline[LaunchExtentWords]
    attribute: Field
    """Where the attribute is that lets it overlap with the launch before, or 0."""


class AttributeWords(Struct):
    """CUlaunchAttribute."""

    number: Field
    value: Field
    rest: Row = row(7)
    """Unused: values of other attributes are longer."""


class LaunchConfigWords(Struct):
    """CUlaunchConfig."""

    extents: Inline[LaunchExtentWords]
    stream: Field
    attributes: Field
    attribute_count: Field


class KernelNodeWords(Struct):
    """CUDA_KERNEL_NODE_PARAMS."""

    function: Field
    extents: Inline[LaunchExtentWords]
    parameters: Field
    extra: Field
    """0: the alternative to `parameters` is not used."""
    kernel: Field
    """0: the alternative to `function` is not used."""
    context: Field
    """0: the function's own context."""


class ExecutableWords(Struct):
    """An executable graph of one kernel."""

    stream: Field
    handle: Field
    """0 if launches on this stream are plain ones."""
    node: Field
    """The handle of its node."""
    busy: Field
    """Whether a thread is using it; also set until it is made."""


class ExecutablesWords(Struct):
    """The executable graphs of a function."""

    making: Field
    """Whether a thread is making one."""
    count: Field
    each: Rows[ExecutableWords] = rows(MOST_EXECUTABLES)
