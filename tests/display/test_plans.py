"""The plot of plans: what is drawn is what was passed."""

import numpy as np
import pandas as pd
import pytest
from matplotlib import pyplot
from matplotlib.colors import to_rgb
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError

from skdpot import PrivateADMMTransport, PrivateSinkhornDistance
from skdpot.display import PlanDisplay


class Fitted(BaseEstimator):
    """What the display needs of an estimator of allocations."""

    def fit(self, X, y=None):
        return self


def fitted(**attributes):
    estimator = Fitted()
    vars(estimator).update(attributes)
    return estimator


PLANS = {
    "4 x 30": np.arange(120).reshape(30, 4).T % 7 * 0.5,
    "1 x 1": np.array([[2.0]]),
    "50 x 60": np.eye(50, 60),
}
PLAN = np.array([[0.5, 0.0, 0.1], [0.0, 0.25, 0.15]])
SOURCES, TARGETS = np.array([[0.0, 0.0], [2.0, 0.0]]), np.array([[0.0, 1.0], [1.0, 1.0], [3.0, 2]])
PLANE = {"source_points": SOURCES, "target_points": TARGETS}


def texts_of(ax):
    return [text.get_text() for text in ax.texts]


def drawn_of(display):
    """Return the widths of the lines, in the places of their sources and targets."""
    nodes = display.source_points_, display.target_points_
    places = [np.asarray(points.get_offsets()).round(9).tolist() for points in nodes]
    drawn = np.zeros([len(of) for of in places])
    segments, widths = display.lines_.get_segments(), display.lines_.get_linewidths()
    for segment, width in zip(segments, widths, strict=True):
        start, end = np.round(segment, 9).tolist()
        drawn[places[0].index(start), places[1].index(end)] = width
    return drawn


def assert_drawn(display, plan):
    drawn = drawn_of(display)
    np.testing.assert_allclose(drawn / drawn.max(), plan / plan.max(), atol=1e-12)
    areas = np.concatenate([display.source_points_.get_sizes(), display.target_points_.get_sizes()])
    totals = np.concatenate([plan.sum(axis=1), plan.sum(axis=0)])
    larger = areas > areas.min()
    if larger.any():
        ratios = areas[larger] / totals[larger]
        np.testing.assert_allclose(ratios, ratios[0])


@pytest.mark.parametrize("form", [np.array, sparse.csr_array, sparse.coo_matrix])
@pytest.mark.parametrize("kind", PLANS)
def test_plan_has_a_line_for_each_amount_and_nodes_of_the_totals(kind, form):
    display = PlanDisplay.from_plan(form(PLANS[kind]))
    display.figure_.canvas.draw()
    assert_drawn(display, PLANS[kind])
    for x, points in enumerate((display.source_points_, display.target_points_)):
        xs, ys = np.asarray(points.get_offsets()).T
        assert (xs == x).all() and (np.diff(ys) < 0).all()
    alphas = display.lines_.get_colors()[:, 3]
    assert (np.diff(alphas) >= 0).all() and alphas.max() <= 1
    names = texts_of(display.ax_)
    assert ("60 nodes" in names) == (kind == "50 x 60")
    assert ("29" in names) == (kind == "4 x 30")


def test_plan_nodes_do_not_overlap_and_sources_have_colours():
    display = PlanDisplay.from_plan(PLANS["4 x 30"])
    display.figure_.canvas.draw()
    for points in (display.source_points_, display.target_points_):
        ys = display.ax_.transData.transform(points.get_offsets())[:, 1]
        radii = np.sqrt(points.get_sizes()) / 2 * display.figure_.dpi / 72
        assert (-np.diff(ys) > radii[1:] + radii[:-1]).all()
    colours = {tuple(colour[:3]) for colour in display.lines_.get_colors()}
    assert len(colours) == 4
    assert colours == {tuple(of[:3]) for of in display.source_points_.get_facecolors()}
    many = PlanDisplay.from_plan(np.ones((9, 2)))
    assert {tuple(colour[:3]) for colour in many.lines_.get_colors()} == {to_rgb("#0072B2")}


def test_an_empty_plan_says_so():
    for plan in (np.zeros((2, 3)), sparse.csr_array((2, 3))):
        display = PlanDisplay.from_plan(plan)
        display.figure_.canvas.draw()
        assert "nothing is allocated" in texts_of(display.ax_)
        assert not len(display.lines_.get_segments())
        assert len(display.source_points_.get_offsets()) == 2


