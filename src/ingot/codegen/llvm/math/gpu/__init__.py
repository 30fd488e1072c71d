"""Single-precision functions in the instructions that GPUs have for them.

In: single-precision values, scalars or vectors. Out: the value of a function. What always holds: `accurate` keeps the
bounds of all of `math`, 2 ulp over the whole range, special values exact, denormals right; `approximate` is for
programs whose results have 16 bits. A function without a form here is written as for every processor.

`instructions` says which instructions there are, `exact` how quotients and roots are rounded exactly, `quotients` how
many numbers are divided by one.

Instructions per element on sm_90: as for every processor, accurate, approximate. NVIDIA's assembler turns quotients and
roots in the form for every processor into functions of its own; these count as their common case.

    exp       20   8   5        log       29  21   5
    exp2      17  17   1        log2      30  26   4
    expm1     19  19   8        log10     31  27   5
    sigmoid   38  23   4        log1p     30  27   9
    tanh      37  20  10        erf       29  17  14
    rsqrt     30   4   4        x / y     14  14   7
    sqrt      13  10   4        x / y, where others are divided by y, too: 14   6   2
"""
