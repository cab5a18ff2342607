"""Declared columns that are neither read nor learned: identifiers and constants."""

import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from skdpot.tables._column import Column
from skdpot.tables._declarations import objects

# A format of one whole number, with an optional width. Other formats are refused.
_PATTERN = re.compile(r"[^{}]*\{(:0?\d{0,2}[dxX]?)?\}[^{}]*")


@dataclass(frozen=True)
class Identifier:
    """A column of distinct values.

    Attributes
    ----------
    name : str or int
        The user's name of it.
    pattern : str or True
        A format of one integer; True for the integers themselves.
    """

    name: Any
    pattern: Any

    def values(self, n: int) -> np.ndarray:
        """Return new values, from number 1 on."""
        numbers = np.arange(1, n + 1)
        if self.pattern is True:
            return numbers
        return objects([self.pattern.format(number) for number in numbers.tolist()])

    def plain(self) -> dict:
        """Return the declaration of this column, with its name, in the form of JSON."""
        return {"name": self.name, "identifier": self.pattern}


@dataclass(frozen=True)
class Constant:
    """A column with one value, a word or a number."""

    name: Any
    value: Any

    def values(self, n: int) -> np.ndarray:
        """Return the value so many times."""
        return np.full(n, self.value, dtype=object if isinstance(self.value, str) else None)

    def plain(self) -> dict:
        """Return the declaration of this column, with its name, in the form of JSON."""
        return {"name": self.name, "constant": self.value}


# A declared column that is not learned; one of type Column is computed from others.
Unlearned = Identifier | Constant | Column


def is_pattern(pattern: Any) -> bool:
    """Tell whether an identifier can be made by a pattern.

    Examples
    --------
    >>> from skdpot.tables._unlearned import is_pattern
    >>> [is_pattern(pattern) for pattern in ("customer-{:06d}", True, "customer", "{0.real}")]
    [True, True, False, False]
    """
    return pattern is True or (isinstance(pattern, str) and bool(_PATTERN.fullmatch(pattern)))
