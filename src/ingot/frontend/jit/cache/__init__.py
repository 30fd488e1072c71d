"""Recordings kept and found again: specialisations, dynamic shapes, and native calls that answer without Python.

In: a call key. Out: a specialisation that holds for the call, or none. What always holds: a specialisation answers a
call only if its guards hold, and audited calls compare it with the function itself.
"""
