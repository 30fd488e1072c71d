"""The report of a compiled function: one HTML file that needs nothing else.

In: a compiled function. Out: a page with the graph as a picture, what each kernel computes, its loops and its machine
code, what it cost where that was measured, and what was left to Python and PyTorch. What always holds: everything that
is shown was escaped, and the page loads nothing.

In order of reading: `drawing` (boxes and arrows as a picture), `program_picture` (a program as boxes and arrows),
`style`, `page`.
"""
