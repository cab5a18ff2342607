"""The public quantities that the formulas start from, and arithmetic that does not overflow."""

import math
from numbers import Real
from typing import Any, NamedTuple

from skdpot.privacy.checks import check_choice, check_count, check_positive

_LARGEST_EXPONENT = 709.0


class Problem(NamedTuple):
    """Sizes of two samples, the range of costs, the regularisation, the bound on potentials."""

    n: int
    m: int
    cost_range: float
    reg: float
    bound: float

    @property
    def smaller(self) -> int:
        """Return the size of the smaller sample."""
        return min(self.n, self.m)

    @property
    def ratio(self) -> float:
        """Return the range of costs over the regularisation."""
        return self.cost_range / self.reg


def check_problem(n_samples: Any, cost_range: Any, reg: Any, bound: Any = None) -> Problem:
    """Return the public quantities, or raise."""
    n, m = check_sizes(n_samples)
    cost_range, reg = check_positive("cost_range", cost_range), check_positive("reg", reg)
    bound = cost_range if bound is None else check_positive("bound", bound)
    return Problem(n, m, cost_range, reg, bound)


def check_sizes(n_samples: Any) -> tuple[int, int]:
    """Return the sizes of two samples, given as one number or as two, or raise."""
    sizes = n_samples if isinstance(n_samples, (tuple, list)) else (n_samples, n_samples)
    if len(sizes) != 2:
        raise ValueError(
            f"n_samples must be the size of both samples, or their two sizes, got {n_samples!r}."
        )
    return check_count("n_samples", sizes[0]), check_count("n_samples", sizes[1])


def check_wide_bound(problem: Problem) -> None:
    """Raise where optimal potentials may be beyond the bound."""
    if problem.bound < problem.cost_range:
        raise ValueError(
            f"bound must be at least cost_range={problem.cost_range!r}, within which optimal "
            f"potentials are, got {problem.bound!r}."
        )


def check_not_negative(name: str, value: Any) -> float:
    """Return a finite number of at least zero as a float, or raise."""
    if isinstance(value, Real) and not isinstance(value, bool) and value == 0:
        return 0.0
    try:
        return check_positive(name, value)
    except ValueError:
        raise ValueError(f"{name} must be a finite number of at least 0, got {value!r}.") from None


def is_sound(accounting: Any) -> bool:
    """Tell which of the two accountings is asked for, or raise."""
    check_choice("accounting", accounting, ("sound", "published"))
    return accounting == "sound"


def exp(exponent: float) -> float:
    """Return the exponential, infinite where it is beyond the range of doubles."""
    return math.exp(exponent) if exponent < _LARGEST_EXPONENT else math.inf


def log(number: float) -> float:
    """Return the logarithm, minus infinity for zero."""
    return math.log(number) if number > 0 else -math.inf
