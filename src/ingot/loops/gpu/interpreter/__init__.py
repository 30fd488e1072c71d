"""The interpreter of nests for GPUs: every thread of every block by itself, in plain Python and numpy.

In order of reading: `machine` (loops and instructions), `gathering` (reductions), `tensors` (memory of the device) and
`block` (registers and shared memory).
"""
