"""Steps of optimizers over all parameters of a group at once, on the CPU.

In order of reading: `steps` (of Adam and SGD) and `torch_steps` (those that functions of PyTorch's compute).
"""
