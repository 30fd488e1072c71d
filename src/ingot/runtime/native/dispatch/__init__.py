"""Calls of Python objects, answered natively: arguments and what the function depends on are compared with records.

In: objects of classes from `NativeCallable`, and records of their calls. Out: the result that `__call__` would give.
What always holds: a call that differs from all records in anything that they depend on goes to `__call__`.
"""
