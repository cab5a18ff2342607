"""Plots of results; matplotlib is imported on first use."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass
from itertools import combinations, starmap
from numbers import Integral
from typing import Any

import numpy as np
from scipy.stats import sem, wasserstein_distance
from sklearn.utils.validation import check_is_fitted

from skdpot.tables import Table, is_missing, names_of, refuse_other_order, refuse_other_rows

__all__ = ["FrontierDisplay", "GroupDistributionDisplay", "LedgerDisplay", "SampleGridDisplay"]

# Colours that colour-blind readers can tell apart (M. Okabe, K. Ito), the darkest ones first.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
MARKERS = ("o", "s", "^", "D", "v", "P")
DASHES = ("-", "--", "-.", (0, (1, 1.2)), (0, (6, 1.5, 1, 1.5, 1, 1.5)), (0, (8, 2)))
GREY = "0.35"


@dataclass(eq=False, repr=False)
class SampleGridDisplay:
    """Images, a class a column.

    Images of a generator that was fitted privately are protected by its guarantee, so you may
    publish them. Real images are not protected. Create it with :meth:`from_estimator` or
    :meth:`from_samples`.

    Parameters
    ----------
    samples : ndarray of shape (n_samples, n_features)
        Flattened images.
    targets : ndarray of shape (n_samples,), default=None
        Their labels; None has as many columns as there are rows.
    image_shape : tuple of int
        (height, width) or (height, width, channels), with 1, 3 or 4 channels, in which the images
        were flattened.
    bounds : tuple (low, high), default=None
        Values of the darkest and brightest colour; None is the range of the images.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Where it was plotted.
    figure_ : matplotlib Figure
        The figure of these axes.
    im_ : matplotlib AxesImage
        One image of all, with gaps between samples.

    See Also
    --------
    skdpot.DPSinkhornGenerator : Generates images under differential privacy.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from skdpot.display import SampleGridDisplay
    >>> X, y = load_digits(return_X_y=True)
    >>> display = SampleGridDisplay.from_samples(X[:200], y[:200], image_shape=(8, 8))
    >>> display.im_.get_array().shape[1]  # ten digits of 8 pixels, and what is between
    91
    """

    samples: Any
    targets: Any = None
    _: KW_ONLY
    image_shape: tuple[int, ...]
    bounds: tuple[Any, Any] | None = None

    @classmethod
    def from_estimator(
        cls,
        generator: Any,
        n_samples_per_class: int = 8,
        *,
        image_shape: tuple[int, ...] | None = None,
        bounds: tuple[Any, Any] | None = None,
        ax: Any = None,
    ) -> "SampleGridDisplay":
        """Draw samples of a fitted generator, which costs nothing, and plot them.

        Parameters
        ----------
        generator : DPSinkhornGenerator
            Fitted.
        n_samples_per_class : int, default=8
            Number of images of each class; without classes, number of rows and columns.
        image_shape : tuple of int, default=None
            (height, width) or (height, width, channels); None is the generator's.
        bounds : tuple (low, high), default=None
            Values of the darkest and brightest colour; None is the generator's.
        ax : matplotlib Axes, default=None
            Where to plot. None makes a new figure.

        Returns
        -------
        SampleGridDisplay
            The plot.

        Raises
        ------
        NotFittedError
            If the generator is not fitted.
        TypeError
            If it is no generator.
        ValueError
            If the number is wrong, or there is no shape of images.
        """
        if not isinstance(n_samples_per_class, Integral) or n_samples_per_class < 1:
            raise ValueError(
                f"n_samples_per_class must be a positive integer, got {n_samples_per_class!r}."
            )
        # Series and frames have `sample`, too, and draw private rows by it: they have no `fit`.
        if not all(callable(getattr(generator, method, None)) for method in ("fit", "sample")):
            # They may be private images, which are not quoted.
            raise TypeError(
                f"a generator is a fitted estimator that samples, got {type(generator).__name__}; "
                "show real images with from_samples."
            )
        image_shape = image_shape or getattr(generator, "image_shape", None)
        if image_shape is None:
            raise ValueError(
                "the generator has no image_shape; give one here: (height, width) or "
                "(height, width, channels)."
            )
        check_is_fitted(generator)
        classes, n_samples = getattr(generator, "classes_", None), int(n_samples_per_class)
        if classes is None:
            drawn = generator.sample(n_samples**2), None
        else:
            drawn = generator.sample(y=np.repeat(classes, n_samples))
        bounds = bounds or getattr(generator, "bounds", None)
        return cls(*drawn, image_shape=image_shape, bounds=bounds).plot(ax)

    @classmethod
    def from_samples(
        cls,
        X: Any,
        y: Any = None,
        *,
        image_shape: tuple[int, ...],
        n_samples_per_class: int | None = 8,
        bounds: tuple[Any, Any] | None = None,
        ax: Any = None,
    ) -> "SampleGridDisplay":
        """Plot images.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Flattened images.
        y : array-like of shape (n_samples,), default=None
            Their labels.
        image_shape : tuple of int
            (height, width) or (height, width, channels).
        n_samples_per_class : int, default=8
            Number of images shown of each class (the first ones); without labels, number of rows
            and columns. None shows all.
        bounds : tuple (low, high), default=None
            Values of the darkest and brightest colour; None is the least and the largest value.
        ax : matplotlib Axes, default=None
            Where to plot. None makes a new figure.

        Returns
        -------
        SampleGridDisplay
            The plot.

        Raises
        ------
        ValueError
            If images do not have the shape, or there is not one label for each.
        """
        X, n_samples = np.asarray(X), n_samples_per_class
        if y is None:
            rows = np.arange(len(X))[: None if n_samples is None else n_samples**2]
        else:
            y = _checked_labels(y, len(X))
            # The first ones, not a random choice: the same call shows the same images.
            rows = np.concatenate([np.flatnonzero(y == one)[:n_samples] for one in np.unique(y)])
        shown = X[rows], None if y is None else y[rows]
        return cls(*shown, image_shape=image_shape, bounds=bounds).plot(ax)

    def plot(self, ax: Any = None) -> "SampleGridDisplay":
        """Plot it again.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Where to plot. None makes a new figure.

        Returns
        -------
        SampleGridDisplay
            This object.

        Raises
        ------
        ImportError
            If matplotlib is not installed.
        ValueError
            If images do not have the shape, or there is not one label for each.
        """
        images = _checked_images(self.samples, self.image_shape)
        low, high = images.min(), images.max()
        if self.bounds is not None:
            low, high = numbers(self.bounds[0]).min(), numbers(self.bounds[1]).max()
        if self.targets is None:
            # Images are in reading order: row by row, so that a column has every n-th of them.
            n_columns, names = int(np.ceil(np.sqrt(len(images)))), []
            columns = [images[k::n_columns] for k in range(min(n_columns, len(images)))]
        else:
            targets = _checked_labels(self.targets, len(images))
            names = np.unique(targets).tolist()
            columns = [images[targets == name] for name in names]
        height, width = images.shape[1:3]
        # Between images, 8 % of their height can be seen, also where they are small.
        gap = max(1, round(0.08 * height))
        mosaic = _mosaic(columns, gap)
        # An image is 0.45 inches high, unless the panel would not fit a page.
        scale = min(0.45 / height, 12.0 / max(mosaic.shape))
        size = scale * mosaic.shape[1] + 0.8, scale * mosaic.shape[0] + 1.0
        self.ax_ = axes_for(ax, figsize=size)
        self.figure_ = self.ax_.figure
        self.im_ = _show(self.ax_, mosaic, float(low), float(high))
        # A label stands over the middle of its column; pixels are centred at whole numbers.
        middles = gap + np.arange(len(names)) * (width + gap) + (width - 1) / 2
        self.ax_.set_xticks(middles, [str(name) for name in names])
        self.ax_.tick_params(length=0, labeltop=True, labelbottom=False)
        self.ax_.set_yticks([])
        self.ax_.spines[:].set_visible(False)
        return self


def _checked_labels(y: Any, n_images: int) -> np.ndarray:
    y = np.asarray(y)
    if y.shape != (n_images,):
        raise ValueError(f"y must have one label for each of {n_images} images, not {y.shape}.")
    return y


def _checked_images(X: Any, shape: Any) -> np.ndarray:
    """Return images of shape (n, height, width, channels), or raise."""
    X, sizes = numbers(X), tuple(shape) if np.ndim(shape) == 1 else ()
    height, width, channels = (*sizes, 1)[:3] if len(sizes) in (2, 3) else (0, 0, 0)
    if min(height, width) < 1 or channels not in (1, 3, 4):
        raise ValueError(
            "image_shape must be (height, width), or (height, width, channels) with 1, 3 or 4 "
            f"channels, got {shape!r}."
        )
    n_pixels = height * width * channels
    # Its size is compared, and not its second dimension: images may be flattened already or not.
    if not len(X) or X.size != len(X) * n_pixels:
        raise ValueError(
            f"images of shape {sizes} have {n_pixels} values, got an array of shape {X.shape}."
        )
    return X.reshape(len(X), height, width, channels)


def _mosaic(columns: Sequence[np.ndarray], gap: int) -> np.ndarray:
    """Return one image of all, with NaN between them and in place of missing images."""
    height, width, channels = columns[0].shape[1:]
    n_rows = max(1, *(len(column) for column in columns))
    # Gaps above and left of each image, and around the whole.
    tiles = np.full((n_rows, len(columns), gap + height, gap + width, channels), np.nan)
    for j, column in enumerate(columns):
        tiles[: len(column), j, gap:, gap:] = column
    shape = n_rows * (gap + height), len(columns) * (gap + width), channels
    mosaic = tiles.transpose(0, 2, 1, 3, 4).reshape(shape)
    return np.pad(mosaic, [(0, gap), (0, gap), (0, 0)], constant_values=np.nan)


def _show(place: Any, mosaic: np.ndarray, low: float, high: float) -> Any:
    """Draw a mosaic, with NaN in white."""
    if mosaic.shape[2] == 1:
        return place.imshow(mosaic[:, :, 0], cmap="gray", vmin=low, vmax=high)
    # matplotlib scales images of one channel itself, and takes others from 0 to 1.
    shares = np.clip((mosaic - low) / (high - low if high > low else 1.0), 0.0, 1.0)
    return place.imshow(np.where(np.isnan(shares), 1.0, shares))


@dataclass(eq=False, repr=False)
class GroupDistributionDisplay:
    """Distributions of features in each group, before and after a repair.

    Each feature is a row of two panels. Numbers are shown as histograms, and above them stands the
    largest Wasserstein distance W1 between two groups, in units of the feature. Categories are
    shown as bars, with the largest total variation distance. **The plot is not private:** it shows
    the rows themselves, even if the repair was fitted privately. Create it with
    :meth:`from_predictions`.

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
        Artists by the label of a group: a ``StepPatch`` for numbers, a ``BarContainer`` for
        categories.
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
    >>> repaired = fair.transform(X, sensitive_features=group)
    >>> display = GroupDistributionDisplay.from_predictions(X, repaired, sensitive_features=group)
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
    def from_predictions(
        cls,
        before: Any,
        after: Any,
        *,
        sensitive_features: Any,
        feature_names: Sequence[str] | None = None,
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
        refuse_other_rows(before, {"after": after, "sensitive_features": sensitive_features})
        names = names_of(before, "columns")
        refuse_other_order("after", after, names, of="the rows before", axis="columns")
        # Each with its own type: numbers of a frame beside words must not become text.
        columns = _columns_of(before)
        if feature_names is None:
            numbered = [f"x{k}" for k in range(len(columns))]
            unnamed = ["prediction"] if len(columns) == 1 else numbered
            feature_names = getattr(before, "columns", unnamed)
        return cls(
            columns,
            _columns_of(after),
            _labels(sensitive_features),
            feature_names=[str(name) for name in feature_names],
        ).plot(ax)

    def plot(self, ax: Any = None) -> "GroupDistributionDisplay":
        """Plot it again.

        Parameters
        ----------
        ax : matplotlib Axes or array of them, default=None
            Where to plot: two axes for each feature. None makes a new figure.

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
        groups, features = self._checked()
        n_rows = len(features)
        axes = axes_for(ax, nrows=n_rows, ncols=2, squeeze=False, figsize=(8.0, 2.3 * n_rows + 0.6))
        # As objects: NumPy would ask axes for their length otherwise.
        given = np.asarray(axes, dtype=object)
        if given.size != 2 * n_rows:
            raise ValueError(f"ax must be {2 * n_rows} axes, for {n_rows} x 2 panels.")
        self.axes_ = given.reshape(n_rows, 2)
        self.figure_ = self.axes_[0, 0].figure
        self.artists_, self.distances_ = np.empty((n_rows, 2), dtype=object), np.empty((n_rows, 2))
        for row, (name, stages) in enumerate(zip(self.feature_names, features, strict=True)):
            # `_as_one_type` made doubles of numbers, and text of all others.
            numeric = all(values.dtype.kind == "f" for values in stages)
            labels = np.unique(groups).tolist()
            parts = [{label: values[groups == label] for label in labels} for values in stages]
            show = _show_numbers if numeric else _show_categories
            self.artists_[row] = show(self.axes_[row], parts)
            distance = wasserstein_distance if numeric else _total_variation
            self.distances_[row] = [
                max(starmap(distance, combinations(part.values(), 2))) for part in parts
            ]
            measure = "$W_1$" if numeric else "total variation"
            for panel, stage, value in zip(
                self.axes_[row], ("before", "after"), self.distances_[row], strict=True
            ):
                panel.set_title(f"{stage}: {measure} = {value:.3g}", fontsize="medium")
                panel.set_xlabel(name)
        self.axes_[0, 0].legend(fontsize="small")
        return self

    def _checked(self) -> tuple[np.ndarray, list[list[np.ndarray]]]:
        """Return the groups, and the values of every feature before and after the repair."""
        groups = np.asarray(self.groups)
        # A distance between groups needs two of them.
        if groups.ndim != 1 or len(np.unique(groups)) < 2:
            raise ValueError("groups must be one label for each row, of at least two groups.")
        sizes = len(self.before), len(self.after), len(self.feature_names)
        if len(set(sizes)) > 1 or not sizes[0]:
            raise ValueError(
                "there must be as many columns before and after, and names, and at least one; got "
                f"{sizes[0]}, {sizes[1]} and {sizes[2]}."
            )
        features = []
        for before, after, name in zip(self.before, self.after, self.feature_names, strict=True):
            values = [np.asarray(before), np.asarray(after)]
            if any(column.shape != groups.shape for column in values):
                raise ValueError(f"column {name!r} must have {len(groups)} rows, like groups.")
            features.append(_as_one_type(values, name))
        return groups, features


def _columns_of(table: Any) -> list[np.ndarray]:
    """Return the columns of an array or a data frame, each with its own type."""
    if Table(table).container != "array":
        return [np.asarray(table[name]) for name in Table(table).names]
    values = np.asarray(table)
    return [values] if values.ndim == 1 else list(values.T)


def _labels(sensitive_features: Any) -> np.ndarray:
    """Return a label for each row; labels of several attributes are joined."""
    if not hasattr(sensitive_features, "shape"):
        # An array would make text of what is missing among words.
        sensitive_features = np.asarray(sensitive_features, dtype=object)
    values = [column.tolist() for column in _columns_of(sensitive_features)]
    if any(is_missing(value) for column in values for value in column):
        raise ValueError("sensitive_features contains NaN or None. Leave out these rows.")
    return np.array([", ".join(map(str, row)) for row in zip(*values, strict=True)])


def _as_one_type(values: list[np.ndarray], name: str) -> list[np.ndarray]:
    """Return values before and after as numbers if both are numbers, else as text."""
    texts = any(isinstance(value, str) for column in values for value in column.tolist())
    # Objects may be numbers, such as those of a frame with missing values; text stays text, even if
    # it could be read as numbers.
    if not texts and all(column.dtype.kind in "fiuO" for column in values):
        as_numbers = []
        with suppress(TypeError, ValueError):
            as_numbers = [column.astype(np.float64) for column in values]
        if as_numbers:
            if not all(np.isfinite(column).all() for column in as_numbers):
                raise ValueError(f"column {name!r} has numbers that are missing or not finite.")
            return as_numbers
    # All kinds of missing values are one category.
    return [
        np.array(["missing" if is_missing(value) else str(value) for value in column.tolist()])
        for column in values
    ]


def _total_variation(first: np.ndarray, second: np.ndarray) -> float:
    labels = np.unique(np.concatenate([first, second]))
    return float(np.abs(_shares(first, labels) - _shares(second, labels)).sum() / 2)


def _shares(values: np.ndarray, labels: np.ndarray) -> np.ndarray:
    return np.array([np.mean(values == label) for label in labels])


def _show_numbers(panels: Any, parts: list[dict[Any, np.ndarray]]) -> list[dict]:
    """Draw numbers before and after, on the same axes."""
    # Bins and limits are those of both stages: otherwise a repair would look like a change of
    # scale.
    pooled = np.concatenate([values for stage in parts for values in stage.values()])
    low, high = pooled.min(), pooled.max()
    # Whole numbers in bins of unequal numbers of them would show a comb that is not in the data.
    integers = all((values == np.round(values)).all() for values in parts[0].values())
    edges, room = _bin_edges(low, high, integers), 0.02 * (high - low) or 0.5
    artists: list[dict] = [{}, {}]
    for group_artists, panel, stage in zip(artists, panels, parts, strict=True):
        for number, (group, values) in enumerate(stage.items()):
            style = {"color": colour_of(number), "label": str(group), "linewidth": 1.5}
            style["linestyle"] = DASHES[number % len(DASHES)]
            heights, _ = np.histogram(values, edges, density=True)
            # Groups overlap: the areas are faint, and the edges drawn again.
            panel.stairs(heights, edges, fill=True, color=style["color"], alpha=0.25)
            group_artists[group] = panel.stairs(heights, edges, **style)
        panel.set_xlim(low - room, high + room)
    _share_height(panels, "density")
    return artists


def _bin_edges(low: float, high: float, integers: bool, n_bins: int = 30) -> np.ndarray:
    """Return the edges of equal bins; for few whole numbers, each bin has equally many of them."""
    if integers:
        low, high = np.floor(low) - 0.5, np.ceil(high) + 0.5
        width = np.ceil((high - low) / n_bins)
        return np.arange(low, high + width, width)
    return np.linspace(low, high if high > low else low + 1.0, n_bins + 1)


def _show_categories(panels: Any, parts: list[dict[Any, np.ndarray]]) -> list[dict]:
    """Draw the shares of categories before and after, in one order."""
    labels = np.unique(np.concatenate([values for stage in parts for values in stage.values()]))
    artists: list[dict] = [{}, {}]
    places, width = np.arange(len(labels)), 0.8 / len(parts[0])
    # More letters than these would overlap.
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
    # Equal heights let the eye compare before and after; the scale is named once.
    highest = max(panel.get_ylim()[1] for panel in panels)
    for panel in panels:
        panel.set_ylim(0, highest)
    panels[0].set_ylabel(label)
    panels[1].tick_params(labelleft=False)


@dataclass(eq=False, repr=False)
class FrontierDisplay:
    r"""Scores against their cost: an epsilon, or the difference between groups.

    Every estimator or mechanism is a curve. Bars on either side are standard errors of the means of
    repeated measurements, as if these were independent. The plot is
    as sensitive as its input: scores of private data without noise are sensitive, even if the
    estimators are private. Create it with :meth:`from_scores`.

    Parameters
    ----------
    costs : sequence of array-like of shape (n_points,) or (n_points, n_repeats)
        Costs of the points of each curve: epsilons, or differences between groups measured in each
        repeat.
    scores : sequence of array-like of shape (n_points, n_repeats)
        Scores of each curve: a row for each point, a column for each repeat.
    labels : sequence of str
        Names of the curves.
    baseline : float, default=None
        The score without privacy; a horizontal line.
    score_name : str, default="Score"
        Label of the vertical axis.
    cost_name : str, default="$\varepsilon$"
        Label of the horizontal axis.
    scale : {"log", "linear"}, default="log"
        Scale of the horizontal axis. A logarithmic axis needs positive costs.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Axes of the plot.
    figure_ : matplotlib Figure
        The figure of these axes.
    lines_ : list of matplotlib Line2D
        The mean scores of each curve.
    errorbar_ : list of matplotlib ErrorbarContainer
        The curves with their bars.

    See Also
    --------
    sklearn.model_selection.ValidationCurveDisplay : Cross-validates an estimator with several
        values of a parameter, such as epsilon. Every fit is a release, and is charged.
    GroupDistributionDisplay : Columns by group, before and after a repair.

    Examples
    --------
    >>> from skdpot.display import FrontierDisplay
    >>> scores = {"input": ([1, 10], [[0.82, 0.84], [0.98, 0.99]]), "laplace": ([1], [[0.75]])}
    >>> display = FrontierDisplay.from_scores(scores, baseline=1.0, score_name="Welfare")
    >>> display.ax_.get_xscale(), len(display.lines_)
    ('log', 2)
    """

    costs: Sequence[Any]
    scores: Sequence[Any]
    _: KW_ONLY
    labels: Sequence[str]
    baseline: float | None = None
    score_name: str = "Score"
    cost_name: str = r"$\varepsilon$"
    scale: str = "log"

    @classmethod
    def from_scores(
        cls, scores: Mapping[str, tuple[Any, Any]], *, ax: Any = None, **options: Any
    ) -> "FrontierDisplay":
        """Plot existing scores; nothing is released.

        Parameters
        ----------
        scores : dict of str to tuple
            For the name of each curve, a pair: costs of shape (n_points,) or (n_points,
            n_repeats), and scores of shape (n_points, n_repeats).
        ax : matplotlib Axes, default=None
            Axes for the plot; None makes a new figure.
        **options : dict
            Further parameters of the display, such as `baseline` and names of axes.

        Returns
        -------
        FrontierDisplay
            The plot.

        Raises
        ------
        ValueError
            If there is not one row of scores for each cost, or a cost cannot be drawn.
        """
        costs = [of_points for of_points, _ in scores.values()]
        repeats = [of_points for _, of_points in scores.values()]
        return cls(costs, repeats, labels=list(scores), **options).plot(ax)

    def plot(self, ax: Any = None) -> "FrontierDisplay":
        """Plot it again: means of the repeats, with bars.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Axes for the plot; None makes a new figure.

        Returns
        -------
        FrontierDisplay
            This object.

        Raises
        ------
        ImportError
            If matplotlib is not installed.
        ValueError
            If there is not one row of scores for each cost, or a cost cannot be drawn.
        """
        if self.scale not in ("log", "linear"):
            raise ValueError(f"scale must be 'log' or 'linear', got {self.scale!r}.")
        curves = [
            _curve(*curve, self.scale)
            for curve in zip(self.costs, self.scores, self.labels, strict=True)
        ]
        self.ax_ = ax = axes_for(ax)
        self.figure_ = ax.figure
        # Below the curves, which are drawn later.
        if self.baseline is not None:
            ax.axhline(self.baseline, color=GREY, linestyle=":", label="without privacy")
        self.errorbar_ = []
        for k, (curve, label) in enumerate(zip(curves, self.labels, strict=True)):
            style = {"color": colour_of(k), "marker": MARKERS[k % len(MARKERS)], "markersize": 5}
            style["linestyle"] = DASHES[k % len(DASHES)]
            self.errorbar_.append(ax.errorbar(*curve, capsize=3, label=label, **style))
        self.lines_ = [bars.lines[0] for bars in self.errorbar_]
        ax.set_xscale(self.scale)
        if self.scale == "log":
            shown = np.unique(np.concatenate([line.get_xdata() for line in self.lines_] or [[]]))
            # Labels of more ticks would overlap.
            if 0 < len(shown) <= 8:
                ax.set_xticks(shown, [f"{cost:g}" for cost in shown])
                ax.minorticks_off()
        ax.set(xlabel=self.cost_name, ylabel=self.score_name)
        ax.grid(alpha=0.3)
        if self.lines_ or self.baseline is not None:
            ax.legend(fontsize="small")
        return self


def _curve(
    costs: Any, scores: Any, label: str, scale: str
) -> tuple[np.ndarray, np.ndarray, Any, Any]:
    """Return the means of costs and scores, and the errors of scores and of costs."""
    costs, scores = numbers(costs), numbers(scores)
    # matplotlib leaves out such points without a word; epsilon = 0 or infinity is a likely mistake.
    if not np.isfinite(costs).all() or (scale == "log" and not (costs > 0).all()):
        requirement = "positive and finite" if scale == "log" else "finite"
        raise ValueError(f"costs, such as epsilons, must be {requirement} numbers.")
    if scores.ndim != 2 or len(scores) != len(costs) or not scores.size:
        raise ValueError(
            f"scores of {label!r} must have shape ({len(costs)}, n_repeats), a row for each "
            f"cost; got shape {scores.shape}."
        )
    # Costs that are measured, such as differences between groups, vary as scores do, and are not
    # sorted: points are those of a setting, in the order of the settings.
    if costs.ndim == 2:
        if costs.shape != scores.shape:
            raise ValueError(
                f"costs of {label!r} must be as many as its scores: shape {scores.shape}; got "
                f"shape {costs.shape}."
            )
        return costs.mean(axis=1), scores.mean(axis=1), _errors(scores), _errors(costs)
    # A line through points in the order of a dictionary would go back and forth.
    order = np.argsort(costs, kind="stable")
    costs, scores = costs[order], scores[order]
    return costs, scores.mean(axis=1), _errors(scores), None


def _errors(repeats: np.ndarray) -> Any:
    """Return the lengths of error bars of means; None for a single repeat."""
    return sem(repeats, axis=1) if repeats.shape[1] > 1 else None


@dataclass(eq=False, repr=False)
class LedgerDisplay:
    """The epsilon spent after each charge to a ledger, by label, and its limit.

    Every charge is a vertical line in the colour of its label. Its height is the epsilon that it
    added by the rule of the ledger. This may be less than its own epsilon if releases compose
    tightly, and 0 if another part of the data has spent more. The plot shows labels, numbers and
    times of charges; nothing in it is private unless labels are. Create it with
    :meth:`from_ledger`.

    Parameters
    ----------
    spent : array-like of shape (n_charges,)
        Epsilon spent after each charge, finite.
    labels : sequence of str
        Label of each charge.
    epsilon, delta : float, default=None
        The budget; None, or an infinite epsilon, means no limit.
    unit : str, default=None
        The unit that the releases protect.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Axes of the plot.
    figure_ : matplotlib Figure
        The figure of these axes.
    line_ : matplotlib Line2D
        The spent epsilon, as steps, from 0.
    charges_ : dict of str to matplotlib LineCollection
        Vertical lines of the charges, by label. There are six colours: labels that were charged
        first after these are together as ``"others"``.
    limit_ : matplotlib Line2D or None
        The limit, if there is one.

    See Also
    --------
    skdpot.PrivacyLedger.report : The same as a text.

    Examples
    --------
    >>> from skdpot import PrivacyLedger
    >>> from skdpot.display import LedgerDisplay
    >>> from skdpot.privacy import PureDpEvent
    >>> ledger = PrivacyLedger(epsilon=2.0)
    >>> for label in ("mean", "mean", "median"):
    ...     receipt = ledger.charge(PureDpEvent(0.5), unit="record", label=label)
    >>> display = LedgerDisplay.from_ledger(ledger)
    >>> display.line_.get_ydata()
    array([0. , 0.5, 1. , 1.5])
    """

    spent: Any
    labels: Sequence[str]
    _: KW_ONLY
    epsilon: float | None = None
    delta: float | None = None
    unit: str | None = None

    @classmethod
    def from_ledger(cls, ledger: Any, *, unit: Any = None, ax: Any = None) -> "LedgerDisplay":
        """Plot the charges of a ledger, without changing it.

        Parameters
        ----------
        ledger : PrivacyLedger
            The ledger. For a part of a partition, the whole ledger is plotted.
        unit : {"record", "user", "edge", "node"}, default=None
            The unit to plot. Each unit has the whole budget. None chooses the unit that has spent
            most.
        ax : matplotlib Axes, default=None
            Axes for the plot; None makes a new figure.

        Returns
        -------
        LedgerDisplay
            The plot.

        Raises
        ------
        TypeError
            If `ledger` is not a PrivacyLedger.
        ValueError
            If the unit is unknown.
        """
        if not (hasattr(ledger, "entries") and hasattr(ledger, "spent")):
            raise TypeError(f"ledger must be a PrivacyLedger, got an object of {type(ledger)}.")
        if unit is None:
            units = ledger.report().units
            unit = max(units, key=lambda each: units[each][0], default="record")
        # Units are never added up: each has the whole budget.
        entries = [entry for entry in ledger.entries() if entry.unit == unit]
        return cls(
            [epsilon for epsilon, _ in ledger.spent_after_each(unit=unit)],
            [entry.label for entry in entries],
            epsilon=ledger.epsilon,
            delta=ledger.delta,
            unit=unit,
        ).plot(ax)

    def plot(self, ax: Any = None) -> "LedgerDisplay":
        """Plot the charges.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Axes for the plot; None makes a new figure.

        Returns
        -------
        LedgerDisplay
            This object.

        Raises
        ------
        ImportError
            If matplotlib is not installed.
        ValueError
            If there is not one finite number and one label for each charge.
        """
        spent = numbers(self.spent)
        if spent.shape != (len(self.labels),) or not np.isfinite(spent).all():
            raise ValueError(f"spent must be {len(self.labels)} finite numbers, one per label.")
        places = np.arange(1, len(spent) + 1)
        self.ax_ = ax = axes_for(ax, figsize=(7.6, 4.2))
        self.figure_ = ax.figure
        # A ledger begins at 0; the k-th charge goes from the level before it to its own.
        levels = np.concatenate([[0.0], spent])
        (self.line_,) = ax.step(
            [0, *places], levels, where="post", color=GREY, linewidth=1.0, zorder=1
        )
        self._plot_charges(places, levels)
        highest, self.limit_ = levels[-1], None
        if self.epsilon is not None and np.isfinite(self.epsilon):
            text = rf"budget: $\varepsilon$ = {self.epsilon:g}"
            text += rf", $\delta$ = {self.delta:g}" if self.delta else ""
            self.limit_ = ax.axhline(self.epsilon, color="black", linestyle="--", label=text)
            highest = max(highest, self.epsilon)
        # From 0, so that heights compare; and with room for the line of the limit.
        ax.set(ylim=(0, 1.08 * highest or 1.0), ylabel=r"$\varepsilon$ spent")
        ax.set_xlabel("Charge" if self.unit is None else f"Charge, unit: {self.unit}")
        ax.set_xlim(0, len(spent) + 0.7)
        # Charges are counted: there is no charge 1.5.
        ax.xaxis.get_major_locator().set_params(integer=True)
        ax.grid(axis="y", alpha=0.3)
        if not len(spent):
            ax.text(0.5, 0.5, "nothing was released", transform=ax.transAxes, ha="center")
        if self.charges_ or self.limit_ is not None:
            ax.legend(fontsize="small", loc="center left", bbox_to_anchor=(1.0, 0.5))
        return self

    def _plot_charges(self, places: np.ndarray, levels: np.ndarray) -> None:
        shown = list(dict.fromkeys(self.labels))[: len(COLOURS)]
        names = [label if label in shown else "others" for label in self.labels]
        # In points; all charges together are about as wide as the panel.
        width = float(np.clip(240.0 / max(len(places), 1), 2.0, 14.0))
        self.charges_ = {}
        for label, colour in [*zip(shown, COLOURS, strict=False), ("others", "0.7")]:
            chosen = [k for k, name in enumerate(names) if name == label]
            if not chosen:
                continue
            xs = places[chosen]
            style = {"color": colour, "linewidth": width, "label": label, "zorder": 2}
            self.charges_[label] = self.ax_.vlines(xs, levels[chosen], levels[1:][chosen], **style)
            # A mark shows charges that add nothing.
            self.ax_.scatter(xs, levels[1:][chosen], s=width**2, marker="_", color=colour, zorder=3)


def load_pyplot() -> Any:
    """Return ``matplotlib.pyplot``, or raise and say how to install it."""
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise ImportError("plots need matplotlib: `pip install skdpot[plot]`.") from error
    return pyplot


def axes_for(ax: Any, **options: Any) -> Any:
    """Return the given axes, or those of a new figure with these options."""
    return load_pyplot().subplots(layout="constrained", **options)[1] if ax is None else ax


def numbers(values: Any) -> np.ndarray:
    """Return values as floats."""
    return np.asarray(values, dtype=np.float64)


def colour_of(number: int) -> str:
    """Return the colour of a curve."""
    return COLOURS[number % len(COLOURS)]
