"""Records whose kernels run on a GPU: tensors from torch's allocator, launches on torch's stream.

In: a record whose site is a device. Out: its results, or 0 where Python has to compute them. What always holds: nothing
here waits for the device, so every call can be captured in a CUDA graph.
"""
