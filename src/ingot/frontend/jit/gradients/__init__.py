"""Calls that need gradients: a forward and a backward program for what a call and its backward pass have done.

In: a recorded call, and the backward pass that PyTorch ran for it. Out: two programs, the values that the first saves
for the second, and the autograd.Function that runs them. What always holds: gradients are eager's; where the two
programs do not apply (other outputs differentiated, gradients of gradients), the function is run again as it is.
"""
