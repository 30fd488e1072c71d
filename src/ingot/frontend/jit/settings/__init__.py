"""What users can set: options of `ingot.jit`, whether anything is compiled at all, and what is logged.

In: keyword arguments, contexts and environment variables. Out: checked, immutable options, and switches that a call
reads. What always holds: a wrong option is an error when it is given, not in a later call.
"""
