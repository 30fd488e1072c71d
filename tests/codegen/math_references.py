"""Exact values of the vector functions: numpy and torch in double precision for single, mpmath for double precision."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import mpmath
import numpy
import torch

PRECISION_BITS = 200


def _through_torch(name: str) -> Callable[..., numpy.ndarray]:
    function = getattr(torch, name)
    return lambda *arrays: function(*(torch.from_numpy(numpy.ascontiguousarray(array)) for array in arrays)).numpy()


_NUMPY_NAMES = {
    "asin": "arcsin",
    "acos": "arccos",
    "atan": "arctan",
    "atan2": "arctan2",
    "asinh": "arcsinh",
    "acosh": "arccosh",
    "atanh": "arctanh",
    "pow": "power",
}


def in_double(name: str) -> Callable[..., numpy.ndarray]:
    """The function on double-precision arrays, good to about 1e-15: exact enough to judge single precision."""
    if name == "sigmoid":
        return lambda x: 1.0 / (1.0 + numpy.exp(-x))
    if name == "rsqrt":
        return lambda x: 1.0 / numpy.sqrt(x)
    if name in ("erf", "erfc", "erfinv", "lgamma"):
        return _through_torch(name)
    return getattr(numpy, _NUMPY_NAMES.get(name, name))


def _erfinv(x: Any) -> Any:
    """mpmath's own erfinv gives up near 1; Newton's iteration on erfc does not. In logarithms, so that it converges."""
    if abs(x) < mpmath.mpf("0.9"):
        return mpmath.erfinv(x)
    target = 1 - abs(x)
    y = mpmath.sqrt(-mpmath.log(target))
    for _ in range(60):
        value = mpmath.erfc(y)
        step = value * mpmath.log(value / target) / (2 / mpmath.sqrt(mpmath.pi) * mpmath.exp(-y * y))
        y += step
        if abs(step) < mpmath.mpf(2) ** -120:
            break
    return mpmath.sign(x) * y


EXACT: dict[str, Callable[..., Any]] = {
    "exp": mpmath.exp,
    "exp2": lambda x: mpmath.power(2, x),
    "expm1": mpmath.expm1,
    "sigmoid": lambda x: 1 / (1 + mpmath.exp(-x)),
    "log": mpmath.log,
    "log2": lambda x: mpmath.log(x, 2),
    "log10": mpmath.log10,
    "log1p": mpmath.log1p,
    "sin": mpmath.sin,
    "cos": mpmath.cos,
    "tan": mpmath.tan,
    "asin": mpmath.asin,
    "acos": mpmath.acos,
    "atan": mpmath.atan,
    "atan2": mpmath.atan2,
    "sinh": mpmath.sinh,
    "cosh": mpmath.cosh,
    "tanh": mpmath.tanh,
    "asinh": mpmath.asinh,
    "acosh": mpmath.acosh,
    "atanh": mpmath.atanh,
    "erf": mpmath.erf,
    "erfc": mpmath.erfc,
    "erfinv": _erfinv,
    "pow": mpmath.power,
    "rsqrt": lambda x: 1 / mpmath.sqrt(x),
    "lgamma": lambda x: mpmath.loggamma(x) if x > 0 else mpmath.log(abs(mpmath.gamma(x))),
}


@dataclass(frozen=True)
class Domain:
    """Where a function is worth sampling: an interval, and magnitudes as powers of two."""

    low: float
    high: float
    smallest_exponent: float = -1074
    largest_exponent: float = 1023.99
    negative: bool = True

    def sample(self, count: int, generator: numpy.random.Generator) -> numpy.ndarray:
        """Half of the points spread over the interval, half over the magnitudes."""
        even = generator.uniform(self.low, self.high, count // 2)
        exponents = generator.uniform(self.smallest_exponent, self.largest_exponent, count - count // 2)
        with numpy.errstate(under="ignore"):
            magnitudes = numpy.exp2(exponents)
        signs = generator.choice([-1.0, 1.0] if self.negative else [1.0], magnitudes.size)
        return numpy.concatenate([even, signs * magnitudes])


DOMAINS: dict[str, Domain] = {
    "exp": Domain(-745.2, 709.8, largest_exponent=9.4),
    "exp2": Domain(-1075, 1024, largest_exponent=9.9),
    "expm1": Domain(-40, 709.8, largest_exponent=5.0),
    "sigmoid": Domain(-745.2, 40, largest_exponent=9.4),
    "log": Domain(0.4, 3.0, negative=False),
    "log2": Domain(0.4, 3.0, negative=False),
    "log10": Domain(0.4, 3.0, negative=False),
    "log1p": Domain(-0.999, 3.0, negative=False),
    "sin": Domain(-20, 20),
    "cos": Domain(-20, 20),
    "tan": Domain(-20, 20),
    "asin": Domain(-1, 1, largest_exponent=-0.001),
    "acos": Domain(-1, 1, largest_exponent=-0.001),
    "atan": Domain(-4, 4),
    "sinh": Domain(-710.4, 710.4, largest_exponent=9.4),
    "cosh": Domain(-710.4, 710.4, largest_exponent=9.4),
    "tanh": Domain(-20, 20, largest_exponent=5.0),
    "asinh": Domain(-4, 4),
    "acosh": Domain(1, 4, smallest_exponent=0, negative=False),
    "atanh": Domain(-1, 1, largest_exponent=-0.001),
    "erf": Domain(-6, 6, largest_exponent=3.0),
    "erfc": Domain(-6, 27.2, largest_exponent=4.75),
    "erfinv": Domain(-1, 1, largest_exponent=-0.001),
    "rsqrt": Domain(0.4, 3.0, negative=False),
    "lgamma": Domain(-0.49, 12, negative=False),
}
