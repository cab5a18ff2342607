"""The choice between a histogram and moments for the release of groups."""

from skdpot.privacy.checks import check_choice
from skdpot.releases._histogram import HistogramRelease
from skdpot.releases._layout import UnitLayout
from skdpot.releases._moments import MomentsRelease

KINDS = ("auto", "histogram", "moments")


def plan_release(
    kind: str,
    layout: UnitLayout,
    n_groups: int,
    n_records: int,
    epsilon: float,
    delta: float,
    *,
    n_parts: int = 1,
) -> HistogramRelease | MomentsRelease:
    """Return the planned release of groups, made from public quantities only.

    Parameters
    ----------
    kind : {"auto", "histogram", "moments"}
        ``"histogram"`` counts records in the cells of a grid: any shape, in few dimensions.
        ``"moments"`` sums records and their products: means, variances and correlations, in many
        dimensions. ``"auto"`` takes the one with the smaller expected error.
    layout : UnitLayout
        The meaning of the coordinates.
    n_groups, n_records : int
        Numbers of groups and of records.
    epsilon, delta : float
        Budget of one release that protects a record's values and its group; Laplace noise for delta
        0, Gaussian noise above.
    n_parts : int, default=1
        Number of parts that are added up, each with the noise of one release.

    Returns
    -------
    HistogramRelease or MomentsRelease
        Its ``event`` is charged, then ``run((V, codes), source)`` returns the groups, as
        :class:`~skdpot.releases.ReleasedGroups`.

    Raises
    ------
    ValueError
        If `kind` is invalid, or there are too many cells or moments. The error depends only on
        public quantities.

    Notes
    -----
    Errors are squared transport distances of a group of average size. The error of a histogram
    comes from the width of its bins and from the noise of counts. The error of moments comes from
    the noise of means and covariances, and from the part of a shape that they do not describe,
    which no budget reduces. So ``"auto"`` takes a histogram for a large budget and few dimensions,
    and otherwise moments.

    Examples
    --------
    >>> from skdpot.releases import UnitLayout, plan_release
    >>> plan_release("auto", UnitLayout((0, 0), ()), 5, 10_000, epsilon=1.0, delta=1e-5).kind
    'histogram'
    >>> plan_release("auto", UnitLayout((0,) * 8, ()), 5, 10_000, epsilon=1.0, delta=1e-5).kind
    'moments'
    """
    check_choice("kind", kind, KINDS)
    public = layout, n_groups, n_records, epsilon, delta
    if kind == "histogram":
        return HistogramRelease(*public, n_parts)
    moments = MomentsRelease(*public, n_parts)
    if kind == "moments":
        return moments
    try:
        histogram = HistogramRelease(*public, n_parts)
    except ValueError:
        return moments
    return moments if moments.expected_error <= histogram.expected_error else histogram
