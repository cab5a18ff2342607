"""The plots of allocations: what is drawn is what was passed."""

import numpy as np
import pytest
from matplotlib import pyplot
from matplotlib.colors import to_rgb
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError

from skdpot.display import AllocationConvergenceDisplay, AllocationPlanDisplay


class Fitted(BaseEstimator):
    """What the displays need of an estimator."""

    def fit(self, X, y=None):
        return self


def fitted(**attributes):
    estimator = Fitted()
    vars(estimator).update(attributes)
    return estimator


HISTORY = {
    "n_iter": np.array([20, 40, 60]),
    "eta": np.ones(3),
    "primal_residual": np.array([2.0, 0.5, 0.01]),
    "dual_residual": np.array([np.inf, 0.3, 0.0]),
    "welfare": np.array([6.0, 7.8, 7.5]),
    "bound": np.array([9.0, 8.0, 8.5]),
}


def texts_of(ax):
    return [text.get_text() for text in ax.texts]


def test_convergence_shows_residuals_and_welfare_below_its_bound(legend_of):
    display = AllocationConvergenceDisplay.from_estimator(fitted(history_=HISTORY))
    names = ["primal_residual", "dual_residual", "welfare", "bound"]
    for line, name in zip(display.lines_, names, strict=True):
        values = HISTORY[name]
        np.testing.assert_array_equal(line.get_xdata(), HISTORY["n_iter"])
        np.testing.assert_array_equal(
            line.get_ydata(), np.where(np.isinf(values), np.nan, values), strict=True
        )
    assert (display.ax_.get_yscale(), display.welfare_ax_.get_yscale()) == ("log", "linear")
    assert legend_of(display.ax_) == ["primal residual", "dual residual"]
    assert legend_of(display.welfare_ax_) == ["welfare of the plan", "upper bound"]
    # The best plan and the lowest bound, of whatever rounds.
    title = display.welfare_ax_.get_legend().get_title().get_text()
    assert title == "proven gap: 2.5e-02"
    assert display.welfare_ax_.get_xlabel() == "Round" and not display.ax_.get_xlabel()
    assert display.figure_ is display.ax_.figure


@pytest.mark.parametrize("missing", ["absent", "nan"])
def test_convergence_of_private_fits_has_no_welfare(missing):
    history = {name: of for name, of in HISTORY.items() if name not in ("welfare", "bound")}
    if missing == "nan":
        history |= {"welfare": np.full(3, np.nan), "bound": np.full(3, np.nan)}
    display = AllocationConvergenceDisplay.from_estimator(fitted(history_=history))
    assert display.welfare_ax_ is None
    assert len(display.figure_.axes) == 1
    assert len(display.lines_) == 2
    assert display.ax_.get_xlabel() == "Round"


def test_convergence_goes_where_it_is_told():
    display = AllocationConvergenceDisplay.from_estimator(fitted(history_=HISTORY))
    figure, axes = pyplot.subplots(1, 3)
    assert display.plot(axes[:2]) is display
    assert (display.ax_, display.welfare_ax_) == tuple(axes[:2])
    display.plot(axes[2])
    assert display.ax_ is axes[2]
    assert display.welfare_ax_.figure is figure
    figure.canvas.draw()
    above, below = display.ax_.get_position(), display.welfare_ax_.get_position()
    assert below.y1 < above.y0
    assert below.x0 == pytest.approx(above.x0)
    with pytest.raises(ValueError, match="grid of subplots"):
        display.plot(figure.add_axes((0, 0, 1, 1)))


def test_residuals_that_vanish_are_shown_without_logarithms():
    display = AllocationConvergenceDisplay([1], [0.0], [0.0]).plot()
    assert display.ax_.get_yscale() == "linear"
    assert display.lines_[0].get_marker() == "o"
    display.figure_.canvas.draw()


PLANS = {
    "4 x 30": np.arange(120).reshape(30, 4) % 7 * 0.5,
    "1 x 1": np.array([[2.0]]),
    "60 x 50": np.eye(60, 50),
}


