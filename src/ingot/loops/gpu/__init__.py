"""Programs on a GPU: the same loop IR, its iterations spread over blocks of threads.

In order of reading: `schedule` (how), `scheduling` (which, for one call; with `sharing` for rows, `keeping` for what
stays in registers and `tiling` for squares), `nesting` (the loops; with `halves` for arithmetic of 16 bits, and
`tiles`), `launches` (who runs them), `interpreter` (what they mean; with `gathering` for reductions, `tensors` and
`block` for memory).
"""
