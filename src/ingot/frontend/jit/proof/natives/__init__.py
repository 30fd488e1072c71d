"""Native functions and methods that the walk knows: builtins, introspection, torch's state.

In: a native function and the abstract values of its arguments. Out: what the call gives; None for a function that no
table names. What always holds: a function in these tables reads and changes nothing besides what is guarded.
"""
