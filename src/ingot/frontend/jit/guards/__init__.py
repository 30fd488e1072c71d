"""What a recording depends on besides its arguments, and whether it still holds.

In: a function and the objects it can reach, settings of torch. Out: guards, and in words what has changed. What always
holds: a guard compares by identity, plain values by value, and changes nothing.
"""
