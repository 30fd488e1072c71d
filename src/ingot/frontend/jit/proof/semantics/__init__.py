"""What Python and PyTorch do with abstract values: attributes, operators, containers, operations on tensors.

In: abstract values. Out: an abstract value, and guards on what was read for it. What always holds: the rules are
Python's and PyTorch's own; what has no rule is refused.
"""
