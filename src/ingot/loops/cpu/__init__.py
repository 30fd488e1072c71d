"""Programs on the CPU: the loop IR, its iterations in blocks, threads and vectors.

In: a program, and the sizes and strides of a call. Out: a schedule and a nest. What always holds: neither depends on
the number of threads, so results do not, and a nest stays inside the memory of its buffers.

In order of reading: `schedule` (the forms), `scheduling` (choosing one for a call; with `tuning` for its figures),
`nesting` (the loops), `bounds` (that they stay inside memory), `interpreter` (what they mean).
"""
