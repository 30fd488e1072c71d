"""What running costs: ranges in torch's profilers, and counts of launches, bytes and seconds.

In order of reading: `ranges`, `statistics`.
"""
