"""What kernels compute in the place of other operators where a program allows for it; code generation decides where.

Users do not call these, and no graph holds them.
"""

from __future__ import annotations

from ingot.ops.definitions import pointwise  # noqa: F401  (it has the operators that these stand in for)
from ingot.ops.record import fused_approximation

fused_approximation("rough_div", "div", "x / y of float32, right to 2 ulp.", emit=lambda e, x, y: e.rough_div(x, y))

for function in ("erf", "tanh"):
    fused_approximation(
        f"one_and_{function}",
        function,
        f"1 + {function}(x), where nothing near zero has to be exact.",
        reference=lambda torch, x, _name=function: 1 + getattr(torch, _name)(x),
        emit=lambda e, x, _name=f"one_and_{function}": e.function(_name, x),
    )
    fused_approximation(
        f"{function}_to_8_bits",
        function,
        f"{function}(x) for what is rounded to bfloat16 at once: off by an eighth of a unit in its last place.",
        emit=lambda e, x, _name=f"{function}_to_8_bits": e.function(_name, x),
    )
