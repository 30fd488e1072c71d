"""What code and classes tell of themselves: whose code runs and on which line, the names it looks up, whether a class
changed.

In: code objects, functions and classes of the process. Out: answers about them. What always holds: none of their code
runs, and what is not understood is not taken for a library's.
"""
