"""What holds a table that is given to the package."""

from typing import Any

CONTAINERS = ("array", "pandas", "polars")


def container_of(X: Any) -> str:
    """Return what holds a table, by a name.

    Parameters
    ----------
    X : {array-like, DataFrame}
        The table.

    Returns
    -------
    {"pandas", "polars", "array"}
        Its name.

    Raises
    ------
    TypeError
        If it has columns, and is no frame of either library: what it would say of them may be
        private values.

    Examples
    --------
    >>> from skdpot.tables._containers import container_of
    >>> container_of([["a", 1], ["b", 2]])
    'array'
    """
    kind = type(X)
    for base in kind.__mro__:
        library = base.__module__.partition(".")[0]
        if base.__name__ == "DataFrame" and library in CONTAINERS:
            return library
    if not hasattr(X, "columns"):
        return "array"
    raise TypeError(
        f"X is a {kind.__module__}.{kind.__qualname__}; give a pandas or polars frame, or an array "
        "(table.to_pandas())."
    )
