"""Programs on the CPU: the loop IR, its iterations in blocks, threads and vectors.

In order of reading: `schedule` (how), `scheduling` (which, for one call; with `tuning` for its figures), `nesting` (the
loops), `bounds` (that they stay inside memory), `interpreter` (what they mean).
"""
