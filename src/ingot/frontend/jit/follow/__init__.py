"""Following: the user's Python runs at every call, and compiled segments stand in for its arithmetic.

In: a call of the user's function. Out: its own result; torch calls that can wait are answered by shells, tensors whose
memory is written when a value is needed. What always holds: what Python reads and does is eager's by construction.
"""
