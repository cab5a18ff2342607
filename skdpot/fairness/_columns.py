"""Columns of numbers, levels and categories, and the space in which distances are taken."""

import math
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any

import numpy as np

from skdpot._declarations import declared_labels, label_codes
from skdpot.fairness._attribute import column_of, label_order
from skdpot.fairness._private_layout import UnitLayout

NUMERIC, ORDINAL, NOMINAL = "numeric", "ordinal", "nominal"
# The squared distance between two rows of different categories is 1 in their own units.
_ONE_HOT = math.sqrt(0.5)


@dataclass(frozen=True, eq=False)
class Column:
    """What is in a column of X.

    Attributes
    ----------
    name : str or int
        As users call it.
    position : int or None
        Where it is in X; None for the column of labels y.
    kind : {"numeric", "ordinal", "nominal"}
        Numbers, levels in an order, or categories without one.
    labels : ndarray of shape (n_labels,), dtype=object, or None
        The levels or categories, None for numbers.
    number : dict
        The position of each label.
    dtype : object
        The data frame's type for these categories, if it is one that lists them.
    """

    name: Any
    position: int | None
    kind: str
    labels: Any = None
    number: Any = None
    dtype: Any = None

    @property
    def n_coordinates(self) -> int:
        """Return how many coordinates the column has."""
        return len(self.labels) if self.kind == NOMINAL else 1


