"""The public quantities of a run of noisy Sinkhorn, and arithmetic that does not overflow."""

import math
from typing import Any, NamedTuple

from skdpot.privacy.checks import check_count, check_positive
from skdpot.privacy.sensitivity import noisy_sinkhorn_sensitivity

_LARGEST_EXPONENT = 709.0


class Problem(NamedTuple):
    """Sizes of two samples, the range of costs, the regularisation, a bound of potentials."""

    n: int
    m: int
    cost_range: float
    reg: float
    bound: float

    @property
    def smaller(self) -> int:
        """Return the size of the smaller sample."""
        return min(self.n, self.m)

    def round_sensitivity(self, rounding: float = 0.0) -> float:
        """Return how much a record moves everything that a round releases."""
        return noisy_sinkhorn_sensitivity(
            self.cost_range, self.reg, self.n, self.m, self.bound, rounding=rounding
        )

    @property
    def ratio(self) -> float:
        """Return the range of costs over the regularisation."""
        return self.cost_range / self.reg


def check_problem(n_samples: Any, cost_range: Any, reg: Any, bound: Any = None) -> Problem:
    """Return the public quantities, or raise."""
    sizes = n_samples if isinstance(n_samples, (tuple, list)) else (n_samples, n_samples)
    if len(sizes) != 2:
        raise ValueError(f"n_samples must be one size for both samples, or two, got {n_samples!r}.")
    n, m = (check_count("n_samples", size) for size in sizes)
    cost_range, reg = check_positive("cost_range", cost_range), check_positive("reg", reg)
    return Problem(
        n, m, cost_range, reg, cost_range if bound is None else check_positive("bound", bound)
    )


def check_not_negative(name: str, value: Any) -> float:
    """Return a finite number of at least zero as a float, or raise."""
    if isinstance(value, int | float) and value == 0 and value is not False:
        return 0.0
    try:
        return check_positive(name, value)
    except ValueError:
        raise ValueError(f"{name} must be a finite number of at least 0, got {value!r}.") from None


def exp(exponent: float) -> float:
    """Return the exponential, infinity on overflow."""
    return math.exp(exponent) if exponent < _LARGEST_EXPONENT else math.inf


def log(number: float) -> float:
    """Return the logarithm, minus infinity for zero."""
    return math.log(number) if number > 0 else -math.inf
