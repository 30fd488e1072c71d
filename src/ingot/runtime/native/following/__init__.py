"""The native half of following: torch calls are compared with a trace and answered by shells without Python.

In: the state of a followed call, and steps that Python has taken before. Out: the same answer that Python would give,
or none: every call that is not exactly as a step says goes to Python.
"""
