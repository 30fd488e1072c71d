"""Recordings that outlive their process: a later one answers its first call with them, without running Python.

In: a recording that is proven to stand in for Python, and was audited. Out: a file of the disk cache; in another
process the same recording, bound to that process's objects, or nothing. What always holds: a recording is given out
only if every place that its proof has read holds what it held then, as far as anything could tell: plain values are
equal, objects are put together in the same way out of the same code, and no two that differed have become one. What
cannot be compared like that is never kept.

In order of reading: `anatomy` (what an object is made of that never changes), `references` (objects as numbers in a
file, and back), `places` (guards as reads of such objects), `traces` (operations), `call_identity` (what a file is
found by), `recordings` (all of it together).
"""
