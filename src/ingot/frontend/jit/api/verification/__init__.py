"""Verification: eager beside every compiled call, under config={"verify": True}.

In: a compiled function and the arguments of a call. Out: the compiled call's result, or an error that names the first
element that differs, both values, the tolerance and a script that shows it again. What always holds: eager runs on
copies, before the compiled call, which then finds arguments, state of modules and random numbers as they were.

In order of reading: `snapshots` (copies of what a call can change), `differences`, `reproduction`, `verified_calls`.
"""
