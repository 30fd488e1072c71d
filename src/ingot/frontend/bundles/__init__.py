"""Bundles: recorded programs as files that run where the Python code that made them is not.

In: a function or module and examples of its arguments. Out: one file, and from that file an object that is called like
the function. What always holds: a file is data, never code. Nothing in it is executed, unpickled or unpacked to disk.
"""
