"""The totals of a partition's parts, of which the largest ones count."""

from typing import Any, NamedTuple

import numpy as np

from skdpot.privacy.filters import Total


class LargestTotals(NamedTuple):
    """The largest and the second largest total of the parts, in every currency.

    Totals only grow, so these are sufficient for any further charge.

    Attributes
    ----------
    first : tuple
        The largest amount in every currency.
    holders : tuple
        The number of the part with this amount, in every currency.
    second : tuple
        The largest amount of all other parts, in every currency.
    """

    first: tuple
    holders: tuple
    second: tuple

    @classmethod
    def of_one(cls, part: int, total: Total) -> "LargestTotals":
        """Return the totals of a partition in which one part has been charged."""
        first = total.amounts
        return cls(
            first,
            tuple(np.full_like(each, part, int) if _is_array(each) else part for each in first),
            tuple(np.zeros_like(each) if _is_array(each) else type(each)(0) for each in first),
        )

    def raised(self, part: int, total: Total) -> "LargestTotals":
        """Return the totals after one part's total has risen to this."""
        columns = zip(self.first, self.holders, self.second, total.amounts, strict=True)
        return LargestTotals(*zip(*(_raised(part, *column) for column in columns), strict=True))

    def sum_of(self, how_many: int) -> Total:
        """Return the sum of the largest one or two totals, in every currency."""
        first = Total(*self.first)
        return first if how_many == 1 else first + Total(*self.second)


def _raised(part: int, first: Any, holder: Any, second: Any, amount: Any) -> tuple:
    """Return the largest amount, its part, and the second largest amount, in one currency."""
    if _is_array(first):
        held = holder == part
        leads = held | (amount > first)
        others = np.where(leads, first, np.maximum(second, amount))
        return (
            np.where(leads, amount, first),
            np.where(leads, part, holder),
            np.where(held, second, others),
        )
    if holder == part:
        return amount, part, second
    return (amount, part, first) if amount > first else (first, holder, max(second, amount))


def _is_array(amount: Any) -> bool:
    """Tell whether a currency has several amounts, one for every order."""
    return isinstance(amount, np.ndarray)
