"""The tree of steps that a followed function was seen to take, and what is pending in a call.

In: torch calls with real arguments. Out: steps with their outcomes, for Python and for native code. What always holds:
an outcome is used only for operands with the metadata that it was seen with, or that a rule was confirmed for.
"""
