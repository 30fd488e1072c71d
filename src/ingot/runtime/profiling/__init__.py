"""What running costs: ranges in torch's profilers, and counts of launches, bytes and seconds.

In: names of kernels, and runs of them. Out: ranges that profilers show, and frozen records of what runs cost. What
always holds: while no profiler is active and nothing is timed, neither costs a call anything.
"""
