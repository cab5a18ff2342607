"""The plot of images: samples of generators, side by side."""

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from numbers import Integral
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from ._style import numbers, panels_for

# Gap between images, as a share of their height; at least one pixel.
_GAP = 0.08
_LARGEST_PANEL = 12.0


@dataclass(eq=False, repr=False)
class SampleGridDisplay:
    """Images, a class a column; several generators side by side.

    Images of a generator that was fitted privately are protected by its guarantee, so you may
    publish them. Real images beside them are not protected. Create it with :meth:`from_estimator`
    or :meth:`from_samples`.

    Parameters
    ----------
    samples : sequence of ndarray of shape (n_samples, n_features)
        Flattened images of each block.
    targets : sequence of (ndarray of shape (n_samples,) or None)
        Their labels; None has as many columns as there are rows.
    image_shape : tuple of int
        (height, width) or (height, width, channels), with 1, 3 or 4 channels, in which the images
        were flattened.
    labels : sequence of (str or None)
        Names of the blocks.
    bounds : tuple (low, high), default=None
        Values of the darkest and brightest colour; None is the range of all blocks.
    classes : sequence, default=None
        Labels that have a column; None is all that are in the targets, in order.

    Attributes
    ----------
    axes_ : ndarray of matplotlib Axes, shape (n_blocks,)
        Where each block was plotted.
    figure_ : matplotlib Figure
        The figure of these axes.
    images_ : list of matplotlib AxesImage
        One image per block, with gaps between samples.

    See Also
    --------
    skdpot.DPSinkhornGenerator : Generates images under differential privacy.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from skdpot.display import SampleGridDisplay
    >>> X, y = load_digits(return_X_y=True)
    >>> display = SampleGridDisplay.from_samples(X[:200], y[:200], image_shape=(8, 8))
    >>> display.images_[0].get_array().shape[1]  # ten digits of 8 pixels, and what is between
    91
    """

    samples: Sequence[Any]
    targets: Sequence[Any]
    _: KW_ONLY
    image_shape: tuple[int, ...]
    labels: Sequence[str | None]
    bounds: tuple[Any, Any] | None = None
    classes: Sequence[Any] | None = None

    @classmethod
    def from_estimator(
        cls,
        generator: Any,
        n_samples_per_class: int = 8,
        *,
        prototypes: bool = False,
        image_shape: tuple[int, ...] | None = None,
        bounds: tuple[Any, Any] | None = None,
        cmap: str = "gray",
        ax: Any = None,
    ) -> "SampleGridDisplay":
        """Draw samples of fitted generators, which costs nothing, and plot them.

        Parameters
        ----------
        generator : DPSinkhornGenerator, or dict of str to DPSinkhornGenerator
            Fitted, or several by their names.
        n_samples_per_class : int, default=8
            Number of images of each class; without classes, number of rows and columns.
        prototypes : bool, default=False
            Whether to show, beside the samples, the nearest prototype of each sample in its class:
            the released mean of a cluster. No private image is read.
        image_shape : tuple of int, default=None
            (height, width) or (height, width, channels); None is the generator's.
        bounds : tuple (low, high), default=None
            Values of the darkest and brightest colour; None is the generator's.
        cmap : str, default="gray"
            Colours of images of one channel.
        ax : matplotlib Axes or sequence of them, default=None
            See :meth:`plot`.

        Returns
        -------
        SampleGridDisplay
            The plot.

        Raises
        ------
        NotFittedError
            If a generator is not fitted.
        TypeError
            If a value is not a generator.
        ValueError
            If the number is wrong, or there is no shape of images, or of prototypes.
        """
        if not isinstance(n_samples_per_class, Integral) or n_samples_per_class < 1:
            raise ValueError(
                f"n_samples_per_class must be a positive integer, got {n_samples_per_class!r}."
            )
        generators = generator if isinstance(generator, Mapping) else {None: generator}
        for name, one in generators.items():
            _check_draws(one, name)
        first = next(iter(generators.values()))
        if image_shape is None:
            image_shape = getattr(first, "image_shape", None)
        if image_shape is None:
            raise ValueError(
                "the generator has no image_shape; give one here: (height, width) or "
                "(height, width, channels)."
            )
        blocks = {}
        for name, one in generators.items():
            blocks[name] = drawn = _samples_of(one, int(n_samples_per_class))
            if prototypes:
                title = "nearest prototypes"
                blocks[title if name is None else f"{name}: {title}"] = _nearest(one, *drawn)
        return cls.from_samples(
            blocks,
            image_shape=image_shape,
            n_samples_per_class=None,
            bounds=bounds or getattr(first, "bounds", None),
            cmap=cmap,
            ax=ax,
        )

    @classmethod
    def from_samples(
        cls,
        X: Any,
        y: Any = None,
        *,
        image_shape: tuple[int, ...],
        n_samples_per_class: int | None = 8,
        bounds: tuple[Any, Any] | None = None,
        classes: Sequence[Any] | None = None,
        cmap: str = "gray",
        ax: Any = None,
    ) -> "SampleGridDisplay":
        """Plot images.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), or dict of str to (array-like or tuple)
            Flattened images; or several blocks of them by their names, each X or (X, y).
        y : array-like of shape (n_samples,), default=None
            Their labels.
        image_shape : tuple of int
            (height, width) or (height, width, channels).
        n_samples_per_class : int, default=8
            Number of images shown of each class (the first ones); without labels, number of rows
            and columns. None shows all.
        bounds : tuple (low, high), default=None
            Values of the darkest and brightest colour; None is the least and the largest value.
        classes : sequence, default=None
            Labels that have a column; None is all that there are, in order.
        cmap : str, default="gray"
            Colours of images of one channel.
        ax : matplotlib Axes or sequence of them, default=None
            See :meth:`plot`.

        Returns
        -------
        SampleGridDisplay
            The plot.

        Raises
        ------
        ValueError
            If images do not have the shape, or there is not one label for each.
        """
        blocks = X if isinstance(X, Mapping) else {None: (X, y)}
        pairs = [block if isinstance(block, tuple) else (block, None) for block in blocks.values()]
        chosen = [_first_of_each(images, targets, n_samples_per_class) for images, targets in pairs]
        display = cls(
            [images for images, _ in chosen],
            [targets for _, targets in chosen],
            image_shape=image_shape,
            labels=list(blocks),
            bounds=bounds,
            classes=classes,
        )
        return display.plot(ax, cmap=cmap)

    def plot(self, ax: Any = None, *, cmap: str = "gray") -> "SampleGridDisplay":
        """Plot it again.

        Parameters
        ----------
        ax : matplotlib Axes or sequence of them, default=None
            Where to plot: one for each block, or one that they all replace. None makes a new
            figure.
        cmap : str, default="gray"
            Colours of images of one channel.

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
        shape = _checked_shape(self.image_shape)
        samples = [_checked_images(X, shape) for X in self.samples]
        low, high = self._range(samples)
        gap = max(1, round(_GAP * shape[0]))
        blocks = [
            _columns(images, targets, self.classes)
            for images, targets in zip(samples, self.targets, strict=True)
        ]
        mosaics = [_mosaic(columns, gap) for columns, _ in blocks]
        height, width = np.max([mosaic.shape[:2] for mosaic in mosaics], axis=0)
        scale = min(0.45 / shape[0], _LARGEST_PANEL / max(height, width))
        size = scale * width + 0.2, scale * height + 0.4
        self.axes_ = panels_for(ax, 1, len(mosaics), panel_size=size)[0]
        self.figure_ = self.axes_[0].figure
        self.images_ = []
        for place, mosaic, (_, names), label in zip(
            self.axes_, mosaics, blocks, self.labels, strict=True
        ):
            self.images_.append(_show(place, mosaic, (low, high), cmap))
            middles = gap + np.arange(len(names)) * (shape[1] + gap) + (shape[1] - 1) / 2
            place.set_xticks(middles, names)
            place.tick_params(length=0, labeltop=True, labelbottom=False)
            place.set_yticks([])
            place.spines[:].set_visible(False)
            place.set_title(label or "")
        return self

    def _range(self, samples: Sequence[np.ndarray]) -> tuple[float, float]:
        if self.bounds is None:
            return min(sample.min() for sample in samples), max(sample.max() for sample in samples)
        low, high = (numbers(bound) for bound in self.bounds)
        return float(low.min()), float(high.max())


def _check_draws(generator: Any, name: Any) -> None:
    """Raise if an object draws no samples; it may be private images, which are not quoted."""
    if not all(callable(getattr(generator, method, None)) for method in ("fit", "sample")):
        place = "" if name is None else f" for {name!r}"
        raise TypeError(
            f"generators are fitted estimators that sample, got {type(generator).__name__}{place}; "
            "show real images with from_samples."
        )


def _samples_of(generator: Any, n_samples: int) -> tuple[Any, Any]:
    """Return samples of a generator, equally many of each class, and their labels."""
    check_is_fitted(generator)
    classes = getattr(generator, "classes_", None)
    if classes is None:
        return generator.sample(n_samples**2), None
    return generator.sample(y=np.repeat(classes, n_samples))


def _nearest(generator: Any, X: np.ndarray, y: Any) -> tuple[Any, Any]:
    """Return the nearest prototype of each sample, among those of its class."""
    prototypes = generator.prototypes()
    centres, labels = (prototypes, None) if y is None else prototypes
    nearest = np.empty(np.shape(X))
    for label in [None] if y is None else np.unique(y):
        rows, candidates = (
            (slice(None), centres) if y is None else (y == label, centres[labels == label])
        )
        distances = np.square(X[rows, None] - candidates).sum(axis=2)
        nearest[rows] = candidates[distances.argmin(axis=1)]
    return nearest, y


def _first_of_each(X: Any, y: Any, n_samples: int | None) -> tuple[np.ndarray, Any]:
    """Return the first images of every class; all of them if no number is given."""
    X = np.asarray(X)
    if y is None:
        return X if n_samples is None else X[: n_samples**2], None
    y = np.asarray(y)
    if y.shape != X.shape[:1]:
        raise ValueError(f"y must have one label for each of {len(X)} images, got shape {y.shape}.")
    rows = np.concatenate([np.flatnonzero(y == label)[:n_samples] for label in np.unique(y)])
    return X[rows], y[rows]


def _checked_shape(shape: Any) -> tuple[int, int, int]:
    """Return height, width and channels."""
    sizes = tuple(shape) if np.ndim(shape) == 1 else ()
    if len(sizes) == 2:
        sizes = (*sizes, 1)
    if len(sizes) != 3 or min(sizes) < 1 or sizes[2] not in (1, 3, 4):
        raise ValueError(
            "image_shape must be (height, width), or (height, width, channels) with 1, 3 or 4 "
            f"channels, got {shape!r}."
        )
    return sizes[0], sizes[1], sizes[2]


def _checked_images(X: Any, shape: tuple[int, int, int]) -> np.ndarray:
    X = numbers(X)
    n_pixels = int(np.prod(shape))
    if not len(X) or X.size != len(X) * n_pixels:
        raise ValueError(
            f"images of shape {shape[:2] if shape[2] == 1 else shape} have {n_pixels} values, got "
            f"an array of shape {X.shape}."
        )
    return X.reshape(len(X), *shape)


def _columns(
    images: np.ndarray, targets: Any, classes: Sequence[Any] | None
) -> tuple[list[np.ndarray], list[str]]:
    """Return the images of each column, and its title."""
    if targets is None:
        n_columns = int(np.ceil(np.sqrt(len(images))))
        columns = [images[k::n_columns] for k in range(n_columns)]
        return [column for column in columns if len(column)], []
    targets = np.asarray(targets)
    if targets.shape != images.shape[:1]:
        raise ValueError(f"{len(images)} images need as many labels, got shape {targets.shape}.")
    labels = np.unique(targets) if classes is None else classes
    return [images[targets == label] for label in labels], [str(label) for label in labels]


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


def _show(place: Any, mosaic: np.ndarray, limits: tuple[float, float], cmap: str) -> Any:
    """Draw a mosaic, with NaN in white."""
    low, high = limits
    if mosaic.shape[2] == 1:
        return place.imshow(mosaic[:, :, 0], cmap=cmap, vmin=low, vmax=high)
    shares = np.clip((mosaic - low) / (high - low if high > low else 1.0), 0.0, 1.0)
    return place.imshow(np.where(np.isnan(shares), 1.0, shares))
