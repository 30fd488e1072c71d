"""Programs on a GPU: the same loop IR, its iterations spread over blocks of threads.

In order of reading: `schedule` (how), `scheduling` (which, for one call; with `tuning` for its figures, `lines` for
elements, `sharing` for rows, `keeping` for what stays in registers and `tiling` for squares), `nesting` (the loops;
with `halves` for arithmetic of 16 bits, and `tiles`), `launches` (who runs them; with `dividing`), `interpreter` (what
they mean).
"""
