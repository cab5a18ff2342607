"""People that a model generates, whose rows keep declared rules.

Given the type of a person and the states of her rows, columns are independent. So rules that share
no column are kept one after another, and what breaks one is drawn again where that speaks.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from skdpot.generative._sketch.draws import draw_entries, draw_units
from skdpot.generative._sketch.people_counts import PeopleTable
from skdpot.generative._sketch.table_model import draw_column
from skdpot.generative._sketch.table_rows import TableRows, WantedRows, nearest_rows
from skdpot.tables import Rules

__all__ = ["draw_people"]

# Rows are drawn anew up to 1 + 4 + ... + 256 times, and people as often as this before each of the
# last rounds: earlier, they would be those alone whom hardly any row breaks a rule for.
_ROUNDS, _FACTOR = 5, 4
_ROUNDS_OF_ROWS, _PROPOSALS = 3, 4
# So many rows are drawn at a time, unless more are wanted; values are those of so many at most.
_AT_ONCE, _DONORS = 2**16, 2048
_ALL = slice(None)


def draw_people(
    people: Mapping[str, np.ndarray], table: PeopleTable, wanted: WantedRows, n_users: int, rng: Any
) -> tuple[TableRows, np.ndarray]:
    """Return the rows of people that a model generates, which keep all rules.

    Parameters
    ----------
    people : mapping of str to ndarray
        Of `fit_people`.
    table : PeopleTable
        What the table is declared to hold.
    wanted : WantedRows
        The rules, of all columns but the number of rows.
    n_users : int
        How many people.
    rng : RandomState
        Source of randomness.

    Returns
    -------
    rows : TableRows
        The rows of each person are next to each other, in order.
    person : ndarray of shape (n_rows,)
        The person of each row, from 0.

    Notes
    -----
    Rules that speak of columns of people alone are kept by people, others by rows. Where a rule
    speaks of both, rows are drawn anew for the person as she is; then she herself in between, if
    more of her rows keep the rule then. In the end all of her rows get the values of a row that
    keeps it. Columns that rules tie to the one by which rows are in order are sorted with it.
    """
    drawn = _Drawn(people, table, wanted, n_users, rng)
    for part in wanted.rules.parts:
        drawn.keep(part)
    drawn.sort()
    return drawn.rows, drawn.person


class _Drawn:
    """People that were drawn, with the type of each, and the state of each row."""

    def __init__(self, people, table, wanted, n_users, rng):
        n_states = people["chains"].shape[1]
        types = draw_entries(people["types"][None], np.zeros(n_users, dtype=np.int64), rng)
        self._people, self._table, self._wanted, self._rng = people, table, wanted, rng
        # What a person has is the same in all states of a type.
        self._types = types * n_states
        last = len(table.schema.columns) - 1
        (starts, stops), distributions = self._of_column(last)
        cells = draw_entries(distributions, self._types, rng)
        sizes = 1 + draw_units(starts[cells], stops[cells], None, rng)
        self._first = np.cumsum(sizes) - sizes
        self.person = np.repeat(np.arange(n_users), sizes)
        self._states = self._types[self.person] + _walk(people["chains"], types, sizes, rng)
        self._own = [wanted.schema.names[j] for j in table.own[:-1]]
        units = np.empty((len(self.person), last), dtype=np.int64, order="F")
        for j in range(last):
            own = j in table.own
            found = self._draw(j, self._types if own else self._states)
            units[:, j] = found[self.person] if own else found
        self.rows = wanted.rows(units, rng)
        self._put(_ALL, self.rows.taken(self._first[self.person]), self._own)

    def keep(self, part: Rules) -> None:
        """Have all rows keep these rules, by changing columns that they speak of."""
        names = [column.name for column in part.columns]
        own = [name for name in names if name in self._own]
        of_rows = [name for name in self._wanted.schema.names if name in set(names) - set(own)]
        rows, states, owners = self.rows, self._states, np.arange(len(self.person))
        if not of_rows:
            rows, states, owners = rows.taken(self._first), self._types, owners[: len(self._first)]
        elif own:
            owners = self.person
        broken = self._broken(rows, part)
        for n_tried in range(_ROUNDS):
            if own and of_rows and n_tried >= _ROUNDS_OF_ROWS:
                broken = self._other_people(broken, part, own, names)
            if not len(broken):
                break
            repeats = min(_FACTOR**n_tried, max(1, _AT_ONCE // len(broken)))
            places = np.repeat(broken, repeats)
            new = self._redrawn(rows.taken(places), of_rows or own, states[places])
            kept = np.flatnonzero(self._wanted.kept(new, part))
            mended, at = np.unique(places[kept], return_index=True)
            rows.put(mended, new.taken(kept[at]), self._wanted.schema, names)
            broken = np.setdiff1d(broken, mended)
        if len(broken):
            self._mend(rows, broken, owners, part, names)
        if not of_rows:
            self._put(_ALL, rows.taken(self.person), names)

    def sort(self) -> None:
        """Sort the column by which rows are in order, with all that rules tie to it.

        Other columns stay as they are: the walk is in order.
        """
        if self._table.order is None:
            return
        name = self._wanted.schema.names[self._table.order]
        tied = {name}
        for part in self._wanted.rules.parts:
            names = {column.name for column in part.columns}
            tied |= names if name in names else set()
        order = np.lexsort((self.rows.plain[name], self.person))
        self._put(_ALL, self.rows.taken(order), sorted(tied, key=str))

    def _of_column(self, j):
        """Return the cells of a column, and their distributions in all states of all types."""
        n_cells = self._people["n_cells"]
        stop = int(n_cells[: j + 1].sum())
        column = slice(stop - int(n_cells[j]), stop)
        cells = self._people["cells"]
        ends = self._people["starts"][column], self._people["stops"][column]
        return ends, cells.reshape(-1, cells.shape[2])[:, column]

    def _draw(self, j, states):
        """Return a unit of a column for each of these states."""
        schema, people = self._wanted.schema, self._people
        ends, cells = self._of_column(j)
        weights = (people["types"][:, None] * people["chains"].sum(axis=2)).ravel()
        name, conditions = schema.names[j], self._wanted.conditions
        intervals = schema.intervals(name, conditions[name]) if name in conditions else None
        draw = partial(draw_entries, rng=self._rng)
        return draw_column(
            schema.columns[j], ends, cells, weights, states, draw, self._rng, intervals
        )

    def _put(self, places: Any, others: TableRows, names: Sequence) -> None:
        """Put values of other rows into columns, and compute those that rules do."""
        self.rows.put(places, others, self._wanted.schema, names)
        self.rows.plain = self._wanted.rules.complete(self.rows.plain)

    def _redrawn(self, rows: TableRows, names: Sequence, states: np.ndarray) -> TableRows:
        """Return rows of which columns are drawn anew, given the states."""
        schema, units = self._wanted.schema, rows.units.copy()
        for name in names:
            j = schema.names.index(name)
            units[:, j] = self._draw(j, states)
        rows.put(_ALL, self._wanted.rows(units, self._rng), schema, names)
        return TableRows(rows.units, self._wanted.rules.complete(rows.plain))

    def _broken(self, rows: TableRows, part: Rules) -> np.ndarray:
        return np.flatnonzero(~self._wanted.kept(rows, part))

    def _other_people(
        self, broken: np.ndarray, part: Rules, own: Sequence, names: Sequence
    ) -> np.ndarray:
        """Draw what people have anew, where more of their rows keep rules then.

        Returns the rows that do not.
        """
        for _ in range(_PROPOSALS):
            if not len(broken):
                break
            who, n_broken = np.unique(self.person[broken], return_counts=True)
            of_who = self.rows.taken(self._first[who])
            others = self._redrawn(of_who, own, self._types[who])
            places = np.flatnonzero(np.isin(self.person, who))
            whose = np.searchsorted(who, self.person[places])
            new = self.rows.taken(places)
            new.put(_ALL, others.taken(whose), self._wanted.schema, own)
            new = TableRows(new.units, self._wanted.rules.complete(new.plain))
            n_left = np.bincount(whose[self._broken(new, part)], minlength=len(who))
            better = np.flatnonzero((n_left < n_broken)[whose])
            self.rows.put(places[better], new.taken(better), self._wanted.schema, names)
            broken = self._broken(self.rows, part)
        return broken

    def _mend(
        self, rows: TableRows, broken: np.ndarray, owners: np.ndarray, part: Rules, names: Sequence
    ) -> None:
        """Give rows the values of the nearest row that keeps rules: all rows of an owner alike."""
        known = np.flatnonzero(self._wanted.kept(rows, part))
        known = known[:: len(known) // _DONORS + 1]
        donors = rows.taken(known) if len(known) else self._wanted.possible_rows()
        who, at = np.unique(owners[broken], return_index=True)
        # So many at a time, whose distances to all donors are in memory.
        for some in np.array_split(np.arange(len(who)), len(who) // _DONORS + 1):
            units = rows.units[broken[at[some]]]
            nearest = nearest_rows(units, donors.units, self._wanted.schema, part.columns)
            places = np.flatnonzero(np.isin(owners, who[some]))
            whose = np.searchsorted(who[some], owners[places])
            rows.put(places, donors.taken(nearest[whose]), self._wanted.schema, names)


def _walk(chains, types, sizes, rng):
    """Return a state for each row of each person, one after another."""
    n_states = chains.shape[1]
    first = chains.sum(axis=2)
    states = np.empty(sizes.sum(), dtype=np.int64)
    starts = np.cumsum(sizes) - sizes
    states[starts] = draw_entries(first, types, rng)
    steps = chains.reshape(-1, n_states)
    walking = np.arange(len(sizes))
    for t in range(1, int(sizes.max(initial=0))):
        walking = walking[sizes[walking] > t]
        at = starts[walking] + t
        states[at] = draw_entries(steps, types[walking] * n_states + states[at - 1], rng)
    return states