@dataclass(frozen=True, eq=False)
class ColumnSpace:
    """Rows as codes, and as points between which distances are Euclidean.

    The *codes* of a row are its numbers, and the positions of its levels and categories, -1 for a
    category that is none of the known ones. The coordinates of its point are numbers and ranks of
    levels, shifted and scaled, and then a block for every nominal column, with one coordinate per
    category: the column's factor for the row's category, and 0 for all others.

    Attributes
    ----------
    columns : list of Column
        The columns, in the order of X.
    origin, factor : ndarray of shape (n_coordinates,)
        A coordinate is ``(raw - origin) * factor``.
    """

    columns: list[Column]
    origin: np.ndarray
    factor: np.ndarray

    @property
    def layout(self) -> UnitLayout:
        """Return the layout of points in unit coordinates."""
        levels = (0 if c.labels is None else len(c.labels) for c in self._ranked)
        return UnitLayout(tuple(levels), tuple(len(c.labels) for c in self._nominal))

    @property
    def all_numeric(self) -> bool:
        """Return whether there are only numbers."""
        return all(column.kind == NUMERIC for column in self.columns)

    @property
    def _ranked(self) -> list[Column]:
        return [column for column in self.columns if column.kind != NOMINAL]

    @property
    def _nominal(self) -> list[Column]:
        return [column for column in self.columns if column.kind == NOMINAL]

    def _places(self, kept: list[Column]) -> list[int]:
        return [j for j, column in enumerate(self.columns) if column in kept]

    def raw(self, codes: np.ndarray) -> np.ndarray:
        """Return coordinates without origin and factor: numbers, ranks, zeros and ones.

        A level that is none of the known ones is put in the middle of them.
        """
        ranked = codes[:, self._places(self._ranked)].astype(np.float64)
        for j, column in enumerate(self._ranked):
            if column.kind == ORDINAL:
                ranked[ranked[:, j] < 0, j] = (len(column.labels) - 1) / 2.0
        parts = [ranked]
        for place, column in zip(self._places(self._nominal), self._nominal, strict=True):
            parts.append(codes[:, [place]] == np.arange(len(column.labels)))
        return np.hstack(parts).astype(np.float64)

    def encode(self, codes: np.ndarray) -> np.ndarray:
        """Return the points of rows.

        Parameters
        ----------
        codes : ndarray of shape (n, n_columns)
            Rows as codes.

        Returns
        -------
        ndarray of shape (n, n_coordinates)
            Their points.
        """
        # In the order of rows, for which the search of nearest points is fast.
        return np.ascontiguousarray((self.raw(codes) - self.origin) * self.factor)

    def decode(self, points: np.ndarray, uniforms: np.ndarray | None = None) -> np.ndarray:
        """Return the codes of valid rows near points.

        Parameters
        ----------
        points : ndarray of shape (n, n_coordinates)
            Averages of rows, perhaps.
        uniforms : ndarray of shape (n, n_nominal), default=None
            Random numbers, by which a category is drawn with the share that an average has of it.
            None takes the one with the largest share.

        Returns
        -------
        ndarray of shape (n, n_columns)
            Levels are the nearest ones.
        """
        raw = points / self.factor + self.origin
        codes = np.empty((len(points), len(self.columns)))
        for j, (place, column) in enumerate(
            zip(self._places(self._ranked), self._ranked, strict=True)
        ):
            codes[:, place] = raw[:, j]
            if column.kind == ORDINAL:
                codes[:, place] = np.clip(np.rint(raw[:, j]), 0, len(column.labels) - 1)
        for j, (place, block) in enumerate(
            zip(self._places(self._nominal), self.layout.block_slices, strict=True)
        ):
            shares = np.maximum(raw[:, block], 0.0)
            if uniforms is None:
                codes[:, place] = shares.argmax(axis=1)
            else:
                ends = shares.cumsum(axis=1)
                drawn = uniforms[:, j] * ends[:, -1]
                codes[:, place] = np.minimum((ends <= drawn[:, None]).sum(1), shares.shape[1] - 1)
        return codes

    def labelled(self, codes: np.ndarray) -> list[np.ndarray]:
        """Return the columns of rows as users know them.

        Parameters
        ----------
        codes : ndarray of shape (n, n_columns)
            Rows as codes, all of them valid.

        Returns
        -------
        list of ndarray of shape (n,)
            Numbers, or labels as objects.
        """
        return [
            codes[:, j] if column.labels is None else column.labels[codes[:, j].astype(np.intp)]
            for j, column in enumerate(self.columns)
        ]

    def scaled_to(self, codes: np.ndarray) -> "ColumnSpace":
        """Return the space in which every column of these rows has the variance 1.

        That of a nominal column is the sum over its categories, so that two random rows are as far
        apart in it as in any other.
        """
        raw = self.raw(codes)
        # In units of the range, in which squares are neither too large nor too small.
        width = np.ptp(raw, axis=0)
        unit = np.where(width > 0, width, 1.0)
        # Of equal numbers, rounding of their mean may leave a variance.
        variances = np.where(width > 0, (raw / unit).var(axis=0), 0.0)
        for block in self.layout.block_slices:
            variances[block] = variances[block].sum()
        with np.errstate(divide="ignore"):
            factor = np.where(variances > 0, 1.0 / np.sqrt(variances), 1.0) / unit
        return replace(self.centred_on(codes), factor=factor)

    def centred_on(self, codes: np.ndarray) -> "ColumnSpace":
        """Return the space whose origin is the mean of these rows, from which squares are small."""
        return self._relative_to(self.raw(codes)[:, : len(self._ranked)].mean(axis=0))

    def _relative_to(self, ranked: np.ndarray) -> "ColumnSpace":
        origin = np.zeros(len(self.origin))
        origin[: len(self._ranked)] = ranked
        return replace(self, origin=origin)

    def of_box(self, low: np.ndarray, high: np.ndarray, *, scaled: bool) -> "ColumnSpace":
        """Return the space whose origin is the lower corner, and in which the box may have side 1.

        The box has one side for every number and rank.
        """
        width = np.ones(len(self.factor))
        width[: len(self._ranked)] = high - low if scaled else 1.0
        factor = np.where(self._is_ranked, 1.0 / width, _ONE_HOT)
        return replace(self._relative_to(low), factor=factor)

    @property
    def _is_ranked(self) -> np.ndarray:
        return np.arange(len(self.factor)) < len(self._ranked)

    def box(self, low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the bounds of numbers and ranks, given those of numbers."""
        lows, highs = np.zeros(len(self._ranked)), np.ones(len(self._ranked))
        numeric = [column.kind == NUMERIC for column in self._ranked]
        lows[numeric], highs[numeric] = low, high
        for j, column in enumerate(self._ranked):
            if column.kind == ORDINAL:
                highs[j] = max(len(column.labels) - 1, 1)
        return lows, highs


def in_own_units(columns: list[Column]) -> ColumnSpace:
    """Return the space of columns with distances in their own units.

    Levels are at distance 1 from the next, and so are different categories.
    """
    ranked = sum(column.kind != NOMINAL for column in columns)
    n_coordinates = sum(column.n_coordinates for column in columns)
    factor = np.where(np.arange(n_coordinates) < ranked, 1.0, _ONE_HOT)
    return ColumnSpace(columns, np.zeros(n_coordinates), factor)


def find_columns(
    X: Any,
    kept: np.ndarray,
    *,
    categorical_features: Any,
    categories: Any,
    missing: str,
    private: bool,
) -> list[Column]:
    """Return what is in each of the kept columns of X.

    Parameters
    ----------
    X : {ndarray, DataFrame} of shape (n_samples, n_features)
        Rows.
    kept : ndarray of int
        Positions of columns.
    categorical_features : None, "from_dtype", array-like or dict
        See the estimator.
    categories : None, dict or list
        Declared labels of the categorical columns.
    missing : {"error", "category"}
        Whether a missing category is one.
    private : bool
        Whether labels that were not declared are refused, instead of being found in X.

    Returns
    -------
    list of Column
        In the order of `kept`.

    Raises
    ------
    ValueError
        If columns are named that there are none of, or declarations do not match.
    """
    names = list(X.columns) if hasattr(X, "columns") else list(range(X.shape[1]))
    of_types = categorical_features is None or isinstance(categorical_features, str)
    if private and of_types:
        kinds = _kinds_of_declared(X, kept, names, categories)
    else:
        kinds = _kinds(X, kept, names, categorical_features)
    categorical = [position for position in kept.tolist() if kinds[position] != NUMERIC]
    declared = _declared(categories, categorical, names)
    columns = []
    for position in kept.tolist():
        column = Column(names[position], position, kinds[position])
        if column.kind != NUMERIC:
            column = replace(column, dtype=_type_of_categories(X, position))
            labels = declared.get(position)
            if labels is None and private:
                raise ValueError(
                    f"categories must be declared for column {column.name!r}: a list of its "
                    "labels, which may not be learned from private data."
                )
            if labels is None:
                labels = _labels_in(X, column, missing)
            labels, number = declared_labels(labels, f"categories of column {column.name!r}")
            if not number:
                raise ValueError(f"categories of column {column.name!r} are none; it needs some.")
            # A single level is in no order.
            kind = column.kind if len(number) > 1 else NOMINAL
            dtype = _with_categories(column.dtype, labels) if private else column.dtype
            column = replace(column, kind=kind, labels=objects(labels), number=number, dtype=dtype)
        columns.append(column)
    return columns


def read_codes(X: Any, columns: list[Column], missing: str) -> np.ndarray:
    """Return rows as codes; no value is quoted in what is raised.

    Parameters
    ----------
    X : {ndarray, DataFrame} of shape (n_samples, n_features)
        Rows.
    columns : list of Column
        What to read.
    missing : {"error", "category", "none"}
        Whether what is missing of labels is refused, is a category where they are nominal, or is
        none of the known ones.

    Returns
    -------
    ndarray of shape (n_samples, n_columns)
        Codes.

    Raises
    ------
    ValueError
        If what should be a number is none, or missing.
    """
    codes = [
        _numbers(X, column)
        if column.kind == NUMERIC
        else label_codes(objects(read_labels_of(X, column, missing)), column.number)
        for column in columns
    ]
    return np.column_stack(codes).astype(np.float64)


def _numbers(X: Any, column: Column) -> np.ndarray:
    values = objects(column_of(X, column.position))
    try:
        numbers = values.astype(np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        kind = TypeError if isinstance(error, TypeError) else ValueError
        finite = not any(_is_missing(value) for value in values.tolist())
    else:
        finite = bool(np.isfinite(numbers).all())
        if finite:
            return numbers
    if not finite:
        raise ValueError(
            f"Input X contains NaN or infinity, in column {column.name!r}. Impute it before, in "
            "the same pipeline; missing categories may be a category of their own, with "
            "missing='category'."
        )
    raise kind(
        f"column {column.name!r} of X holds what cannot be read as a number: the argument must be "
        "a string or a number. Name columns of categories by categorical_features, or with epsilon "
        "by categories."
    )


def read_labels_of(X: Any, column: Column, missing: str) -> list[Any]:
    """Return a column of labels, None where one is missing and that is none or a category."""
    labels = [None if _is_missing(value) else value for value in column_of(X, column.position)]
    if not any(label is None for label in labels):
        return labels
    if missing == "category" and column.kind == ORDINAL:
        raise ValueError(
            f"Input X contains NaN, in column {column.name!r} of levels, in whose order what is "
            "missing has no place. Impute it, or declare the column to be nominal."
        )
    if missing == "error":
        raise ValueError(
            f"Input X contains NaN, in column {column.name!r} of categories. Impute it, or, if it "
            "is nominal, make it a category of its own with missing='category'."
        )
    return labels


def _is_missing(value: Any) -> bool:
    try:
        return value is None or bool(value != value)
    except TypeError:
        # The missing value of pandas equals nothing, and does not say that it does not.
        return True
    except Exception:
        # What cannot be compared is a label, which will be found to be none of the known ones.
        return False


def _labels_in(X: Any, column: Column, missing: str) -> list[Any]:
    """Return the labels that a column has, in order; declared by its type, or found in it."""
    if getattr(column.dtype, "ordered", False):
        return list(column.dtype.categories)
    found = set(read_labels_of(X, column, missing))
    return sorted(found - {None}, key=label_order) + ([None] if None in found else [])


def objects(values: Any) -> np.ndarray:
    """Return values as an array of objects."""
    values = values.tolist() if isinstance(values, np.ndarray) else list(values)
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array


def frame_dtype(X: Any, position: int) -> Any:
    """Return the type of a data frame's column, None for arrays."""
    if hasattr(X, "iloc"):
        return X.dtypes.iloc[position]
    return list(X.dtypes)[position] if hasattr(X, "columns") else None


def _type_of_categories(X: Any, position: int) -> Any:
    """Return the type of a data frame's column if it lists categories; others follow the data."""
    dtype = frame_dtype(X, position)
    return dtype if hasattr(dtype, "categories") else None


def _with_categories(dtype: Any, labels: Any) -> Any:
    """Return a type with the declared categories; its own ones may have been found in the data."""
    known = [label for label in objects(labels) if label is not None]
    if hasattr(dtype, "ordered"):
        return type(dtype)(known, ordered=dtype.ordered)
    if type(dtype).__name__ != "Enum":
        return dtype
    return type(dtype)(known) if all(isinstance(label, str) for label in known) else None


def _kinds(X: Any, kept: np.ndarray, names: list[Any], categorical_features: Any) -> dict[int, str]:
    """Return the kind of each kept column."""
    if categorical_features is None or isinstance(categorical_features, str):
        return {position: _kind_of_dtype(frame_dtype(X, position)) for position in kept.tolist()}
    if isinstance(categorical_features, dict):
        given = list(categorical_features.items())
        if not all(kind in (ORDINAL, NOMINAL) for _, kind in given):
            raise ValueError(
                "categorical_features, as a dict, says of each column whether it is 'ordinal' or "
                f"'nominal', got {categorical_features!r}."
            )
    else:
        # As objects, names do not make words of positions.
        listed = np.asarray(categorical_features, dtype=object).tolist()
        if len(listed) == len(names) and all(
            isinstance(is_one, bool | np.bool_) for is_one in listed
        ):
            listed = np.flatnonzero(listed).tolist()
        given = [(name, NOMINAL) for name in listed]
    kinds = dict.fromkeys(kept.tolist(), NUMERIC)
    for name, kind in given:
        position = _position(name, names)
        if position in kinds:
            ordered = getattr(frame_dtype(X, position), "ordered", False)
            kinds[position] = ORDINAL if ordered else kind
    return kinds


def _kinds_of_declared(X: Any, kept: np.ndarray, names: list[Any], categories: Any) -> dict:
    """Return the kind of each kept column as declarations have it, whatever single values are.

    Types are looked at where a record cannot change them. A column of numbers and one word is one
    of objects; of all that libraries take it for, declarations decide.
    """
    dtypes = {position: frame_dtype(X, position) for position in kept.tolist()}
    if categories is not None and not isinstance(categories, dict) and len(categories):
        raise ValueError(
            "categories is a list, and the types of columns, which may be due to single values, do "
            "not say with epsilon which columns they are of: give a dict by columns, or "
            "categorical_features."
        )
    declared = {_position(name, names) for name in categories or ()}
    kinds = {}
    for position, dtype in dtypes.items():
        kind = _kind_of_dtype(dtype)
        if position in declared:
            kinds[position] = NOMINAL if kind == NUMERIC else kind
        else:
            kinds[position] = NUMERIC if getattr(dtype, "kind", "f") in "Ob" else kind
    return kinds


def _kind_of_dtype(dtype: Any) -> str:
    if hasattr(dtype, "categories") and hasattr(dtype, "ordered"):
        return ORDINAL if dtype.ordered else NOMINAL
    if hasattr(dtype, "is_numeric"):
        return NUMERIC if dtype.is_numeric() else NOMINAL
    return NOMINAL if getattr(dtype, "kind", "f") in "OUSb" else NUMERIC


def _position(name: Any, names: list[Any]) -> int:
    if name in names and (isinstance(name, str) or all(isinstance(n, Integral) for n in names)):
        return names.index(name)
    if isinstance(name, Integral) and -len(names) <= int(name) < len(names):
        return int(name) % len(names)
    raise ValueError(f"categorical_features names the column {name!r}, which X does not have.")


def _declared(categories: Any, categorical: list[int], names: list[Any]) -> dict[int, Any]:
    """Return the declared labels of categorical columns, by position."""
    if categories is None:
        return {}
    if isinstance(categories, dict):
        found = {}
        for name, labels in categories.items():
            position = _position(name, names)
            if position not in categorical:
                raise ValueError(
                    f"categories are declared for column {name!r}, which is none of the "
                    "categorical columns."
                )
            found[position] = labels
        return found
    categories = list(categories)
    if len(categories) != len(categorical):
        raise ValueError(
            f"categories declares {len(categories)} columns, and there are {len(categorical)} "
            "categorical ones."
        )
    return dict(zip(categorical, categories, strict=True))


def blend(
    columns: list[Column],
    own: list[Any],
    codes: np.ndarray,
    images: np.ndarray,
    moved: np.ndarray,
    uniforms: np.ndarray,
    level: float,
) -> list[np.ndarray]:
    """Return rows that have gone a part of the way to their images, as columns of what users know.

    Parameters
    ----------
    columns : list of Column
        What rows are made of.
    own : list of ndarray of shape (n,), or None
        The labels of rows, for columns that have some.
    codes, images : ndarray of shape (n, n_columns)
        Rows and their images.
    moved : ndarray of shape (n,)
        Which rows are moved at all.
    uniforms : ndarray of shape (n,)
        Random numbers: rows with one below `level` take over all categories of their images.
    level : float
        How much of the way.

    Returns
    -------
    list of ndarray of shape (n,)
        Numbers, or labels as objects.
    """
    blended = []
    for j, (column, labels) in enumerate(zip(columns, own, strict=True)):
        start, end = codes[:, j], images[:, j]
        taken = moved & (uniforms < level)
        if column.kind != NOMINAL and level < 1:
            end = (1 - level) * start + level * end
        if column.kind == NUMERIC:
            blended.append(end)
            continue
        if column.kind == ORDINAL:
            # A level that fit did not know has no place in the order to start from.
            end = np.where(start < 0, images[:, j], np.rint(end))
            taken = moved & ((start >= 0) | taken) & (level > 0)
        labels = labels.copy()
        labels[taken] = column.labels[end[taken].astype(np.intp)]
        blended.append(labels)
    return blended
