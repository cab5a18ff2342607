"""The sketch of a table in which people have several rows: its plan and its release."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from sklearn.utils.validation import validate_data

from skdpot.generative._records import Declared, check_count
from skdpot.generative._sketch.noisy_counts import released_size
from skdpot.generative._sketch.people_counts import release_people
from skdpot.generative._sketch.people_model import as_mixture, fit_people
from skdpot.generative._sketch.people_parts import (
    LocalParts,
    RemoteParts,
    by_person,
    first_of,
    read_parts,
)
from skdpot.generative._sketch.people_rows import draw_people
from skdpot.generative._sketch.people_table import (
    PeopleTable,
    people_errors,
    people_sensitivities,
    released_products,
    share_people,
)
from skdpot.generative._sketch.plan import PlannedRelease, SketchBudget, SketchSeries, check_noise
from skdpot.generative._sketch.released_table import ReleasedTable
from skdpot.generative._sketch.table_files import are_cells, read_further
from skdpot.generative._sketch.table_rows import TableRows
from skdpot.generative._sketch.table_sketch import TableSketch, refuse_network
from skdpot.generative._sketch.table_space import TableSpace
from skdpot.privacy.preview import ExpectedError
from skdpot.releases import SketchReleases
from skdpot.tables import Column, TableSchema, check_index, columns_in, make_table

# Numbers of rows of a person are distinguished up to here; she may have more, which are this many.
_MOST_ROWS = 1000
# States of a chain of rows; the others of `n_components` make types of people.
_N_STATES = 8
_COMPONENTS_OF_TYPE = 12
# So many people are drawn at a time, in little memory.
_PEOPLE_AT_ONCE = 2**15
# Steps of the fit, for each one of a table with a row for each person.
_STEPS_OF_FIT = 2
# Whole numbers, and others, of a model in a file.
_MODEL = {
    **dict.fromkeys(("n_cells", "starts", "stops"), np.int64),
    **dict.fromkeys(("types", "chains", "cells"), np.float64),
}


def split_roles(schema: Any) -> tuple[Any, tuple, Any]:
    """Return a schema without its roles, the columns of people, and the order.

    Examples
    --------
    >>> from skdpot.generative._sketch.people_sketch import split_roles
    >>> split_roles({"sex": {"categories": ["F", "M"], "per": "user"}, "age": range(18, 80)})
    ({'sex': {'categories': ['F', 'M']}, 'age': range(18, 80)}, ('sex',), None)
    """
    columns, target = columns_in(schema)
    plain, own_names, ordering = {}, [], []
    for name, declared in columns.items():
        if isinstance(declared, Mapping):
            if declared.get("per", "user") != "user" or declared.get("order", True) is not True:
                raise ValueError(
                    f"column {name!r} may be declared with 'per': 'user' or with 'order': True; "
                    "these keys have no other values."
                )
            own_names += [name] * ("per" in declared)
            ordering += [name] * ("order" in declared)
            declared = {
                key: value for key, value in declared.items() if key not in ("per", "order")
            }
        plain[name] = declared
    if len(ordering) > 1 or set(ordering) & set(own_names):
        raise ValueError(
            "at most one column of the schema may be declared with 'order': True, and none that is "
            f"'per': 'user'; got {ordering}."
        )
    if target is not None:
        plain = {
            "columns": [{"name": name, **declaration} for name, declaration in plain.items()],
            "target": target,
        }
    return plain, tuple(own_names), ordering[0] if ordering else None


@dataclass(frozen=True)
class PeopleSpace:
    """The public declaration of a table of the rows of people.

    Parameters
    ----------
    rows : TableSpace
        The declaration of each row.
    shared : tuple of str or int
        Names of columns that people have, and not their rows.
    order : str, int or None
        Name of the column by which the rows of a person are in order.
    user : str
        The name of the column of people.
    """

    rows: TableSpace
    shared: tuple
    order: Any
    user: Any

    @cached_property
    def table(self) -> PeopleTable:
        """Return the columns that are counted: those of rows, and numbers of rows."""
        schema, levels = self.rows.schema, tuple(map(str, range(1, _MOST_ROWS + 1)))
        columns = (*schema.columns, Column("number of rows", "ordinal", values=levels))
        learned = [name for name in schema.names if name in self.shared]
        shared = (*map(schema.names.index, learned), len(columns) - 1)
        order = None if self.order is None else schema.names.index(self.order)
        return PeopleTable(TableSchema(columns), shared, order)

    def check(self) -> "PeopleSpace":
        """Return itself, or raise if the roles of columns contradict each other."""
        computed = {formula.column.name: formula for formula in self.rows.rules.formulas}
        names = self.rows.schema.names
        if self.order not in (None, *names) or not set(self.shared) <= {*names, *computed}:
            raise ValueError(
                "columns that are declared with 'order': True, or 'per': 'user', must be learned: "
                "they are no identifiers, and no rule computes the order."
            )
        for name in self.shared:
            if name in computed and not computed[name].needs <= set(self.shared):
                raise ValueError(
                    f"column {name!r} is declared 'per': 'user', and a rule computes it from "
                    "columns that rows have."
                )
        table = self.table
        if not table.row_columns:
            raise ValueError("all columns are declared 'per': 'user'; rows need one of their own.")
        if table.order is not None and table.schema.columns[table.order].kind == "nominal":
            raise ValueError(
                f"column {self.order!r} is declared with 'order': True, and categories have no "
                "order: declare bounds or levels."
            )
        return self


@dataclass(frozen=True, eq=False)
class PeopleRecords:
    """A private table that was read, in parts that hold all rows of their people."""

    space: PeopleSpace
    parts: LocalParts | RemoteParts
    # How many people have names, also of those who count nowhere.
    n_read: int

    @property
    def n_people(self) -> int:
        """Return the number of people who count."""
        return self.parts.n_in_all

    @property
    def points(self) -> np.ndarray:
        """Return a row, of nothing, for each person."""
        return np.empty((self.n_people, 0))


@dataclass(frozen=True)
class PeopleSketch:
    """The sketch of a table in which people have several rows."""

    row_model: TableSketch
    shared: tuple
    order: Any

    @classmethod
    def of(cls, model: Any, declared: Declared) -> tuple[Declared, "PeopleSketch"]:
        """Return the declaration of rows, and the sketch, or raise."""
        if not isinstance(model, TableSketch):
            raise ValueError("groups are for tables with a schema: declare schema={column: ...}.")
        schema, shared, order = split_roles(declared.schema)
        return replace(declared, schema=schema), cls(model, shared, order)

    def read(
        self, estimator: Any, X: Any, y: Any, groups: Any, declared: Declared
    ) -> PeopleRecords:
        """Return a private table by people, or raise."""
        X, persons, frames = first_of(X, groups)
        private = estimator.epsilon is not None
        if frames is not None:
            if y is not None:
                raise ValueError("a table in parts has its labels in a column: give it as target.")
            space = self._space(self.row_model._space_of(X, y, declared), groups)
            validate_data(estimator, X, skip_check_array=True, reset=True)
            found = read_parts(frames, groups, space.rows, space.table.order, private)
            return PeopleRecords(space, *found)
        check_index(X, persons)
        user = getattr(persons, "name", None)
        row_space = self.row_model._space_of(X, y, declared)
        space = self._space(row_space, user if isinstance(user, str) else None)
        units = row_space.read(estimator, X, y, reset=True, private=private)
        parts, people = by_person(units, persons, space.table.order, private=private)
        return PeopleRecords(space, LocalParts(parts), len(people))

    def _unseen(self, declared: Declared, columns: Any) -> PeopleRecords:
        """Return nobody's rows of the declared table, or raise."""
        return PeopleRecords(
            self._space(self.row_model._unseen(declared, columns).space, None), LocalParts([]), 0
        )

    def _space(self, rows: TableSpace, user: str | None) -> PeopleSpace:
        name = "user" if user is None else user
        while name in rows.schema.names:
            name += "_"
        return PeopleSpace(rows, self.shared, self.order, name).check()

    def _plan(
        self, space: PeopleSpace, budget: SketchBudget, training: Any, progress: Callable[..., Any]
    ) -> "PeopleReleases":
        """Return the release, or raise; no row is looked at."""
        refuse_network(training)
        model = self.row_model
        release = PeopleReleases(
            space, budget, int(model.n_components), int(model.n_iter), progress,
        )  # fmt: skip
        check_noise(budget, release.planned)
        return release


