"""What runs kernels, by the kind of device: one `Backend` for each (`interface`), and the list of them (`registry`).

In: a device. Out: the backend for it, or None where PyTorch computes everything. What always holds: nothing outside a
backend's own package decides by the kind of a device how code is made, launched or timed, or where memory comes from. A
backend is added by a package with a `Backend` in it, and by a line in `registry`.
"""
