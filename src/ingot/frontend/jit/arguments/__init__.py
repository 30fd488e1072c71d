"""What a call was given: nested arguments taken apart, the numbers among them, and the key that selects a recording.

In: positional and keyword arguments. Out: leaves, a structure, a hashable key. What always holds: arguments are never
changed, and calls with equal keys perform the same operations, as far as their arguments decide that.
"""