@dataclass(frozen=True)
class PeopleReleases(SketchSeries):
    """The releases of a sketch of a table in which people have several rows: public."""

    space: PeopleSpace
    budget: SketchBudget
    n_components: int
    n_iter: int
    progress: Callable[..., Any]

    label = "a sketch of people with several rows"

    @property
    def table(self) -> PeopleTable:
        """Return the columns that are counted."""
        return self.space.table

    @property
    def planned(self) -> dict[str, PlannedRelease]:
        """Return the releases of the sketch, with their sensitivities."""
        shares, sensitivities = share_people(self.table), people_sensitivities(self.table)
        return {name: PlannedRelease(shares[name], sensitivities[name]) for name in shares}

    def expected_errors(self, n_records: int) -> tuple[ExpectedError, ...]:
        """Return the standard errors of counts of so many people."""
        return people_errors(n_records, self.table, self._releases(None))

    def run(self, records: PeopleRecords, source: Any) -> "ReleasedPeople":
        """Release sums over people, and fit the model to them."""
        table, releases = self.table, self._releases(source)
        with self.progress(total=2, unit=" parts") as bar:
            released = release_people(records.parts, table, releases)
            bar.update()
            n_types = max(self.n_components // _COMPONENTS_OF_TYPE, 2)
            people = fit_people(released, table, n_types, _N_STATES, _STEPS_OF_FIT * self.n_iter)
            bar.update()
        products = {*released_products(table), "radii"}
        statistics = {name: array for name, array in released.items() if name not in products}
        # Of values and of pairs.
        statistics["deviations"] = released["deviations"][:2]
        n_people = released_size(released)
        return ReleasedPeople.of(self.space, people, n_people, statistics=statistics)

    def _releases(self, source: Any) -> SketchReleases:
        budget, shares = self.budget, share_people(self.table)
        return SketchReleases(budget.noise_multiplier, shares, budget.neighbouring, source)


@dataclass(frozen=True, kw_only=True)
class ReleasedPeople(ReleasedTable):
    """The released sketch of people with several rows, from which tables are sampled.

    Parameters
    ----------
    people : mapping of str to ndarray
        Of `fit_people`.
    by_person : PeopleSpace
        Public.
    """

    people: Mapping[str, np.ndarray]
    by_person: PeopleSpace

    @classmethod
    def of(
        cls, space: PeopleSpace, people: Mapping[str, np.ndarray], n_people: int, **more: Any
    ) -> "ReleasedPeople":
        """Return the sketch with the distribution of single rows, and further attributes."""
        mixture = as_mixture(people, space.rows.schema)
        return cls(space.rows, mixture, n_people, people=people, by_person=space, **more)

    @property
    def declaration(self) -> dict[Any, Any]:
        return with_roles(self.space.declaration, self.by_person.shared, self.by_person.order)

    @property
    def counted(self) -> tuple[TableSchema, Mapping[str, np.ndarray]]:
        schema = self.by_person.table.schema
        return schema, as_mixture(self.people, schema)

    def sample_users(self, n_users: Any, rng: Any) -> Any:
        """Return the rows of so many people, with a column of their person."""
        space, n_users, people = self.by_person, check_count(n_users), []
        wanted = self._wanted_rows({})

        def blocks() -> Iterator[TableRows]:
            for start in range(0, n_users, _PEOPLE_AT_ONCE):
                n_block = min(_PEOPLE_AT_ONCE, n_users - start)
                rows, person = draw_people(self.people, space.table, wanted, n_block, rng)
                people.append(start + person)
                yield rows

        table, labels = self._presented(blocks())
        person = np.concatenate(people)
        table = _with_column(self.space.container, table, space.user, person)
        return table if labels is None else (table, labels)

    def to_file(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        header, _ = super().to_file()
        space = self.by_person
        people = {"own": list(space.shared), "order": space.order, "user": space.user}
        arrays = {**self.people, **self._further_arrays()}
        return {"table": header["table"] | {"people": people}}, arrays

    @classmethod
    def from_file(
        cls, header: Mapping[str, Any], arrays: Mapping[str, np.ndarray], n_records: Any
    ) -> "ReleasedPeople":
        declared = header["people"]
        rows = TableSpace.from_file(header)
        shared, order, user = (declared[name] for name in ("own", "order", "user"))
        names = [column.name for column in rows.schema.declared]
        numbers = {name: arrays[name].astype(kind, casting="safe") for name, kind in _MODEL.items()}
        if (
            not isinstance(shared, list)
            or not set(shared) <= set(names)
            or not (order is None or order in rows.schema.names)
            or not isinstance(user, str)
        ):
            raise ValueError("the file does not hold a sketch of people.")
        space = PeopleSpace(rows, tuple(shared), order, user).check()
        if not _is_model(space.table, **numbers):
            raise ValueError("the file does not hold a sketch of people.")
        counted = space.table.schema
        further = read_further(arrays, len(numbers), counted, n_records)
        return cls.of(space, numbers, n_records, **further)


def with_roles(columns: Mapping[Any, Any], shared: Iterable, order: Any) -> dict[Any, Any]:
    """Return a plain schema with the roles of columns, which `split_roles` takes away.

    Examples
    --------
    >>> from skdpot.generative._sketch.people_sketch import with_roles
    >>> with_roles({"sex": {"categories": ["F", "M"]}}, ["sex"], None)
    {'sex': {'categories': ['F', 'M'], 'per': 'user'}}
    """
    return {
        name: {**declared, **({"per": "user"} if name in shared else {})}
        | ({"order": True} if name == order else {})
        for name, declared in columns.items()
    }


def _with_column(container: str, table: Any, name: Any, values: np.ndarray) -> Any:
    """Return a table with one more column, the first one."""
    if container == "array":
        return np.column_stack([values.astype(table.dtype), table])
    if container == "polars":
        return make_table(container, [name], [values]).hstack(table)
    table.insert(0, name, values)
    return table


def _is_model(
    table: PeopleTable,
    n_cells: np.ndarray,
    starts: np.ndarray,
    stops: np.ndarray,
    types: np.ndarray,
    chains: np.ndarray,
    cells: np.ndarray,
) -> bool:
    """Tell whether arrays are a model from which any number of people can be drawn."""
    # The order of checks matters: shapes are checked before entries are read.
    if (
        types.ndim != 1
        or not len(types)
        or chains.ndim != 3
        or chains.shape != (len(types), chains.shape[1], chains.shape[1])
        or not chains.size
        or not are_cells(table.schema, n_cells, starts, stops)
        or cells.shape != (*chains.shape[:2], len(starts))
    ):
        return False
    column_sums = np.add.reduceat(cells, np.cumsum(n_cells) - n_cells, axis=2)
    parts = (types, chains, cells)
    return bool(
        all((part >= 0).all() for part in parts)
        and np.isclose(types.sum(), 1)
        and np.allclose(chains.sum(axis=(1, 2)), 1)
        and np.allclose(column_sums, 1)
    )
