"""Pending results, protected from code that following does not see, and from signals and modes that come meanwhile.

In: tensors whose memory is not written yet, and functions to be run. Out: every access to such a tensor has it written
first; a function runs to its end, in the state of torch that it was called in. What always holds: changes are undone.
"""
