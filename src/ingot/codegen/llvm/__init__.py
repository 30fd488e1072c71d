"""What code for all targets is made of: LLVM, its instructions for the operators of the table, and functions.

In order of reading: `ir` (text of LLVM), `host` (what code is made for, and LLVM making it; with `unlocked`),
`instructions` (operators; with `conversions`, `constants`, `storage` and `combining`), `math` (functions), `support`.
"""
