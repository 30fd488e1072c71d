"""Steps of optimizers over all parameters of a group at once: of Adam and SGD, and by PyTorch's functions.

In: lists of parameters, gradients and state, all dense and of one type, and the settings of a step. Out: parameters and
state, written in place. What always holds: writes are counted as the optimizer would that a step stands for, and a step
that a gradient scaler leaves out writes nothing.
"""