def test_plan_of_an_allocation_has_the_names_of_its_columns(legend_of):
    names = np.array(["north", "south"], dtype=object)
    estimator = fitted(plan_=np.eye(3, 2), feature_names_in_=names)
    axes = pyplot.subplots()[1]
    display = PlanDisplay.from_estimator(estimator, target_names=list("abc"), ax=axes)
    assert display.ax_ is axes
    assert {"north", "south", "a", "b", "c", "Sources", "Targets"} <= set(texts_of(axes))
    assert legend_of(axes) == ["1", "0.5", "0.1"]
    own = PlanDisplay.from_estimator(estimator, source_names=["x", "y"])
    assert "x" in texts_of(own.ax_) and "north" not in texts_of(own.ax_)
    X = np.array([[5.0, 1.0], [4.0, 2.0], [1.0, 3.0]])
    for form in (np.array, sparse.csr_array):
        model = PrivateADMMTransport(None, source_bounds=(0, 2)).fit(form(X))
        plan = model.plan_ if form is np.array else model.plan_.toarray()
        assert_drawn(PlanDisplay.from_estimator(model), plan.T)


@pytest.mark.parametrize("form", [np.array, sparse.csr_array])
def test_the_plane_has_nodes_where_they_are(form, legend_of):
    display = PlanDisplay.from_plan(
        form(PLAN), **PLANE, side_names=("May", "June"), coordinate_names=("east", "north")
    )
    assert_drawn(display, PLAN)
    np.testing.assert_array_equal(display.target_points_.get_offsets(), TARGETS)
    assert not len(display.target_points_.get_facecolors())
    assert legend_of(display.ax_) == ["May", "June"]
    assert (display.ax_.get_xlabel(), display.ax_.get_ylabel()) == ("east", "north")
    display.figure_.canvas.draw()


def test_only_the_widest_lines_with_a_share_of_the_mass_are_drawn():
    display = PlanDisplay.from_plan(PLAN, **PLANE, shown_mass=0.7)
    ends = {tuple(segment[1]) for segment in display.lines_.get_segments()}
    assert ends == {tuple(TARGETS[0]), tuple(TARGETS[1])}  # 0.5 and 0.25 of 1
    display.plot(shown_mass=0.5)
    assert len(display.lines_.get_segments()) == 1


def test_points_of_one_coordinate_are_heights():
    xs, ys = np.array([[1.0], [5.0]]), np.array([[0.0], [1.0], [4.0]])
    display = PlanDisplay.from_plan(PLAN, source_points=xs, target_points=ys)
    assert_drawn(display, PLAN)
    heights = [np.asarray(of.get_offsets())[:, 1] for of in
               (display.source_points_, display.target_points_)]  # fmt: skip
    np.testing.assert_allclose(heights[0], [0.2, 1.0])
    np.testing.assert_allclose(heights[1], [0.0, 0.2, 0.8])
    assert set(texts_of(display.ax_)) == {"Sources", "Targets"}


@pytest.mark.parametrize("n_features", [1, 2])
def test_plan_of_a_distance_is_the_released_one(rng, n_features):
    names = ["east", "north"][:n_features]
    X = pd.DataFrame(rng.random((300, n_features)), columns=names)
    estimator = PrivateSinkhornDistance(
        1.0, bounds=(0, 1), mechanism="histogram", grid=4, random_state=0
    ).fit(X, np.repeat(["May", "June"], 150))
    axes = pyplot.subplots()[1]
    display = PlanDisplay.from_estimator(estimator, ax=axes)
    assert display.ax_ is axes and display.figure_ is axes.figure
    assert_drawn(display, estimator.plan_)
    assert display.side_names == tuple(estimator.groups_)
    if n_features == 2:
        assert [axes.get_xlabel(), axes.get_ylabel()] == names


def test_estimators_without_a_plan_are_refused(rng):
    estimator = PrivateSinkhornDistance(1.0, bounds=(0, 1), random_state=0)
    for unfitted in (estimator, Fitted()):
        with pytest.raises(NotFittedError):
            PlanDisplay.from_estimator(unfitted)
    estimator.fit(rng.random((20, 1)), np.repeat([0, 1], 10))
    with pytest.raises(ValueError, match="mechanism='histogram'"):
        PlanDisplay.from_estimator(estimator)


@pytest.mark.parametrize(
    ("plan", "options", "message"),
    [
        ([1.0, 2.0], {}, "must have shape"),
        (np.zeros((0, 2)), {}, "must have shape"),
        ([[1.0, -1.0]], {}, "at least 0"),
        ([[np.nan]], {}, "finite"),
        ([[1.0]], {"target_names": ["a", "b"]}, "target_names must name 1 targets, got 2"),
        ([[1.0]], {"source_names": []}, "source_names must name 1 sources, got 0"),
        (PLAN, PLANE | {"source_points": SOURCES[:1]}, "as many source_points"),
        (PLAN, PLANE | {"target_points": np.ones((3, 3))}, "target_points must have one or two"),
        (PLAN, PLANE | {"source_points": SOURCES[:, :1]}, "as many coordinates"),
        (PLAN, PLANE | {"shown_mass": 0.0}, "shown_mass must be above 0"),
    ],
)
def test_wrong_plans_are_refused(plan, options, message):
    with pytest.raises(ValueError, match=message):
        PlanDisplay.from_plan(plan, **options)
