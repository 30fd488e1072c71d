"""The command `ingot`.

In: a command line, and graphs in files. Out: text or JSON on standard output; for a user's mistake a message and an
exit code other than 0. What always holds: a command reads the tables that the compiler itself reads.
"""
