"""The comparison of how calls reach ingot's kernels: eager PyTorch, torch.compile and ingot.jit, in one process.

`python -m benchmarks.capture` runs it, `python -m benchmarks.capture --help` says how. The sections: `functions` (one
thing inside that a recording cannot replace, beside the same function without it), `slow` (calls for which little is to
be gained), `models` (whole models, and text they generate), `lengths` (one model, ten lengths) and `calls` (what a
call costs by itself). In order of reading: `contests` (how eager and ingot meet, and how they are compared), `telling`
(what a jitted function says of itself), `disturbed` and `functions`, `slow_cases` and `slow`, `hugging_face`,
`python_floor`, `followed` and `models`, `lengths`, `calls`, `sections`, `targets` and `report`.
"""
