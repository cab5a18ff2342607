"""The lookup of private labels among declared ones, which reveals none of them."""

from collections.abc import Mapping
from typing import Any


def number_of_label(label: Any, number: Mapping[Any, int]) -> int:
    """Return the number of a private label, -1 if it is not declared, without errors.

    Examples
    --------
    >>> from skdpot.privacy.labels import number_of_label
    >>> [number_of_label(label, {"a": 0, "b": 1}) for label in ("b", None, ["a"])]
    [1, -1, -1]
    """
    try:
        return number.get(label, -1)
    except KeyboardInterrupt:
        raise
    except BaseException:
        # A value that cannot be looked up is no declared label. An error would reveal it.
        return -1
