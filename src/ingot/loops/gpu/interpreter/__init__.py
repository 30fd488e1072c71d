"""The interpreter of nests for GPUs: every thread of every block by itself, in plain Python and numpy.

In: a nest, the numbers of a call, the bytes of its buffers. Out: the bytes of its outputs. What always holds: a race,
an access outside a buffer, or an element written twice or never is a LoopError, not a result.

In order of reading: `machine` (loops and instructions), `accumulation` (reductions), `tensors` (memory of the device)
and `block` (registers and shared memory).
"""
