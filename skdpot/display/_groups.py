"""The plot of distributions in groups, before and after a repair."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from itertools import combinations, starmap
from typing import Any

import numpy as np
from scipy.stats import wasserstein_distance
from sklearn.utils.validation import check_is_fitted

from skdpot.tables import container_of

from ._style import DASHES, check_option, colour_of, panels_for

_KINDS = ("hist", "ecdf")
_STAGES = ("before", "after")
_N_BINS = 30


@dataclass(eq=False, repr=False)
class GroupDistributionDisplay:
    """Distributions of features in each group, before and after a repair.

    Each feature is a row of two panels. Numbers are shown as histograms or distribution functions,
    and above them stands the largest Wasserstein distance W1 between two groups, in units of the
    feature. Categories are shown as bars, with the largest total variation distance. **The plot is
    not private:** it shows the rows themselves, even if the repair was fitted privately. Create it
    with :meth:`from_estimator` or :meth:`from_predictions`.

    Parameters
    ----------
    before, after : sequence of array-like of shape (n_samples,)
        The columns of every feature.
    groups : array-like of shape (n_samples,)
        The group of every row.
    feature_names : sequence of str
        Names of the features.

    Attributes
    ----------
    axes_ : ndarray of matplotlib Axes, shape (n_features, 2)
        The panels before and after.
    figure_ : matplotlib Figure
        The figure of these axes.
    artists_ : ndarray of dict, shape (n_features, 2)
        Artists by the label of a group: a ``StepPatch`` or a ``Line2D`` for numbers, a
        ``BarContainer`` for categories.
    distances_ : ndarray of shape (n_features, 2)
        The distances that are written above the panels.

    See Also
    --------
    skdpot.FairBarycenterPreprocessor : Repairs rows.
    skdpot.FairBarycenterRegressor : Repairs predictions.
    skdpot.fairness.metrics.wasserstein_between_groups : The distance of one feature.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot import FairBarycenterPreprocessor
    >>> from skdpot.display import GroupDistributionDisplay
    >>> rng = np.random.default_rng(0)
    >>> group = np.repeat(["a", "b"], 200)
    >>> X = rng.normal(size=(400, 2)) + 3 * (group == "b")[:, None]
    >>> fair = FairBarycenterPreprocessor(random_state=0).fit(X, sensitive_features=group)
    >>> display = GroupDistributionDisplay.from_estimator(fair, X, sensitive_features=group)
    >>> before, after = display.distances_.T
    >>> bool((before > 2.5).all()), bool((after < 0.3).all())
    (True, True)
    """

    before: Sequence[Any]
    after: Sequence[Any]
    groups: Any
    _: KW_ONLY
    feature_names: Sequence[str]

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        *,
        sensitive_features: Any = None,
        features: Sequence[Any] | None = None,
        kind: str = "hist",
        ax: Any = None,
    ) -> "GroupDistributionDisplay":
        """Repair rows with a fitted estimator, and plot them before and after.

        Nothing is released or charged. *The picture is as sensitive as the rows.*

        Parameters
        ----------
        estimator : FairBarycenterPreprocessor
            Fitted.
        X : {array-like, DataFrame} of shape (n_samples, n_features)
            Rows, with the columns of its fit.
        sensitive_features : array-like of shape (n_samples,) or (n_samples, n_attributes), \
                default=None
            The sensitive attribute of every row, unless columns of X hold it.
        features : sequence of (str or int), default=None
            Names or positions of the columns to plot, among those that are repaired; None is all.
        kind : {"hist", "ecdf"}, default="hist"
            See :meth:`plot`.
        ax : matplotlib Axes or array of them, default=None
            See :meth:`plot`.

        Returns
        -------
        GroupDistributionDisplay
            The plot.

        Raises
        ------
        TypeError
            If the estimator is of another type. For a pipeline, pass its step.
        NotFittedError
            If the estimator is not fitted.
        ValueError
            If a named column does not exist, or is the attribute itself.
        """
        if not (hasattr(estimator, "transform") and hasattr(estimator, "sensitive_features")):
            raise TypeError(
                "from_estimator takes a FairBarycenterPreprocessor, not a "
                f"{type(estimator).__name__}: for a pipeline, pass its step, such as "
                "pipeline['fair'], and the rows that reach it, or use from_predictions."
            )
        check_is_fitted(estimator)
        repaired = estimator.transform(X, sensitive_features=sensitive_features)
        fair_names = [str(name) for name in estimator.get_feature_names_out()]
        columns = _columns_of(X)
        names = getattr(estimator, "feature_names_in_", [f"x{k}" for k in range(len(columns))])
        named = dict(zip(map(str, names), columns, strict=True))
        if sensitive_features is None:
            sensitive_features = _attribute_columns(estimator.sensitive_features, columns, names)
        fair_columns = dict(zip(fair_names, _columns_of(repaired), strict=True))
        chosen = fair_names if features is None else [_name_of(f, names) for f in features]
        for name in chosen:
            if name not in fair_columns:
                raise ValueError(f"there is no repaired column {name!r}; there are {fair_names}.")
        display = cls(
            [named[name] for name in chosen],
            [fair_columns[name] for name in chosen],
            _labels(sensitive_features),
            feature_names=chosen,
        )
        return display.plot(ax, kind=kind)

    @classmethod
    def from_predictions(
        cls,
        before: Any,
        after: Any,
        *,
        sensitive_features: Any,
        feature_names: Sequence[str] | None = None,
        kind: str = "hist",
        ax: Any = None,
    ) -> "GroupDistributionDisplay":
        """Plot predictions, or rows, before and after a repair.

        Parameters
        ----------
        before, after : {array-like, DataFrame} of shape (n_samples,) or (n_samples, n_features)
            Predictions, scores or rows; of the same rows, in the same columns.
        sensitive_features : array-like of shape (n_samples,) or (n_samples, n_attributes)
            The sensitive attribute of every row. Several attributes define groups by their
            intersections.
        feature_names : sequence of str, default=None
            None takes the names of a data frame, ``"prediction"`` for a single column, and ``"x0"``
            and so on for others.
        kind : {"hist", "ecdf"}, default="hist"
            See :meth:`plot`.
        ax : matplotlib Axes or array of them, default=None
            See :meth:`plot`.

        Returns
        -------
        GroupDistributionDisplay
            The plot.

        Raises
        ------
        ValueError
            If the numbers of columns or rows differ.
        """
        columns = _columns_of(before)
        if feature_names is None:
            feature_names = getattr(before, "columns", None)
        if feature_names is None:
            numbered = [f"x{k}" for k in range(len(columns))]
            feature_names = ["prediction"] if len(columns) == 1 else numbered
        display = cls(
            columns,
            _columns_of(after),
            _labels(sensitive_features),
            feature_names=[str(name) for name in feature_names],
        )
        return display.plot(ax, kind=kind)

    def plot(self, ax: Any = None, *, kind: str = "hist") -> "GroupDistributionDisplay":
        """Plot it again.

        Parameters
        ----------
        ax : matplotlib Axes or array of them, default=None
            Where to plot: two axes for each feature, or one that they all replace. None
            makes a new figure.
        kind : {"hist", "ecdf"}, default="hist"
            Whether numbers are shown as histograms, or as empirical distribution functions, between
            which the area is W1.

        Returns
        -------
        GroupDistributionDisplay
            This object.

        Raises
        ------
        ImportError
            If matplotlib is not installed.
        ValueError
            If the numbers of columns or rows differ, there is a single group, or numbers are not
            finite.
        """
        check_option("kind", kind, _KINDS)
        groups, features = self._checked()
        self.axes_ = panels_for(ax, len(features), 2, panel_size=(3.7, 2.3))
        self.figure_ = self.axes_[0, 0].figure
        shape = len(features), 2
        self.artists_, self.distances_ = np.empty(shape, dtype=object), np.empty(shape)
        for row, (name, stages) in enumerate(zip(self.feature_names, features, strict=True)):
            numeric = all(values.dtype.kind == "f" for values in stages)
            labels = np.unique(groups).tolist()
            parts = [{label: values[groups == label] for label in labels} for values in stages]
            show = _show_numbers if numeric else _show_categories
            self.artists_[row] = show(self.axes_[row], parts, kind)
            distance = wasserstein_distance if numeric else _total_variation
            self.distances_[row] = [
                max(starmap(distance, combinations(part.values(), 2))) for part in parts
            ]
            measure = "$W_1$" if numeric else "total variation"
            for panel, stage, value in zip(
                self.axes_[row], _STAGES, self.distances_[row], strict=True
            ):
                panel.set_title(f"{stage}: {measure} = {value:.3g}", fontsize="medium")
                panel.set_xlabel(name)
        self.axes_[0, 0].legend(fontsize="small")
        return self

    def _checked(self) -> tuple[np.ndarray, list[list[np.ndarray]]]:
        """Return the groups, and the values of every feature before and after the repair."""
        groups = np.asarray(self.groups)
        if groups.ndim != 1 or len(np.unique(groups)) < 2:
            raise ValueError("groups must be one label for each row, of at least two groups.")
        sizes = len(self.before), len(self.after), len(self.feature_names)
        if len(set(sizes)) > 1 or not sizes[0]:
            raise ValueError(
                "there must be as many columns before and after, and names, and at least one; got "
                f"{sizes[0]}, {sizes[1]} and {sizes[2]}."
            )
        features = []
        for pair, name in zip(zip(self.before, self.after, strict=True), self.feature_names,
                              strict=True):  # fmt: skip
            values = [np.asarray(column) for column in pair]
            if any(column.shape != groups.shape for column in values):
                raise ValueError(f"column {name!r} must have {len(groups)} rows, like groups.")
            features.append(_as_one_type(values, name))
        return groups, features


def _columns_of(table: Any) -> list[np.ndarray]:
    """Return the columns of an array or a data frame, each with its own type."""
    if container_of(table) != "array":
        return [np.asarray(table[name]) for name in table.columns]
    values = np.asarray(table)
    return [values] if values.ndim == 1 else list(values.T)


def _attribute_columns(attribute: Any, columns: list[np.ndarray], names: Any) -> np.ndarray:
    """Return the columns of X that hold the attribute."""
    keys = [attribute] if isinstance(attribute, str) or np.ndim(attribute) == 0 else list(attribute)
    known_names = [str(name) for name in names]
    return np.column_stack([columns[known_names.index(_name_of(key, names))] for key in keys])


def _name_of(feature: Any, names: Any) -> str:
    """Return the name of a column that is given by name or position."""
    if isinstance(feature, int | np.integer) and -len(names) <= feature < len(names):
        return str(names[feature])
    return str(feature)


def _labels(sensitive_features: Any) -> np.ndarray:
    """Return a label for each row; labels of several attributes are joined."""
    columns = [
        [str(value) for value in column.tolist()] for column in _columns_of(sensitive_features)
    ]
    return np.array([", ".join(row) for row in zip(*columns, strict=True)])


def _as_one_type(values: list[np.ndarray], name: str) -> list[np.ndarray]:
    """Return values before and after as numbers if both are numbers, else as text."""
    texts = any(isinstance(value, str) for column in values for value in column.tolist())
    if not texts and all(column.dtype.kind in "fiuO" for column in values):
        try:
            as_numbers = [column.astype(np.float64) for column in values]
        except (TypeError, ValueError):
            as_numbers = []
        if as_numbers:
            if not all(np.isfinite(column).all() for column in as_numbers):
                raise ValueError(f"column {name!r} has numbers that are missing or not finite.")
            return as_numbers
    return [np.array([_category_text(value) for value in column.tolist()]) for column in values]


def _category_text(category: Any) -> str:
    """Return a category as text; all kinds of missing values are one category."""
    text = str(category)
    missing = not isinstance(category, str) and text in ("None", "nan", "NaT", "<NA>")
    return "missing" if missing else text


def _total_variation(first: np.ndarray, second: np.ndarray) -> float:
    labels = np.unique(np.concatenate([first, second]))
    return float(np.abs(_shares(first, labels) - _shares(second, labels)).sum() / 2)


def _shares(values: np.ndarray, labels: np.ndarray) -> np.ndarray:
    return np.array([np.mean(values == label) for label in labels])


def _show_numbers(panels: Any, parts: list[dict[Any, np.ndarray]], kind: str) -> list[dict]:
    """Draw numbers before and after, on the same axes."""
    pooled = np.concatenate([values for stage in parts for values in stage.values()])
    low, high = pooled.min(), pooled.max()
    integers = all((values == np.round(values)).all() for values in parts[0].values())
    edges, room = _bin_edges(low, high, integers), 0.02 * (high - low) or 0.5
    artists: list[dict] = [{}, {}]
    for group_artists, panel, stage in zip(artists, panels, parts, strict=True):
        for number, (group, values) in enumerate(stage.items()):
            style = {"color": colour_of(number), "label": str(group),
                     "linestyle": DASHES[number % len(DASHES)], "linewidth": 1.5}  # fmt: skip
            if kind == "ecdf":
                group_artists[group] = panel.ecdf(values, **style)
                continue
            heights, _ = np.histogram(values, edges, density=True)
            panel.stairs(heights, edges, fill=True, color=style["color"], alpha=0.25)
            group_artists[group] = panel.stairs(heights, edges, **style)
        panel.set_xlim(low - room, high + room)
    _share_height(panels, "share of rows below" if kind == "ecdf" else "density")
    return artists


def _bin_edges(low: float, high: float, integers: bool) -> np.ndarray:
    """Return the edges of equal bins; for few whole numbers, each bin has equally many of them."""
    if integers:
        low, high = np.floor(low) - 0.5, np.ceil(high) + 0.5
        width = np.ceil((high - low) / _N_BINS)
        return np.arange(low, high + width, width)
    return np.linspace(low, high if high > low else low + 1.0, _N_BINS + 1)


def _show_categories(panels: Any, parts: list[dict[Any, np.ndarray]], kind: str) -> list[dict]:
    """Draw the shares of categories before and after, in one order; `kind` is ignored."""
    labels = np.unique(np.concatenate([values for stage in parts for values in stage.values()]))
    artists: list[dict] = [{}, {}]
    places, width = np.arange(len(labels)), 0.8 / len(parts[0])
    crowded = sum(map(len, labels)) > 36
    rotation = {"rotation": 40, "ha": "right", "rotation_mode": "anchor"} if crowded else {}
    for group_artists, panel, stage in zip(artists, panels, parts, strict=True):
        for number, (group, values) in enumerate(stage.items()):
            positions = places + (number - (len(stage) - 1) / 2) * width
            style = {"color": colour_of(number), "label": str(group)}
            group_artists[group] = panel.bar(positions, _shares(values, labels), width, **style)
        panel.set_xticks(places, labels, fontsize="small", **rotation)
    _share_height(panels, "share of rows")
    return artists


def _share_height(panels: Any, label: str) -> None:
    """Give panels the same heights, named on the left."""
    highest = max(panel.get_ylim()[1] for panel in panels)
    for panel in panels:
        panel.set_ylim(0, highest)
    panels[0].set_ylabel(label)
    panels[1].tick_params(labelleft=False)
