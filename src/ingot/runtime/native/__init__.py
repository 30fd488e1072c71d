"""What native code does in this process: routines written in Python, compiled by LLVM at first need.

In: records of calls that Python has made. Out: the same calls, answered without Python. Each part uses those before
it: `assembler`, `abi`, `memory`, `launch`, and then `dispatch`, `cuda` and `following`, none of which knows another.
What always holds: a call that native code does not know exactly goes to Python, as it came.
"""
