"""The workload of a table: which marginals a user wants to know better than others."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from skdpot.privacy.quotes import shown
from skdpot.tables import TableSchema

__all__ = ["Workload", "read_workload", "workload_from_plain", "workload_to_plain"]

# The weight of entries of a list; all others have 1.
_WEIGHT_OF_LISTED = 10.0
_MOST_COLUMNS = 5
_HOW = (
    "give a list of columns, and of tuples of two to five columns, or a dictionary with a number "
    "above 0 for each, such as {'age': 4, ('age', 'sex'): 10}"
)


@dataclass(frozen=True)
class Workload:
    """How much of the budget each table of counts has, in proportion to others.

    Parameters
    ----------
    columns : tuple of float
        Of each column but the target.
    pairs : tuple of float
        Of each two columns, in the order of ``itertools.combinations``.
    joints : tuple of (tuple of int, float)
        More than two columns that are counted together, by their positions, and their weights.
    """

    columns: tuple[float, ...]
    pairs: tuple[float, ...]
    joints: tuple[tuple[tuple[int, ...], float], ...] = ()

    @classmethod
    def even(cls, n_columns: int) -> "Workload":
        """Return the one in which no table of counts is wanted more than others."""
        return cls((1.0,) * n_columns, (1.0,) * math.comb(n_columns, 2))

    def levels(self, kind: str) -> dict[str, list[int]]:
        """Return the releases of tables, and which of them each has: those of one weight.

        `kind` is ``"values"``, ``"totals"`` or ``"pairs"``. Tables of more than two columns come
        after pairs.
        """
        weights = self.weights(kind)
        return {
            kind if weight == 1 else f"{kind} of weight {weight!r}": [
                i for i, of_table in enumerate(weights) if of_table == weight
            ]
            for weight in sorted(set(weights))
        }

    def weights(self, kind: str) -> tuple[float, ...]:
        """Return the weight of every table of a kind."""
        joint = tuple(weight for _, weight in self.joints)
        return self.pairs + joint if kind == "pairs" else self.columns

    def shares(self, kind: str, share: float) -> dict[str, float]:
        """Return the share of each release, from its share for even weights."""
        weights = self.weights(kind)
        n_even = len(self.pairs if kind == "pairs" else self.columns)
        return {
            name: share * (len(tables) * weights[tables[0]] / n_even)
            for name, tables in self.levels(kind).items()
        }


def read_workload(workload: Any, schema: TableSchema) -> Workload:
    """Return how much of the budget each table of counts has, or raise.

    Parameters
    ----------
    workload : mapping, sequence or None
        Weights above 0, by the name of a column or a tuple of names. In a sequence each has the
        weight 10. Tables that are not named have 1. The target, within whose classes everything is
        counted, may be one of the columns of a tuple.
    schema : TableSchema
        The declaration of the table.

    Returns
    -------
    Workload
        Of all tables of counts.

    Raises
    ------
    ValueError
        If it is no workload of the table.

    Examples
    --------
    >>> from skdpot.generative._sketch.workload import read_workload
    >>> from skdpot.tables import read_schema
    >>> schema = read_schema({name: ["no", "yes"] for name in "abcd"}, "d")
    >>> read_workload({"b": 3, ("a", "d"): 2, ("c", "a"): 5, ("a", "b", "c"): 4}, schema)
    Workload(columns=(2.0, 3.0, 1.0), pairs=(1.0, 5.0, 1.0), joints=(((0, 1, 2), 4.0),))
    """
    n_columns = len(schema.features)
    default = Workload.even(n_columns)
    if workload is None:
        return default
    if isinstance(workload, Mapping):
        weights = list(workload.items())
    elif isinstance(workload, list | tuple):
        weights = [(key, _WEIGHT_OF_LISTED) for key in workload]
    else:
        raise ValueError(f"workload is {shown(workload)}: {_HOW}.")
    columns, pairs = list(default.columns), dict(
        zip(combinations(range(n_columns), 2), default.pairs, strict=True)
    )  # fmt: skip
    joints: dict[tuple[int, ...], float] = {}
    for key, weight in weights:
        positions = _positions(key, schema)
        if (
            isinstance(weight, bool)
            or not isinstance(weight, int | float)
            or not 0 < weight < math.inf
        ):
            raise ValueError(f"workload has no weight above 0 for {shown(key)}: {_HOW}.")
        if len(positions) == 1:
            columns[positions[0]] = float(weight)
        elif len(positions) == 2:
            pairs[positions] = float(weight)
        else:
            joints[positions] = float(weight)
    return Workload(tuple(columns), tuple(pairs.values()), tuple(joints.items()))


def _positions(key: Any, schema: TableSchema) -> tuple[int, ...]:
    """Return where columns are among all but the target, or raise."""
    # Names may be tuples of their own no more than columns of a schema may.
    names = key if isinstance(key, tuple) else (key,)
    unknown = [shown(name) for name in names if name not in schema.names]
    if unknown:
        raise ValueError(
            f"workload has {', '.join(unknown)}, and the table has no such column. Its columns are "
            f"{schema.names}."
        )
    places = {schema.names.index(name) for name in names}
    positions = tuple(i for i, j in enumerate(schema.features) if j in places)
    if len(places) < len(names) or not 1 <= len(positions) <= _MOST_COLUMNS:
        raise ValueError(
            f"workload has {shown(key)}, which is not one to {_MOST_COLUMNS} different columns "
            f"beside the target: {_HOW}."
        )
    return positions


def workload_to_plain(workload: Any) -> Any:
    """Return a workload as JSON holds it.

    Examples
    --------
    >>> from skdpot.generative._sketch.workload import workload_from_plain, workload_to_plain
    >>> plain = workload_to_plain({"a": 2, ("a", "b"): 3.0})
    >>> plain
    [[['a'], 2.0], [['a', 'b'], 3.0]]
    >>> workload_from_plain(plain)
    {'a': 2.0, ('a', 'b'): 3.0}
    """
    if workload is None:
        return None
    weights = workload
    if not isinstance(workload, Mapping):
        weights = dict.fromkeys(workload, _WEIGHT_OF_LISTED)
    return [
        [list(key) if isinstance(key, tuple) else [key], float(weight)]
        for key, weight in weights.items()
    ]


def workload_from_plain(plain: Sequence | None) -> dict | None:
    """Return the workload of its plain form, or raise."""
    if plain is None:
        return None
    try:
        return {tuple(names) if len(names) > 1 else names[0]: weight for names, weight in plain}
    except (IndexError, TypeError, ValueError):
        raise ValueError("the file has a workload that is no list of names and weights.") from None
