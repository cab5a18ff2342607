"""Transport plans between points: what is drawn is what was passed."""

import numpy as np
import pytest
from matplotlib import pyplot
from scipy import sparse
from sklearn.exceptions import NotFittedError

from skdpot import PrivateSinkhornDistance
from skdpot.display import TransportPlanDisplay

PLAN = np.array([[0.5, 0.0, 0.1], [0.0, 0.25, 0.15]])
SOURCES, TARGETS = np.array([[0.0, 0.0], [2.0, 0.0]]), np.array([[0.0, 1.0], [1.0, 1.0], [3.0, 2]])


@pytest.mark.parametrize("form", [np.array, sparse.csr_array])
def test_the_plane_has_a_line_for_each_mass_and_discs_for_the_marginals(form, legend_of):
    display = TransportPlanDisplay.from_plan(form(PLAN), SOURCES, TARGETS, source_name="May")
    drawn = np.zeros(PLAN.shape)
    widths = np.asarray(display.plan_.get_linewidths()) - 0.3
    for (start, end), width in zip(display.plan_.get_segments(), widths, strict=True):
        source = int(np.flatnonzero((SOURCES == start).all(axis=1))[0])
        target = int(np.flatnonzero((TARGETS == end).all(axis=1))[0])
        drawn[source, target] = width
    np.testing.assert_allclose(drawn / drawn.max(), PLAN / PLAN.max(), atol=1e-12)
    areas = np.concatenate([display.source_.get_sizes(), display.target_.get_sizes()])
    totals = np.concatenate([PLAN.sum(axis=1), PLAN.sum(axis=0)])
    np.testing.assert_allclose(areas / areas.max(), totals / totals.max())
    np.testing.assert_array_equal(display.target_.get_offsets(), TARGETS)
    assert legend_of(display.ax_) == ["May", "target"]
    assert display.marginal_axes_ is None


def test_only_the_widest_lines_with_a_share_of_the_mass_are_drawn():
    display = TransportPlanDisplay.from_plan(PLAN, SOURCES, TARGETS, shown_mass=0.7)
    ends = {tuple(segment[1]) for segment in display.plan_.get_segments()}
    assert ends == {tuple(TARGETS[0]), tuple(TARGETS[1])}  # 0.5 and 0.25 of 1
    display.plot(shown_mass=0.5)
    assert len(display.plan_.get_segments()) == 1


def test_an_even_line_is_a_map_with_its_marginals_beside():
    xs, ys = np.array([[2.0], [0.0]]), np.array([[0.0], [1.0], [2.0]])
    display = TransportPlanDisplay.from_plan(PLAN, xs, ys, coordinate_names=["age"])
    # From left to right, sources by ascending age; from below, targets.
    np.testing.assert_allclose(display.plan_.get_array(), PLAN[::-1].T)
    heights, edges, _ = display.source_.get_data()
    np.testing.assert_allclose(heights, [0.4, 0.6])
    np.testing.assert_allclose(edges, [-1.0, 1.0, 3.0])
    np.testing.assert_allclose(display.target_.get_data().values, PLAN.sum(axis=0))
    assert display.target_.orientation == "horizontal"
    labels = display.ax_.get_xlabel(), display.ax_.get_ylabel()
    assert labels == ("age (source)", "age (target)")
    display.figure_.canvas.draw()
    below, above = display.ax_.get_window_extent(), display.marginal_axes_[0].get_window_extent()
    assert above.y0 > below.y1 and above.x0 == pytest.approx(below.x0)


def test_an_uneven_line_has_a_disc_for_each_mass():
    xs, ys = np.array([[0.0], [0.1]]), np.array([[0.0], [1.0], [5.0]])
    display = TransportPlanDisplay.from_plan(PLAN, xs, ys)
    offsets = np.asarray(display.plan_.get_offsets()).tolist()
    expected = {(0.0, 0.0): 0.5, (0.0, 5.0): 0.1, (0.1, 1.0): 0.25, (0.1, 5.0): 0.15}
    areas = dict(zip(map(tuple, offsets), display.plan_.get_sizes(), strict=True))
    assert areas.keys() == expected.keys()
    assert all(areas[at] / areas[0.0, 0.0] == pytest.approx(2 * expected[at]) for at in expected)
    assert display.target_.get_data().values.sum() == pytest.approx(1.0)
    assert display.ax_.get_xlabel() == "source"


@pytest.mark.parametrize("n_features", [1, 2])
def test_plan_of_an_estimator_is_the_released_one(rng, n_features):
    X, groups = rng.random((300, n_features)), np.repeat(["May", "June"], 150)
    estimator = PrivateSinkhornDistance(
        1.0, bounds=(0, 1), mechanism="histogram", grid=4, random_state=0
    ).fit(X, groups)
    axes = pyplot.subplots()[1]
    display = TransportPlanDisplay.from_estimator(estimator, ax=axes)
    assert display.ax_ is axes and display.figure_ is axes.figure
    np.testing.assert_array_equal(display.plan, estimator.plan_)
    assert (display.source_name, display.target_name) == tuple(estimator.groups_)
    if n_features == 1:
        np.testing.assert_allclose(display.plan_.get_array(), estimator.plan_.T)
    else:
        assert len(display.plan_.get_segments()) == np.count_nonzero(estimator.plan_)


def test_estimators_without_a_plan_are_refused(rng):
    estimator = PrivateSinkhornDistance(1.0, bounds=(0, 1), random_state=0)
    with pytest.raises(NotFittedError):
        TransportPlanDisplay.from_estimator(estimator)
    estimator.fit(rng.random((20, 1)), np.repeat([0, 1], 10))
    with pytest.raises(ValueError, match="mechanism='histogram'"):
        TransportPlanDisplay.from_estimator(estimator)


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((PLAN, SOURCES[:1], TARGETS), {}, "source_points must be 2 points"),
        ((PLAN, SOURCES, np.ones((3, 3))), {}, "target_points must be 3 points of one or two"),
        ((PLAN, SOURCES[:, :1], TARGETS), {}, "as many coordinates"),
        ((-PLAN, SOURCES, TARGETS), {}, "at least 0"),
        ((0 * PLAN, SOURCES, TARGETS), {}, "some mass"),
        (([0.5], SOURCES, TARGETS), {}, r"shape \(n_sources, n_targets\)"),
        ((PLAN, SOURCES, TARGETS), {"shown_mass": 0.0}, "shown_mass must be above 0"),
    ],
)
def test_wrong_plans_are_refused(arguments, options, message):
    with pytest.raises(ValueError, match=message):
        TransportPlanDisplay.from_plan(*arguments, **options)
