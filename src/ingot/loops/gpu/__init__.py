"""Programs on a GPU: the same loop IR, its iterations spread over blocks of threads.

In order of reading: `schedule` (how), `scheduling` (which, for one call), `nesting` (the loops).
"""
