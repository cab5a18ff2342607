"""Users' distributions and their projections: what is drawn is what samplers project to."""

import numpy as np
import pytest
from matplotlib import pyplot
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError

from skdpot import (
    KLProjectionSampler,
    SphericalProjectionSampler,
    WassersteinProjectionSampler,
)
from skdpot.display import ProjectedDistributionsDisplay

LINE = np.array([[0.0], [1.0], [2.0], [4.0]])
GRID = np.array([[x, y] for y in (0.0, 1.0) for x in (0.0, 1.0, 3.0)])
SCATTERED = np.array([[0.0, 0.0], [1.0, 0.5], [2.0, 3.0]])


def shown(distributions, projections, *, input_points, output_points=None, **options):
    """Plot projections of one mechanism."""
    if output_points is not None:
        options["output_points"] = [output_points]
    display = ProjectedDistributionsDisplay(
        distributions, [projections], input_points=input_points, labels=["one"], **options
    )
    return display.plot()


def heights_of(bars):
    return [bar.get_height() for bar in bars]


def titles_of(axes):
    return [ax.get_title() for ax in np.ravel(axes)]


@pytest.fixture
def weights(rng):
    return rng.random((2, 4))


def test_a_line_has_bars_of_the_users_and_of_each_projection(weights):
    samplers = {
        f"epsilon {epsilon}": KLProjectionSampler(epsilon, input_points=LINE).fit(weights)
        for epsilon in (0.5, 2.0)
    }
    display = ProjectedDistributionsDisplay.from_estimator(
        samplers, sparse.csr_array(weights), coordinate_names=["metres"]
    )
    assert display.axes_.shape == display.artists_.shape == (3, 2)
    for user, row in enumerate(weights):
        expected = [row / row.sum(), *(one.project(row[None])[0] for one in samplers.values())]
        for bars, masses in zip(display.artists_[:, user], expected, strict=True):
            np.testing.assert_allclose(heights_of(bars), masses)
            np.testing.assert_allclose([bar.get_center()[0] for bar in bars], LINE[:, 0])
    costs = [-one.score(weights[[0]]) for one in samplers.values()]
    assert titles_of(display.axes_[:, 0]) == [
        "user 0",
        *(f"{name}\ncost {cost:.3g}" for name, cost in zip(samplers, costs, strict=True)),
    ]
    assert [ax.get_xlabel() for ax in display.axes_[:, 0]] == ["", "", "metres"]
    # The bounds between which the projection lies.
    lower, upper = (line.get_ydata() for line in display.axes_[1, 0].lines)
    sampler = samplers["epsilon 0.5"]
    np.testing.assert_allclose(lower, sampler.base_measure_)
    np.testing.assert_allclose(upper, np.exp(0.5) * sampler.base_measure_)


def test_columns_without_points_are_on_a_line(weights):
    sampler = KLProjectionSampler(1.0).fit(weights)
    display = ProjectedDistributionsDisplay.from_estimator(sampler, weights[:1], user_names=["she"])
    places = [bar.get_center()[0] for bar in display.artists_[0, 0]]
    np.testing.assert_allclose(places, [0, 1, 2, 3])
    assert titles_of(display.axes_)[0] == "she"
    assert titles_of(display.axes_)[1].startswith("KLProjectionSampler")


@pytest.mark.parametrize("order", [np.arange(6), np.array([3, 0, 5, 1, 4, 2])])
def test_a_grid_is_a_map_whatever_the_order_of_its_points(rng, order):
    user, projection = rng.dirichlet(np.ones(6), 2)
    display = shown(user[None, order], projection[None, order], input_points=GRID[order])
    assert display.axes_.shape == (1, 2)
    for mesh, masses in zip(display.artists_[0], (user, projection), strict=True):
        np.testing.assert_allclose(mesh.get_array(), masses.reshape(2, 3))
        assert mesh.get_clim() == (0.0, max(user.max(), projection.max()))
    assert display.axes_[0, 0].get_aspect() == 1.0
    display.figure_.canvas.draw()


