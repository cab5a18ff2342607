"""People that a model generates, whose rows keep declared rules.

Given the type of a person and the states of her rows, columns are independent. So rules without a
common column are applied one after another: where one is broken, its columns are drawn again.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from skdpot.generative._sketch.draws import IndependentDraws, draw_units
from skdpot.generative._sketch.people_table import PeopleTable
from skdpot.generative._sketch.table_draws import draw_column
from skdpot.generative._sketch.table_rows import TableRows, WantedRows, nearest_rows
from skdpot.tables import Rules

__all__ = ["draw_people"]

# Rows are drawn anew up to 1 + 4 + ... + 256 times. Before each of the last rounds, the columns of
# people are drawn again this often. In earlier rounds this would favour people whose rows hardly
# ever break a rule.
_ROUNDS, _FACTOR = 5, 4
_ROUNDS_OF_ROWS, _PROPOSALS = 3, 4
# The number of rows that are drawn at a time, unless more are wanted; and the largest number of
# rows whose values are given to rows that break rules.
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
        The declaration of the table.
    wanted : WantedRows
        The rules, of all columns but the number of rows.
    n_users : int
        Number of people.
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
    Rules that use only columns of people are applied to people, others to rows. For a rule on both,
    rows are drawn anew while their person stays as she is. In the last rounds her columns are drawn
    anew as well, if more of her rows keep the rule then. At the end, all rows of a person with a
    broken row get the values of a row that keeps the rule. Columns that share a rule with the
    column of the order are sorted with it.
    """
    drawn = _DrawnPeople(people, table, wanted, n_users, rng)
    for part in wanted.rules.parts:
        drawn.keep(part)
    drawn.sort()
    return drawn.rows, drawn.person


