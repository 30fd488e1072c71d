"""ONNX models as functions of PyTorch's operations, compiled by ingot.jit.

In: a model's file, or the model. Out: a module that is called with tensors. What always holds: one record per
operator says what it means in PyTorch, and an operator without a record is an error that names it. The package `onnx`
reads the files: `pip install ingot[onnx]`.
"""
