"""The first example of nvFuser's README, on any device: (t0 + t1) * 3, summed over the last dimension."""

import torch

from ingot import DataType, FusionDefinition, FusionManager

fm = FusionManager.get()
with FusionDefinition(fm) as fd:
    t0 = fd.define_tensor(symbolic_sizes=[-1, 1, -1], contiguous=[True, True, True], dtype=DataType.Float)
    t1 = fd.define_tensor(3)
    c0 = fd.define_constant(3.0)

    t2 = fd.ops.add(t0, t1)
    t3 = fd.ops.mul(t2, c0)
    t4 = fd.ops.sum(t3, [-1], False, DataType.Float)

    fd.add_output(t4)

input1 = torch.ones(2, 1, 8)
input2 = torch.ones(2, 4, 8)
print(fm.execute([input1, input2])[0])

# The same definition takes any other sizes.
input1, input2 = torch.randn(5, 1, 3), torch.randn(5, 6, 3)
assert torch.allclose(fm.execute([input1, input2])[0], ((input1 + input2) * 3).sum(-1), atol=1e-4)