class _DrawnPeople:
    """People that were drawn, with the type of each person and the state of each row."""

    def __init__(self, people, table, wanted, n_users, rng):
        n_states = people["chains"].shape[1]
        self._draws = draws = IndependentDraws(rng)
        types = draws.entries(people["types"][None], np.zeros(n_users, dtype=np.int64))
        self._people, self._table, self._wanted, self._rng = people, table, wanted, rng
        # Columns of people have the same distribution in all states of a type.
        self._types = types * n_states
        last = len(table.schema.columns) - 1
        (starts, stops), distributions = self._cell_distributions(last)
        cells = draws.entries(distributions, self._types)
        sizes = 1 + draw_units(starts[cells], stops[cells], None, draws.uniforms(cells))
        self._starts = np.cumsum(sizes) - sizes
        self.person = np.repeat(np.arange(n_users), sizes)
        self._states = self._types[self.person] + _walk(people["chains"], types, sizes, draws)
        self._person_names = [wanted.schema.names[j] for j in table.shared[:-1]]
        units = np.empty((len(self.person), last), dtype=np.int64, order="F")
        for j in range(last):
            is_own = j in table.shared
            values = self._draw(j, self._types if is_own else self._states)
            units[:, j] = values[self.person] if is_own else values
        self.rows = wanted.rows(units, rng)
        self._put_values(self.rows.select(self._starts[self.person]), self._person_names)

    def keep(self, part: Rules) -> None:
        """Make all rows keep these rules, by changes in the columns of the rules."""
        names = [column.name for column in part.columns]
        person_names = [name for name in names if name in self._person_names]
        row_names = [
            name for name in self._wanted.schema.names if name in set(names) - set(person_names)
        ]
        rows, states, owners = self.rows, self._states, np.arange(len(self.person))
        if not row_names:
            rows, states = rows.select(self._starts), self._types
            owners = owners[: len(self._starts)]
        elif person_names:
            owners = self.person
        broken = self._broken(rows, part)
        for n_tried in range(_ROUNDS):
            if person_names and row_names and n_tried >= _ROUNDS_OF_ROWS:
                broken = self._other_people(broken, part, person_names, names)
            if not len(broken):
                break
            repeats = min(_FACTOR**n_tried, max(1, _AT_ONCE // len(broken)))
            places = np.repeat(broken, repeats)
            new = self._redrawn(rows.select(places), row_names or person_names, states[places])
            keeping = np.flatnonzero(self._wanted.kept(new, part))
            mended, positions = np.unique(places[keeping], return_index=True)
            rows.overwrite(mended, new.select(keeping[positions]), self._wanted.schema, names)
            broken = np.setdiff1d(broken, mended)
        if len(broken):
            self._mend(rows, broken, owners, part, names)
        if not row_names:
            self._put_values(rows.select(self.person), names)

    def sort(self) -> None:
        """Sort the column of the order, with all columns that share a rule with it.

        Other columns stay as they are: the states are in order.
        """
        if self._table.order is None:
            return
        name = self._wanted.schema.names[self._table.order]
        tied = {name}
        for part in self._wanted.rules.parts:
            names = {column.name for column in part.columns}
            tied |= names if name in names else set()
        order = np.lexsort((self.rows.plain[name], self.person))
        self._put_values(self.rows.select(order), sorted(tied, key=str))

    def _cell_distributions(self, j):
        """Return the ends of a column's cells, and their distributions in all states and types."""
        n_cells = self._people["n_cells"]
        stop = int(n_cells[: j + 1].sum())
        column = slice(stop - int(n_cells[j]), stop)
        cells = self._people["cells"]
        ends = self._people["starts"][column], self._people["stops"][column]
        return ends, cells.reshape(-1, cells.shape[2])[:, column]

    def _draw(self, j, states):
        """Return a unit of a column for each of these states."""
        schema, people = self._wanted.schema, self._people
        ends, cells = self._cell_distributions(j)
        weights = (people["types"][:, None] * people["chains"].sum(axis=2)).ravel()
        name, conditions = schema.names[j], self._wanted.conditions
        intervals = schema.intervals(name, conditions[name]) if name in conditions else None
        return draw_column(schema.columns[j], ends, cells, weights, states, self._draws, intervals)

    def _put_values(self, others: TableRows, names: Sequence) -> None:
        """Put values of other rows into columns, and update the columns that rules compute."""
        self.rows.overwrite(_ALL, others, self._wanted.schema, names)
        self.rows.plain = self._wanted.rules.complete(self.rows.plain)

    def _redrawn(self, rows: TableRows, names: Sequence, states: np.ndarray) -> TableRows:
        """Return rows with these columns drawn anew, given the states."""
        schema, units = self._wanted.schema, rows.units.copy()
        for name in names:
            j = schema.names.index(name)
            units[:, j] = self._draw(j, states)
        rows.overwrite(_ALL, self._wanted.rows(units, self._rng), schema, names)
        return TableRows(rows.units, self._wanted.rules.complete(rows.plain))

    def _broken(self, rows: TableRows, part: Rules) -> np.ndarray:
        return np.flatnonzero(~self._wanted.kept(rows, part))

    def _other_people(
        self, broken: np.ndarray, part: Rules, person_names: Sequence, names: Sequence
    ) -> np.ndarray:
        """Draw columns of people anew, where more of their rows keep the rules then.

        Returns the rows that still break rules.
        """
        for _ in range(_PROPOSALS):
            if not len(broken):
                break
            persons, n_broken = np.unique(self.person[broken], return_counts=True)
            first_rows = self.rows.select(self._starts[persons])
            proposals = self._redrawn(first_rows, person_names, self._types[persons])
            places = np.flatnonzero(np.isin(self.person, persons))
            owners = np.searchsorted(persons, self.person[places])
            new = self.rows.select(places)
            new.overwrite(_ALL, proposals.select(owners), self._wanted.schema, person_names)
            new = TableRows(new.units, self._wanted.rules.complete(new.plain))
            n_left = np.bincount(owners[self._broken(new, part)], minlength=len(persons))
            better = np.flatnonzero((n_left < n_broken)[owners])
            self.rows.overwrite(places[better], new.select(better), self._wanted.schema, names)
            broken = self._broken(self.rows, part)
        return broken

    def _mend(
        self, rows: TableRows, broken: np.ndarray, owners: np.ndarray, part: Rules, names: Sequence
    ) -> None:
        """Give the values of the nearest row that keeps rules to all rows of each broken owner."""
        keeping = np.flatnonzero(self._wanted.kept(rows, part))
        keeping = keeping[:: len(keeping) // _DONORS + 1]
        donors = rows.select(keeping) if len(keeping) else self._wanted.possible_rows()
        persons, first_broken = np.unique(owners[broken], return_index=True)
        # In blocks, since distances to all donors are in memory.
        for block in np.array_split(np.arange(len(persons)), len(persons) // _DONORS + 1):
            units = rows.units[broken[first_broken[block]]]
            nearest = nearest_rows(units, donors.units, self._wanted.schema, part.columns)
            places = np.flatnonzero(np.isin(owners, persons[block]))
            positions = np.searchsorted(persons[block], owners[places])
            rows.overwrite(places, donors.select(nearest[positions]), self._wanted.schema, names)


def _walk(chains, types, sizes, draws):
    """Return a state for each row of each person, one after another."""
    n_states = chains.shape[1]
    shares = chains.sum(axis=2)
    states = np.empty(sizes.sum(), dtype=np.int64)
    starts = np.cumsum(sizes) - sizes
    states[starts] = draws.entries(shares, types)
    steps = chains.reshape(-1, n_states)
    walking = np.arange(len(sizes))
    for t in range(1, int(sizes.max(initial=0))):
        walking = walking[sizes[walking] > t]
        rows = starts[walking] + t
        states[rows] = draws.entries(steps, types[walking] * n_states + states[rows - 1])
    return states
