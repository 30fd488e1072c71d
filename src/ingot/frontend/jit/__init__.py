"""`ingot.jit`: functions and modules compiled by calling them.

In: a Python function or module that uses PyTorch. Out: a callable that gives eager's results, by recordings that
replace its Python (skipping) or by compiled segments beside it (following). What always holds: a recording answers a
call only while everything that it depends on is as it was; otherwise Python runs.
"""
