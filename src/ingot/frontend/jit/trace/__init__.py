"""Recorded calls: the recorder, the trace it writes, and the trace in SSA form.

In: a function that runs eagerly on its own arguments. Out: eager's result and a `Trace` of aten operations, or why not.
What always holds: the recorded call computes what it would compute without the recorder.
"""
