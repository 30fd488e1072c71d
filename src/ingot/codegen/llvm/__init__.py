"""What code for all targets is made of: LLVM, its instructions for the operators of the table, and functions.

In: operators with LLVM values for operands, and the text of modules. Out: more of that text, or machine code. What
always holds: nothing here depends on `cpu` or `ptx`; a `Host` says what a processor can do.

In order of reading: `ir` (text of LLVM), `host` (what code is made for, and LLVM making it; with `unlocked`),
`instructions` (operators; with `conversions`, `constants`, `storage` and `combining`), `math` (functions), `support`.
"""
