"""The native half of following: torch calls are compared with a trace and answered by shells without Python.

In: the state of a followed call, and steps that Python has taken before. Out: the same answer that Python would give,
or none. What always holds: a call that differs in anything from the step that it is compared with goes to Python.
"""
