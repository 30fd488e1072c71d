"""Recordings kept and found again: specialisations, dynamic shapes, and native calls that answer without Python.

In: a call key. Out: a specialisation that holds for the call, or none.
"""