def test_scattered_points_are_discs_of_areas_proportional_to_masses(rng):
    user, projection = rng.dirichlet(np.ones(3)), rng.dirichlet(np.ones(2))
    display = shown(
        user[None],
        projection[None],
        input_points=SCATTERED,
        output_points=SCATTERED[:2] + 0.5,
        coordinate_names=["east", "north"],
    )
    discs = display.artists_[0]
    np.testing.assert_array_equal(discs[1].get_offsets(), SCATTERED[:2] + 0.5)
    areas = np.concatenate([of.get_sizes() for of in discs])
    masses = np.concatenate([user, projection])
    np.testing.assert_allclose(areas / areas.max(), masses / masses.max())
    assert [ax.get_ylabel() for ax in display.axes_[0]] == ["north", ""]


def test_it_goes_where_it_is_told():
    display = shown([[1.0, 1.0]], [[1.0, 3.0]], input_points=[[0.0], [1.0]])
    figure, axes = pyplot.subplots(1, 3)
    assert display.plot(axes[:2]) is display
    assert list(display.axes_[:, 0]) == list(axes[:2])
    display.plot(axes[2])
    assert display.figure_ is figure and len(figure.axes) == 5
    assert not axes[2].axison
    with pytest.raises(ValueError, match="ax must be 2 axes"):
        display.plot(axes)
    with pytest.raises(ValueError, match="grid of subplots"):
        display.plot(figure.add_axes((0, 0, 1, 1)))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([[1.0]], [[1.0, 1.0]]), r"distributions must have shape \(n_users, 2\)"),
        (([[1.0, -1.0]], [[1.0, 1.0]]), "distributions must be finite"),
        (([[1.0, 1.0]], [[0.0, 0.0]]), "one must be finite and at least 0, and no row"),
        (([[1.0, 1.0]], [[1.0, 1.0]] * 2), "of the same users"),
    ],
)
def test_wrong_masses_are_refused(arguments, message):
    users, projection = arguments
    with pytest.raises(ValueError, match=message):
        shown(users, projection, input_points=[[0.0], [1.0]])


def test_outputs_of_a_cost_matrix_are_where_it_is_said(rng):
    weights = rng.random((2, 3))
    sampler = WassersteinProjectionSampler(cost_matrix=rng.random((3, 2))).fit(weights)
    show = ProjectedDistributionsDisplay.from_estimator
    with pytest.raises(
        ValueError, match=r"output points have 1 coord.*, input_points 2: give output_points"
    ):
        show(sampler, weights, input_points=SCATTERED)
    display = show(sampler, weights, input_points=SCATTERED, output_points=SCATTERED[:2] + 0.5)
    np.testing.assert_array_equal(display.artists_[0, 0].get_offsets(), SCATTERED)
    np.testing.assert_array_equal(display.artists_[0, 1].get_offsets(), SCATTERED[:2] + 0.5)
    with pytest.raises(ValueError, match=r"must have shape \(n_users, 3\)"):
        show(sampler, weights, input_points=SCATTERED, output_points=SCATTERED)


def test_what_cannot_be_shown_is_refused(weights):
    solid = KLProjectionSampler(1.0, input_points=np.eye(4)).fit(weights)
    with pytest.raises(ValueError, match="one or two coordinates"):
        ProjectedDistributionsDisplay.from_estimator(solid, weights)
    sampler = KLProjectionSampler(1.0).fit(weights)
    with pytest.raises(ValueError, match="1 to 12 users"):
        ProjectedDistributionsDisplay.from_estimator(sampler, np.ones((13, 4)))
    with pytest.raises(ValueError, match="user_names must name 2 users"):
        ProjectedDistributionsDisplay.from_estimator(sampler, weights, user_names=["she"])
    with pytest.raises(NotFittedError):
        ProjectedDistributionsDisplay.from_estimator(KLProjectionSampler(1.0), weights)
    for without in (SphericalProjectionSampler(1.0), BaseEstimator()):
        with pytest.raises(TypeError, match="has no method project"):
            ProjectedDistributionsDisplay.from_estimator(without, weights)
