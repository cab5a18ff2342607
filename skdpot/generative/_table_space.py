"""Tables: their declaration, people, rules, and how they are read.

The rows of a person share the weight of one record; proofs: :ref:`proof-sketch-people`. Rules are
public, and are only applied to drawn rows. No private row is ever tested.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils.validation import validate_data

from skdpot.generative._counts import release_tables, tables_sensitivity
from skdpot.generative._records import Declared, read_classes, read_codes, read_each
from skdpot.privacy.quotes import shown
from skdpot.releases import SketchReleases
from skdpot.tables import (
    FILL_IN,
    NUMERIC,
    Column,
    Table,
    TableSchema,
    checked_names,
    read_schema,
    read_units,
    write_table,
)

# The integer weights of a person's rows add up to at most this, which is the weight of a record.
LARGEST_WEIGHT = 2**20
# Numbers of rows are counted in these cells, each about 1.4 times as wide as the one before. From
# 1,000 rows on, a person counts, and is drawn, with about 1,000.
SIZE_EDGES = np.unique(np.ceil(1.4 ** np.arange(21)).astype(np.int64).clip(max=1001))


class People(NamedTuple):
    """The people of a private table: the weight of each row, and each person's number of rows."""

    weights: np.ndarray
    sizes: np.ndarray

    @classmethod
    def of(cls, codes: np.ndarray) -> "People":
        """Return the people of rows, by the number of each row's person.

        Notes
        -----
        The weights of a person's rows are ``LARGEST_WEIGHT // k`` for `k` rows, which add up to at
        most LARGEST_WEIGHT. They depend on no other person.

        Examples
        --------
        >>> import numpy as np
        >>> from skdpot.generative._table_space import People
        >>> people = People.of(np.array([0, 1, 0, 0]))
        >>> people.weights, people.sizes
        (array([ 349525, 1048576,  349525,  349525]), array([3, 1]))
        """
        _, person, sizes = np.unique(codes, return_inverse=True, return_counts=True)
        return cls((LARGEST_WEIGHT // sizes)[person], sizes)


def release_sizes(sizes: np.ndarray, releases: SketchReleases) -> np.ndarray:
    """Release how many people have so many rows, in cells; a person is in one of them.

    Counts are 0 beyond the last cell that is clear of noise: otherwise noise alone would make
    people with hundreds of rows.
    """
    cells = np.searchsorted(SIZE_EDGES, np.minimum(sizes, SIZE_EDGES[-1] - 1), side="right") - 1
    exact = np.bincount(cells, minlength=len(SIZE_EDGES) - 1)
    (counts,) = release_tables(releases, "numbers of rows", [exact])
    noise = releases.standard_deviation("numbers of rows", tables_sensitivity(1))
    # Numbers of rows are those up to the last cell whose count is above this many deviations of
    # noise.
    clear_deviations = 4.0
    clear = np.flatnonzero(counts > clear_deviations * noise)
    last = clear[-1] if len(clear) else counts.argmax()
    return np.where(np.arange(len(counts)) > last, 0.0, counts)


def draw_sizes(statistics: Mapping[str, np.ndarray], n_users: int, rng: Any) -> np.ndarray:
    """Return the numbers of rows of so many people, from released counts."""
    counts = np.maximum(statistics["sizes"], 0.0)
    shares = counts / counts.sum() if counts.any() else np.full(len(counts), 1 / len(counts))
    cells = rng.choice(len(shares), n_users, p=shares)
    return rng.randint(SIZE_EDGES[cells], SIZE_EDGES[cells + 1])


def taken_out(X: Any, groups: Any) -> tuple[Any, Any, str]:
    """Return a table, the person of each row, and the name of their column, or raise.

    `groups` has the persons, or names the column of X that has them, which is taken out.
    """
    if not isinstance(groups, str):
        name = getattr(groups, "name", None)
        return X, groups, name if isinstance(name, str) else "user"
    # Frames of other libraries raise.
    Table(X)
    if list(getattr(X, "columns", ())).count(groups) != 1:
        raise ValueError(
            f"groups names a column, and X has no column {groups!r}, or several. Name one of a "
            "data frame, or give the person of each row itself."
        )
    return X.drop(columns=groups) if hasattr(X, "iloc") else X.drop(groups), X[groups], groups


def with_person(table: Any, name: str, person: np.ndarray) -> Any:
    """Return a drawn table with the person of each row as its first column."""
    if isinstance(table, np.ndarray):
        return np.column_stack([person.astype(table.dtype), table])
    if hasattr(table, "iloc"):
        table.insert(0, name, person)
        return table
    return table.insert_column(0, type(table)({name: person})[name])


@dataclass(frozen=True)
class Rules:
    """Expressions of pandas, or functions of a data frame.

    `conditions` give True for rows that are right, and `formulas` the values of computed columns,
    by name. Later formulas may use earlier ones.
    """

    conditions: tuple[Any, ...] = ()
    formulas: Mapping[Any, Any] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.conditions or self.formulas)

    def complete(self, frame: Any) -> Any:
        """Return a data frame with the computed columns."""
        for name, formula in self.formulas.items():
            frame[name] = _evaluated(formula, frame)
        return frame

    def kept(self, frame: Any, schema: TableSchema) -> np.ndarray:
        """Tell which rows keep all rules, and have declared values in computed columns."""
        frame = self.complete(frame)
        kept = np.ones(len(frame), dtype=bool)
        for column in schema.computed:
            values, numeric = frame[column.name], column.kind == NUMERIC
            if column.unit is None:
                ends = column.low, column.high
                inside = values.between(*ends) if numeric else values.isin(column.values)
                inside |= values.isna() & column.missing
                kept &= inside.to_numpy(dtype=bool, na_value=False)
        for condition in self.conditions:
            values = type(frame)({"kept": _evaluated(condition, frame)})["kept"]
            if str(values.dtype) not in ("bool", "boolean"):
                raise ValueError(f"the rule {shown(condition)} must be true or false in each row.")
            kept &= values.astype("boolean").to_numpy(dtype=bool, na_value=False)
        return kept


def read_rules(rules: Any, computed: Any) -> Rules:
    """Return the rules of a table, or raise.

    Examples
    --------
    >>> from skdpot.generative._table_space import read_rules
    >>> read_rules(["end >= start"], None).conditions
    ('end >= start',)
    """
    conditions, formulas = () if rules is None else rules, {} if computed is None else computed
    if not isinstance(conditions, list | tuple) or not all(map(_is_rule, conditions)):
        raise ValueError(f"rules must be a list of texts or functions, got {shown(rules)}.")
    if not isinstance(formulas, Mapping) or not all(map(_is_rule, formulas.values())):
        raise ValueError(
            f"computed must be a dictionary of texts or functions by column, got {shown(computed)}."
        )
    found = Rules(tuple(conditions), dict(formulas))
    if found and find_spec("pandas") is None:
        raise ImportError("rules and computed columns need pandas: install pandas.")
    return found


def check_rules(schema: TableSchema, rules: Rules) -> None:
    """Raise unless rules can be evaluated on rows of a declaration: public, as all of this is."""
    if rules:
        # Made-up rows of declared values: a rule that fails must fail before the charge.
        rng = np.random.RandomState(0)
        units = [rng.randint(0, column.n_units, 64, dtype=np.int64) for column in schema.columns]
        uniforms = rng.uniform(size=(64, len(units)))
        rules.kept(frame_of(schema, schema.plain_values(np.column_stack(units), uniforms)), schema)


def frame_of(schema: TableSchema, plain: Sequence[np.ndarray]) -> Any:
    """Return values of `TableSchema.plain_values` as a pandas data frame of all learned columns."""
    return write_table("pandas", TableSchema(schema.columns), schema.presented(plain))


def computed_values(column: Column, values: Any) -> np.ndarray:
    """Return a computed column of a data frame in the form of `Column.presented`."""
    if column.kind == NUMERIC and column.unit is None:
        numbers = values.to_numpy(dtype=np.float64, na_value=np.nan)
        return column.presented(np.rint(numbers) if column.integer else numbers)
    if column.kind == NUMERIC:
        return values.to_numpy()
    return values.astype(object).where(values.notna(), None).to_numpy()


def draw_rows(
    draw: Callable[..., list[np.ndarray]],
    kept: Callable[[list[np.ndarray]], np.ndarray],
    rows: list[np.ndarray],
    labels: np.ndarray | None,
) -> list[np.ndarray]:
    """Return rows that keep all rules: those that break one are drawn again, or raise.

    `rows` are arrays with an entry for each row, which `draw` makes, given a number of rows and
    their labels. `kept` tells which rows keep all rules.
    """
    broken, n_tried, n_idle = np.flatnonzero(~kept(rows)), 0, 0
    # A broken row is drawn anew 1, 4, 16, ... times in a round, within a number of rows at once.
    # After so many rounds in a row that mend no row, there is an error.
    factor, at_once, idle_rounds = 4, 2**16, 10
    while len(broken):
        if n_idle == idle_rounds:
            raise ValueError(
                "no further row was found that keeps all rules: use fewer or wider rules, fewer "
                "conditions of given, or computed={...}."
            )
        places = np.repeat(broken, min(factor**n_tried, max(1, at_once // len(broken))))
        new = draw(len(places), None if labels is None else labels[places])
        right = np.flatnonzero(kept(new))
        mended, positions = np.unique(places[right], return_index=True)
        for column, new_column in zip(rows, new, strict=True):
            column[mended] = new_column[right[positions]]
        broken = np.setdiff1d(broken, mended)
        n_tried, n_idle = n_tried + 1, 0 if len(mended) else n_idle + 1
    return rows


def _evaluated(rule: Any, frame: Any) -> Any:
    """Return the value of an expression or a function for each row of a frame, or raise."""
    try:
        if callable(rule):
            values = rule(frame.copy())
        else:
            values = frame.eval(rule, engine="python", local_dict={}, global_dict={})
    except Exception as error:
        problem = f"{type(error).__name__}: {error}"
    else:
        if np.shape(values) == (len(frame),):
            return values
        problem = "it must have one value for each row"
    raise ValueError(f"the rule {shown(rule)} cannot be evaluated on drawn rows: {problem}.")


def _is_rule(rule: Any) -> bool:
    return isinstance(rule, str) or callable(rule)


@dataclass(frozen=True)
class TableSpace:
    """The public declaration of a table.

    Parameters
    ----------
    schema : TableSchema
        Target included.
    container : str
        The container of tables.
    apart : bool
        Whether the target is no column of tables, and goes beside them.
    named : bool, default=False
        Whether a target that goes beside tables is declared in their schema.
    user : str, default=None
        The name of the column of people, who have several rows. None means one row per person.
    """

    schema: TableSchema
    container: str
    apart: bool
    named: bool = False
    user: str | None = None

    def by_person(self, user: str) -> "TableSpace":
        """Return the declaration with people, whose column has this name, or a longer one."""
        # A declared column may be called like this as well.
        while user in [column.name for column in self.schema.declared]:
            user += "_"
        return replace(self, user=user)

    @property
    def classes(self) -> np.ndarray | None:
        """Return the labels of the target; None where there is none, or it is a number."""
        if self.schema.target is None or self.schema.has_bands:
            return None
        column = self.schema.columns[self.schema.target]
        labels = [*column.values, *([None] if column.missing else [])]
        array = np.asarray(labels, dtype=object if column.missing else None)
        return array if array.ndim == 1 else np.fromiter(labels, dtype=object, count=len(labels))

    @property
    def target(self) -> Any:
        """Return the name of the target, if it is declared in the schema of tables."""
        if self.schema.target is None or (self.apart and not self.named):
            return None
        return self.schema.names[self.schema.target]

    @property
    def table_schema(self) -> TableSchema:
        """Return the schema of the columns of tables."""
        return self.schema.without_target() if self.apart else self.schema

    @property
    def declaration(self) -> dict[Any, Any]:
        """Return the schema, as a generator is given it."""
        schema = self.schema if self.named else self.table_schema
        return {column.pop("name"): column for column in schema.plain()["columns"]}

    def read(
        self, estimator: Any, X: Any, y: Any, *, reset: bool, private: bool = False
    ) -> np.ndarray:
        """Return the values of a table as whole numbers, or raise.

        If `private`, no value raises; below 0 are those without a place.
        """
        if self.apart != (y is not None):
            raise ValueError(
                "y must be given if classes were declared, or a target that is no column of X, and "
                "only then: with one label for each row of X."
            )
        schema = self.schema
        table = Table(X)
        if self.named and table.container != "array" and self.target in table.names:
            raise ValueError(
                f"y is the target {self.target!r}, and X has that column as well. Give one of them."
            )
        units = read_units(X, self.table_schema, private=private)
        # Only counts features and keeps their names: values were read above.
        validate_data(estimator, X, skip_check_array=True, reset=reset)
        if schema.target is None or not self.apart:
            return units
        target = schema.columns[schema.target]
        if self.named:
            labels, schema = read_each(y, len(units))[:, None], TableSchema((target,))
            codes = read_units(labels, schema, private=private)[:, 0]
        else:
            codes = read_codes(y, read_classes(target.values)[1], len(units), private)
        return np.column_stack([units, codes])


@dataclass(frozen=True, eq=False)
class TableRecords:
    """A private table that was read.

    `points` has a row of whole numbers for each record whose values all have a place. Others, which
    are among the `n_read`, count nowhere. If people have several rows, `n_read` is their number.
    """

    space: TableSpace
    points: np.ndarray
    n_read: int
    people: People | None = None


def read_space(declared: Declared, container: str, *, apart: bool) -> TableSpace:
    """Return the declaration of a table, or raise."""
    declared.refuse("a table", "image_shape")
    if declared.schema is None:
        raise ValueError("TableSketch is for tables: declare schema={column: ...}.")
    if declared.bounds is not None:
        raise ValueError("bounds are for records without a schema. Give them in the schema.")
    features = read_schema(declared.schema, declared.target)
    named = apart and declared.classes is None and features.target is not None
    if not named and apart != (declared.classes is not None):
        raise ValueError(
            "y and classes go together: give the labels of records as y, and all possible labels "
            "as classes=[...]. Or declare y in the schema, and name it as target; then it is a "
            "column of the table."
        )
    rules = read_rules(declared.rules, declared.computed)
    columns = [column for column in features.names if column != declared.target]
    if unknown := [name for name in rules.formulas if name not in columns]:
        raise ValueError(
            f"computed has {unknown}: these are no columns of the schema but the target, which are "
            f"{columns}."
        )
    features = features.computing(rules.formulas)
    check_rules(features, rules)
    if not apart:
        return TableSpace(features, container, False)
    if named:
        return TableSpace(_with_target_last(features), container, True, named=True)
    if declared.target is not None:
        raise ValueError("target is of the schema, and classes are of a y that is not: use one.")
    plain, name = features.plain()["columns"], "y"
    # No other column has the name of the labels.
    while name in {column["name"] for column in plain}:
        name += "_"
    labels = {"name": name, "categories": read_classes(declared.classes)[0].tolist()}
    schema = read_schema({"columns": [*plain, labels], "target": name})
    return TableSpace(schema.computing(rules.formulas), container, True)


def _with_target_last(schema: TableSchema) -> TableSchema:
    target = schema.columns[schema.target or 0]
    features = [column for column in schema.declared if column is not target]
    plain = [column.plain() for column in (*features, target)]
    reordered = read_schema({"columns": plain, "target": target.name})
    return reordered.computing([column.name for column in schema.computed])


def schema_template(frame, path=None, *, categories=False) -> dict:
    """Return a schema with the columns of a table, to be filled in.

    Only the names and types of columns are read, no values. Replace each "FILL IN" by public
    knowledge, such as the answers that a questionnaire allows; a schema that still contains "FILL
    IN" is refused. If values may be missing, change ``"missing"`` to true. Change a declaration if
    another one fits better. Columns of text get categories:

    - dates that are text have ``{"bounds": ["2020-01-01", "2024-12-31"]}``;
    - ordered categories have ``"levels"``, from the lowest to the highest.

    Leave out identifiers, also in the table. Durations become numbers before.

    Parameters
    ----------
    frame : {DataFrame, array-like} of shape (n_records, n_features)
        A frame of pandas or polars, or an array. Programs that read files may infer types from
        values; to avoid this, use a frame of synthetic rows.
    path : str or path-like, default=None
        A new file, to which the schema is written as JSON.
    categories : bool, default=False
        Whether the categories of categorical types are copied. Copy them only if they were
        declared, because they may have been read from private data.

    Returns
    -------
    dict
        For `schema` of :class:`~skdpot.DPSinkhornGenerator`.

    Raises
    ------
    FileExistsError
        If the file exists.
    TypeError
        If the names of columns are neither text nor integers, or the table is of another library.

    See Also
    --------
    skdpot.DPSinkhornGenerator : Synthetic tables for a schema.

    Examples
    --------
    >>> import pandas as pd
    >>> from skdpot.generative import schema_template
    >>> table = pd.DataFrame({"age": [34, 51], "smokes": [True, False]})
    >>> for name, declared in schema_template(table).items():
    ...     print(name, declared)
    age {'bounds': ['FILL IN', 'FILL IN'], 'integer': True, 'missing': False}
    smokes {'categories': [False, True], 'missing': False}
    """
    table = Table(frame)
    names = checked_names(table)
    declared = [_declaration(table, place, categories) for place in range(len(names))]
    schema: dict = dict(zip(names, declared, strict=True))
    if not all(isinstance(name, str) for name in names):
        # Keys of JSON are text.
        columns = [{"name": name, **declaration} for name, declaration in schema.items()]
        schema = {"columns": columns, "target": None}
    if path is not None:
        # Never over a schema that somebody has filled in.
        with Path(path).open("x", encoding="utf-8") as file:
            json.dump(schema, file, indent=2)
    return schema


def _declaration(table: Table, place: int, categories: bool) -> Mapping[str, Any]:
    """Return the template of a declaration for a column of this type."""
    dtype: Any = table.dtype(place)
    dtype = getattr(table.X, "dtype", None) if dtype is None else dtype
    kind, bounds = _kind(dtype), [FILL_IN, FILL_IN]
    if kind in "iu":
        return {"bounds": bounds, "integer": True, "missing": False}
    if kind == "f":
        return {"bounds": bounds, "missing": False}
    if kind == "M":
        return {"bounds": bounds, "unit": "D", "missing": False}
    if kind == "b":
        return {"categories": [False, True], "missing": False}
    labels = [FILL_IN]
    if categories and hasattr(dtype, "categories"):
        labels = [_plain(label) for label in dtype.categories]
    return {
        "levels" if getattr(dtype, "ordered", False) else "categories": labels,
        "missing": False,
    }


def _plain(label: Any) -> Any:
    return label.item() if isinstance(label, np.generic) else label


def _kind(dtype: Any) -> str:
    """Return the letter that NumPy has for the kind of a type."""
    if not hasattr(dtype, "is_temporal"):
        return getattr(dtype, "kind", "O")
    # A type of polars.
    kinds = {"i": dtype.is_integer(), "f": dtype.is_numeric(), "b": str(dtype) == "Boolean"}
    kinds |= {"m": str(dtype).startswith("Duration"), "M": dtype.is_temporal()}
    return next((kind for kind, is_one in kinds.items() if is_one), "O")
