"""Tuning: quicker schedules for the kernels of the CPU, found by measuring them on this machine.

In: a kernel, tensors or what stands for them, and the record of figures that choose schedules. Out: the same record
with a few other figures, under which the kernel was measured to be clearly quicker; the record itself if there is none.
What always holds: results are the same, bit for bit, under every candidate, and no tensor of the user's is read or
written.

In order of reading: `search_space` (what may differ), `cost` (what is worth trying first), `measurement` (how long a
candidate takes), `findings` (what is known, and kept on disk), `search` (from candidate to candidate), `tuner` (what
compilers ask).
"""