@pytest.mark.parametrize("form", [np.array, sparse.csr_array, sparse.coo_matrix])
@pytest.mark.parametrize("kind", PLANS)
def test_plan_has_a_line_for_each_amount_and_nodes_of_the_totals(kind, form):
    plan = PLANS[kind]
    display = AllocationPlanDisplay.from_plan(form(plan))
    display.figure_.canvas.draw()
    heights = [
        np.asarray(points.get_offsets())[:, 1]
        for points in (display.target_points_, display.source_points_)
    ]
    for ys, n_nodes in zip(heights, plan.shape, strict=True):
        assert len(ys) == n_nodes
        assert (np.diff(ys) < 0).all()
    drawn = np.zeros(plan.shape)
    widths = display.lines_.get_linewidths()
    for segment, width in zip(display.lines_.get_segments(), widths, strict=True):
        (x0, y0), (x1, y1) = segment
        assert (x0, x1) == (0.0, 1.0)
        drawn[list(heights[0]).index(y1), list(heights[1]).index(y0)] = width
    np.testing.assert_allclose(drawn / drawn.max(), plan / plan.max(), rtol=1e-12)
    alphas = display.lines_.get_colors()[:, 3]
    assert (np.diff(alphas) >= 0).all() and alphas.max() <= 1
    areas = np.concatenate([display.target_points_.get_sizes(), display.source_points_.get_sizes()])
    totals = np.concatenate([plan.sum(axis=1), plan.sum(axis=0)])
    larger = areas > areas.min()
    if larger.any():
        ratios = areas[larger] / totals[larger]
        np.testing.assert_allclose(ratios, ratios[0])
    names = texts_of(display.ax_)
    assert ("60 nodes" in names) == (kind == "60 x 50")
    assert ("29" in names) == (kind == "4 x 30")


def test_plan_nodes_do_not_overlap_and_sources_have_colours():
    display = AllocationPlanDisplay.from_plan(PLANS["4 x 30"])
    display.figure_.canvas.draw()
    for points in (display.source_points_, display.target_points_):
        ys = display.ax_.transData.transform(points.get_offsets())[:, 1]
        radii = np.sqrt(points.get_sizes()) / 2 * display.figure_.dpi / 72
        assert (-np.diff(ys) > radii[1:] + radii[:-1]).all()
    colours = {tuple(colour[:3]) for colour in display.lines_.get_colors()}
    assert len(colours) == 4
    assert colours == {tuple(of[:3]) for of in display.source_points_.get_facecolors()}
    many = AllocationPlanDisplay.from_plan(np.ones((2, 9)))
    assert {tuple(colour[:3]) for colour in many.lines_.get_colors()} == {to_rgb("#0072B2")}


def test_an_empty_plan_says_so():
    for plan in (np.zeros((3, 2)), sparse.csr_array((3, 2))):
        display = AllocationPlanDisplay.from_plan(plan)
        display.figure_.canvas.draw()
        assert "nothing is allocated" in texts_of(display.ax_)
        assert not len(display.lines_.get_segments())
        assert len(display.source_points_.get_offsets()) == 2


def test_plan_of_an_estimator_has_the_names_of_its_columns(legend_of):
    names = np.array(["north", "south"], dtype=object)
    estimator = fitted(plan_=np.eye(3, 2), feature_names_in_=names)
    axes = pyplot.subplots()[1]
    display = AllocationPlanDisplay.from_estimator(estimator, target_names=list("abc"), ax=axes)
    assert display.ax_ is axes
    assert {"north", "south", "a", "b", "c"} <= set(texts_of(axes))
    assert legend_of(axes) == ["1", "0.5", "0.1"]
    own = AllocationPlanDisplay.from_estimator(estimator, source_names=["x", "y"])
    assert "x" in texts_of(own.ax_) and "north" not in texts_of(own.ax_)


@pytest.mark.parametrize(
    ("plan", "names", "message"),
    [
        ([1.0, 2.0], {}, "matrix of shape"),
        (np.zeros((0, 2)), {}, "matrix of shape"),
        ([[1.0, -1.0]], {}, "at least 0"),
        ([[np.nan]], {}, "finite"),
        ([[1.0]], {"target_names": ["a", "b"]}, "target_names must name 1 targets, got 2"),
        ([[1.0]], {"source_names": []}, "source_names must name 1 sources, got 0"),
    ],
)
def test_wrong_plans_are_refused(plan, names, message):
    with pytest.raises(ValueError, match=message):
        AllocationPlanDisplay.from_plan(plan, **names)


@pytest.mark.parametrize("display", [AllocationConvergenceDisplay, AllocationPlanDisplay])
def test_estimators_must_be_fitted(display):
    with pytest.raises(NotFittedError):
        display.from_estimator(Fitted())
