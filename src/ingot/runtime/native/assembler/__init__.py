"""Writing native routines in Python, and the memory that they share with it.

In: calls of a `Routine`'s methods, and classes of structs. Out: machine code at an address, and words as declared.
What always holds: every value is a 64-bit word; code that was compiled stays for the life of the process.
"""
