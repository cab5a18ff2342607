"""Releases of a sketch: how far a record moves them, what noise they get, and what else is left."""

import math
import warnings

import joblib
import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

from skdpot.generative import CosineEncoder
from skdpot.generative import _gaussians as class_rows
from skdpot.generative import _vectors as vectors
from skdpot.generative._gaussians import (
    BALL,
    COUNTED,
    ROUND,
    SYMMETRIC,
    WITH_COUNT,
    Centres,
    ClassRows,
)
from skdpot.generative._vectors import _N_ROUNDS, intensity_counts
from skdpot.privacy import BudgetExceededError, PrivacyLedger
from skdpot.privacy.accounting import epsilon_of
from skdpot.releases import RADIUS, ball_points
from tests.oracles.sketch import Made, moved_by, squared_mu, squared_norm, transcript_of
from tests.oracles.sketch_generators import make_sketch_generator

# Of the tests that accept: their seeds are made of their names.
RARE = 1e-4


# Each release on its own
# -----------------------


class Public:
    """Public numbers that decide about sums, at random."""

    def __init__(self, n_dimensions, rng):
        self.n_dimensions = n_dimensions
        self.radius = rng.choice([1e-300, 1e-3, 0.7, 3.0, 1e300])
        self.centres = rng.standard_normal((rng.integers(1, 5), n_dimensions)) * RADIUS
        self.potentials = rng.uniform(-3, 3, len(self.centres))
        self.reg = rng.choice([1e-300, 1.0, 1e7, 1e300])

    def in_ball(self, rows):
        made = ClassRows([np.array(rows)])
        made.clip(np.array([self.radius]))
        return made


def make_centres(points, potentials, reg):
    centres = Centres(points, reg)
    centres.potentials = potentials
    return centres


def projected(units):
    """Return rows whose projections are these, which are integers in the ball."""
    made = ClassRows([units])
    made._projected = [units]
    return made


def of_assignments(rows, public):
    made = projected(ball_points(rows, public.radius))
    return made.round_sums([make_centres(public.centres, public.potentials, public.reg)])


def of_clusters(rows, public):
    made = public.in_ball(rows)
    made._nearest = [(rows[:, 0] > 0).astype(int)]
    return made.counts_and_sums(2)


def of_intensities(rows, public):
    return intensity_counts(np.clip(rows, -1, 1))


# What is released of rows, its sensitivity, and the share of twice as much that two rows reach.
RELEASES = {
    "norms": (lambda rows, _: ClassRows([rows]).norm_counts(own=True), COUNTED(), 0.7),
    "means": (lambda rows, public: public.in_ball(rows).sums(), BALL(), 0.97),
    "covariances": (lambda rows, at: at.in_ball(rows).symmetric_sums(own=True), SYMMETRIC(), 0.48),
    "assignments": (of_assignments, ROUND(), 0.68),
    "clusters": (of_clusters, WITH_COUNT(), 0.68),
    "intensities": (of_intensities, None, 0.7),
}


def some_rows(public, rng):
    """Return records at the sphere, beyond it, along axes and in between."""
    axis = rng.permutation(np.eye(public.n_dimensions)[0])
    direction = rng.standard_normal(public.n_dimensions)
    direction /= np.linalg.norm(direction)
    sizes = public.radius * np.array([0.4, 1 - 1e-9, 1 + 1e-9, 1e3])
    rows = [size * way for size in sizes for way in (axis, -axis, direction, -direction)]
    return np.array([*rows, 0 * axis, 0 * axis + 1, 0 * axis - 1])


@pytest.mark.parametrize("n_dimensions", [1, 2, 30])
@pytest.mark.parametrize("kind", RELEASES)
@np.errstate(all="ignore")
def test_no_record_moves_a_release_further_than_declared_and_some_do_as_far(
    kind, n_dimensions, rng
):
    sums_of, sensitivity, reached = RELEASES[kind]
    sensitivity = float(sensitivity or n_dimensions)
    added, replaced = 0.0, 0.0
    for _ in range(6):
        public = Public(n_dimensions, rng)
        rows = some_rows(public, rng)
        others = rng.standard_normal((3, n_dimensions)) * public.radius
        without = sums_of(others, public)
        parts = [sums_of(np.vstack([others, row]), public) - without for row in rows]
        for row, part in zip(rows, parts, strict=True):
            assert part.dtype == np.int64
            np.testing.assert_array_equal(sums_of(row[None], public), part)
        added = max(added, *(squared_norm(part) ** 0.5 for part in parts))
        differences = [parts[i] - parts[j] for i, j in rng.integers(0, len(parts), (30, 2))]
        differences += [one - other for one, other in zip(parts[::2], parts[1::2], strict=False)]
        replaced = max(replaced, *(squared_norm(part) ** 0.5 for part in differences))
    assert 0.97 * sensitivity < added <= sensitivity
    assert reached * 2 * sensitivity < replaced <= 2 * sensitivity


PUBLIC_NUMBERS = [0.0, 1.0, -1e308, 5e-324, math.inf, -math.inf, math.nan]


@pytest.mark.parametrize("reg", PUBLIC_NUMBERS)
@pytest.mark.parametrize("centre", PUBLIC_NUMBERS)
def test_shares_of_a_record_are_bounded_whatever_the_centres_are(centre, reg, rng):
    """What was released may have led to no numbers at all, and bounds hold all the same."""
    units = ball_points(rng.standard_normal((6, 2)), 1.0)
    with np.errstate(all="ignore"):
        for centres in (np.full((3, 2), centre), np.diag([centre, 1.0, 2.0])[:, :2]):
            for potentials in (np.zeros(3), np.array([0.0, math.nan, math.inf])):
                at = make_centres(centres, potentials, reg)
                shares = projected(units)._shares(0, at)
                assert ((shares >= 0) & (shares == np.rint(shares))).all()
                assert (shares.sum(axis=1) <= RADIUS).all()
                one = projected(units[:1]).round_sums([at])
                assert squared_norm(one) <= ROUND() ** 2


def test_shares_depend_on_no_other_record_bit_by_bit(rng):
    for n_centres, n_dimensions in ((2, 1), (3, 5), (30, 30)):
        units = ball_points(rng.standard_normal((100, n_dimensions)), 1.0)
        centres = Centres(rng.standard_normal((n_centres, n_dimensions)) * 4000, 1e7)
        shares = projected(units)._shares(0, centres)
        for start, stop in ((0, 1), (7, 9), (50, 99)):
            found = projected(units[start:stop].copy())._shares(0, centres)
            np.testing.assert_array_equal(found, shares[start:stop])


def test_shares_do_not_depend_on_the_place_of_a_record(rng, monkeypatch):
    """Nor on processors where the last digits of a library's exponential do."""
    exponential = np.exp

    def uneven(numbers, *args, **options):
        found = exponential(numbers, *args, **options)
        return found * (1 + 0.1 * (np.arange(found.size).reshape(found.shape) % 7))

    units = ball_points(rng.standard_normal((100, 3)), 1.0)
    centres = Centres(rng.standard_normal((4, 3)) * 4000, 1e7)
    monkeypatch.setattr(np, "exp", uneven)
    together = projected(units).round_sums([centres])
    alone = [projected(units[i : i + 1].copy()).round_sums([centres]) for i in range(len(units))]
    np.testing.assert_array_equal(together, np.sum(alone, axis=0))


# Whole fits, on neighbouring records
# -----------------------------------


IMAGES = {"image_shape": (4, 4)}
# By parameters: the number of features, and whether histograms and covariances are of each class.
FITS = {
    "vectors": ({"n_clusters": 1, "epsilon": 1.0}, 3, False, False),
    "vectors, own histograms": ({"n_clusters": 1, "epsilon": 300.0}, 3, True, False),
    "vectors, own covariances": ({"n_clusters": 1, "epsilon": 1e5}, 3, True, True),
    "clusters": ({"n_clusters": 3, "epsilon": 1.0}, 3, False, False),
    "clusters, own histograms": ({"n_clusters": 2, "epsilon": 300.0}, 3, True, False),
    "clusters, own covariances": ({"n_clusters": 3, "epsilon": 1e5}, 3, True, True),
    "waves": ({"n_clusters": 3, "epsilon": 150.0, **IMAGES}, 16, False, True),
    "poses": ({"n_clusters": 2, "epsilon": 50.0, "encoder": "pose", **IMAGES}, 16, False, False),
    "poses, own": ({"n_clusters": 1, "epsilon": 1e5, "encoder": "pose", **IMAGES}, 16, True, True),
}
by_fit = pytest.mark.parametrize("case", FITS)
CLASSES = ["a", "b", "c"]


def make_generator(case, **options):
    settings = {"classes": CLASSES, "random_state": 0}
    return make_sketch_generator(**(settings | FITS[case][0] | options))


def some_records(case, rng, n=40):
    """Return records that are close together, of two of three classes."""
    n_features = FITS[case][1]
    X = rng.uniform(0.48, 0.52, (n, n_features))
    if n_features == 16:
        X *= np.linspace(0, 1, 16)
    return X, np.array(CLASSES)[np.arange(n) % 2]


def further_records(case, rng):
    """Return records of all kinds, each with its label."""
    n_features = FITS[case][1]
    far = np.ones((1, n_features))
    kinds = [far, 0 * far, far * (np.arange(n_features) % 2), -1e300 * far, far / 2]
    kinds.append(rng.uniform(size=(1, n_features)))
    labels = np.array(CLASSES)[[2, 0, 1, 2, 0, 1]]
    return list(zip(kinds, labels[:, None], strict=True))


def together(records, record):
    return tuple(np.concatenate(parts) for parts in zip(records, record, strict=True))


class Replay:
    """Fits of one generator to several sets of records, of which all release the same."""

    def __init__(self, generator, X, y):
        self._generator = generator
        self.first = transcript_of(lambda: generator.fit(X, y))
        self.left = self._left()

    def __call__(self, X, y):
        made = transcript_of(lambda: self._generator.fit(X, y), given=self.first)
        # Whatever is left behind is a function of what was released.
        assert self._left() == self.left
        return made

    def _left(self):
        return joblib.hash(vars(self._generator))


@by_fit
def test_a_record_more_moves_each_release_by_its_own_part_and_no_further(case, rng):
    """To the last bit, whatever it is, of whichever class, and whatever the other records are."""
    generator, records = make_generator(case), some_records(case, rng)
    replay = Replay(generator, *records)
    whole = 1 / generator.noise_multiplier_**2
    farthest, costs = dict.fromkeys(replay.first, 0.0), []
    for record in further_records(case, rng):
        more, alone = replay(*together(records, record)), replay(*record)
        for name, made in replay.first.items():
            np.testing.assert_array_equal(more[name].sums - made.sums, alone[name].sums)
        moved = moved_by(more, replay.first)
        farthest = {name: max(far, moved[name]) for name, far in farthest.items()}
        costs.append(squared_mu(more, replay.first) / whole)
    assert max(farthest.values()) <= 1
    # Shares of a record are all of one centre where there are no others nearby.
    assert all(far > (0.5 if "assign" in name else 0.97) for name, far in farthest.items())
    # Some record takes most of the budget, and none takes more.
    assert 0.75 < max(costs) <= 1


@by_fit
def test_what_is_released_is_as_planned(case, rng):
    _, _, own_histograms, own_covariances = FITS[case]
    generator, records = make_generator(case), some_records(case, rng)
    made = transcript_of(lambda: generator.fit(*records))
    clustered = generator.model.n_clusters > 1
    of_pixels = ["intensities"] if generator.image_shape else []
    within = ["covariances", *(f"assignments {t + 1}" for t in range(_N_ROUNDS))]
    within += ["norms within clusters", "clusters", "kernels"]
    names = ["size", *of_pixels, "counts", "norms of records", "means", "norms of residuals"]
    assert list(made) == [*names, *(within if clustered else ["kernels"])]
    for name in ("norms of records", "norms of residuals"):
        assert len(made[name].sums) == (3 if own_histograms else 1)
    assert len(made["kernels"].sums) == (3 if own_covariances else 1)


def test_pixels_that_are_counted_twice_are_found_out(rng, monkeypatch):
    def doubled(points):
        return 2 * intensity_counts(points)

    monkeypatch.setattr("skdpot.generative._vectors.intensity_counts", doubled)
    replay = Replay(make_generator("waves"), *some_records("waves", rng))
    more = replay(*together(some_records("waves", rng), further_records("waves", rng)[0]))
    assert moved_by(more, replay.first)["intensities"] > 1.9


def test_a_ground_that_goes_by_exact_intensities_is_found_out(rng, monkeypatch):
    exact = []

    def counted(points):
        exact[:] = [intensity_counts(points)]
        return exact[0]

    def placed(encoder, intensities, *others, place=vectors.encoder_on_ground):
        return place(encoder, exact[0] / exact[0].sum(), *others)

    monkeypatch.setattr("skdpot.generative._vectors.intensity_counts", counted)
    monkeypatch.setattr(vectors, "encoder_on_ground", placed)
    records, record = some_records("waves", rng), further_records("waves", rng)[0]
    replay = Replay(make_generator("waves"), *records)
    with pytest.raises(AssertionError):
        replay(*together(records, record))


@pytest.mark.parametrize("case", ["clusters", "poses, own"])
def test_the_order_of_records_and_a_record_less(case, rng):
    generator, (X, y) = make_generator(case), some_records(case, rng)
    replay = Replay(generator, X, y)
    order = rng.permutation(len(X))
    assert max(moved_by(replay(X[order], y[order]), replay.first).values()) == 0
    less = replay(X[1:], y[1:])
    assert max(moved_by(less, replay.first).values()) <= 1
    assert squared_mu(less, replay.first) * generator.noise_multiplier_**2 <= 1


@pytest.mark.parametrize("case", ["clusters", "clusters, own covariances", "waves"])
def test_rows_depend_on_no_other_record_bit_by_bit_before_they_are_rounded(case, rng, monkeypatch):
    """Rounding hides nearly always, and not always, that products depend on their shapes."""
    seen = []

    def watched(rows, radius):
        seen.append(rows.copy())
        return ball_points(rows, radius)

    monkeypatch.setattr(class_rows, "ball_points", watched)
    generator, (X, y) = make_generator(case), some_records(case, rng, 60)
    replay = Replay(generator, X, y)
    everybody = seen.copy()
    for n in (2, 6, 34):
        seen.clear()
        replay(X[:n], y[:n])
        assert len(seen) == len(everybody) > 9
        for rows, of_all in zip(seen, everybody, strict=True):
            np.testing.assert_array_equal(rows, of_all[: len(rows)])


@pytest.mark.parametrize("case", ["vectors", "clusters, own covariances", "poses"])
def test_a_record_replaced_moves_releases_twice_as_far_at_most_which_noise_is_made_for(case, rng):
    generator, records = make_generator(case, neighbouring="replace_one"), some_records(case, rng)
    further = further_records(case, rng)
    replay = Replay(generator, *together(records, further[0]))
    costs = []
    for record in further[1:]:
        other = replay(*together(records, record))
        assert max(moved_by(other, replay.first).values()) <= 2
        costs.append(squared_mu(other, replay.first) * generator.noise_multiplier_**2)
    assert 0.3 < max(costs) <= 1


def released_as(times):
    """Return a release of nothing but the same entries, so many standard deviations from zero."""

    def release(releases, name, sums, sensitivity):
        deviation = releases.standard_deviation(name, sensitivity)
        return np.full(np.shape(sums), times * deviation)

    return release


@pytest.mark.parametrize("times", [-40.0, -1.0, 0.0])
@pytest.mark.parametrize("case", ["vectors", "clusters", "clusters, own covariances", "poses"])
def test_bounds_hold_and_records_are_made_whatever_was_released(case, times, rng):
    """Also if it leaves no covariance at all, and with a class of which there are no records."""
    generator, records = make_generator(case), some_records(case, rng, 6)
    given = transcript_of(lambda: generator.fit(*records), release=released_as(times))
    assert np.isfinite(generator.sample(20, ["a", "b", "c", "c"] * 5)[0]).all()
    first = transcript_of(lambda: generator.fit(*records), given)
    for record in further_records(case, rng)[::3]:
        made = transcript_of(lambda: generator.fit(*together(records, record)), given)  # noqa: B023
        assert max(moved_by(made, first).values()) <= 1


by_unit = pytest.mark.parametrize("scale", [1e-150, 1e150])


@pytest.mark.parametrize("n_features", [1, 2])
@pytest.mark.parametrize("epsilon", [1.0, 1e5, None])
@by_unit
def test_bounds_hold_for_equal_records_in_any_units(epsilon, n_features, scale):
    """Also where variances are below zero by noise, and a class has no records, or one."""
    X, y = np.full((9, n_features), scale), ["a"] * 9
    for seed in range(2):
        generator = make_sketch_generator(
            epsilon, classes=["a", "b"], n_clusters=2, bounds=(0, scale), random_state=seed
        )
        replay = Replay(generator, X, y)
        more = replay(np.concatenate([X, X[:1]]), [*y, "b"])
        assert max(moved_by(more, replay.first).values()) <= 1
        found = generator.sample(5)[0]
        assert ((found >= 0) & (found <= scale)).all()


@by_unit
def test_records_are_found_again_in_any_units(scale, rng):
    """Units of the data are no matter of precision."""
    X = rng.choice([0.2, 0.8], (400, 1)) + rng.normal(0, 0.01, (400, 1))
    generator = make_sketch_generator(1e5, bounds=(0, scale), random_state=0).fit(X * scale)
    found = generator.sample(400) / scale
    quantiles = [0.1, 0.25, 0.75, 0.9]
    np.testing.assert_allclose(np.quantile(found, quantiles), np.quantile(X, quantiles), atol=0.1)


# Noise of fits
# -------------


def test_the_scale_that_is_accounted_for_is_that_of_the_budget(rng):
    for case in ("vectors", "clusters, own covariances", "poses"):
        generator, records = make_generator(case), some_records(case, rng)
        made = transcript_of(lambda: generator.fit(*records))  # noqa: B023
        multipliers = [release.deviation / release.sensitivity for release in made.values()]
        spent = math.fsum(1 / multiplier**2 for multiplier in multipliers)
        assert spent == pytest.approx(1 / generator.noise_multiplier_**2, rel=1e-9)
        assert epsilon_of(spent**-0.5, 1e-5) == pytest.approx(generator.epsilon, rel=1e-6)


# The estimator
# -------------

ODD_RECORDS = {
    "equal": (np.full((30, 20), 0.3), ["a", "b"] * 15),
    "at a bound": (np.zeros((30, 20)), ["a", "b"] * 15),
    "at the other bound": (np.ones((30, 20)), ["a", "b"] * 15),
    "at either bound": (np.eye(20), ["a", "b"] * 10),
    "a single one": (np.full((1, 20), 0.9), ["b"]),
    "of one class": (np.linspace(0, 1, 600).reshape(30, 20), ["c"] * 30),
    "beyond bounds": (np.linspace(-8e307, 8e307, 600).reshape(30, 20), ["a"] * 30),
}


@pytest.mark.parametrize("epsilon", [0.1, None])
@pytest.mark.parametrize("encoder", ["auto", "pose", "whiten-by-bounds"])
@pytest.mark.parametrize("records", ODD_RECORDS)
def test_odd_records_raise_nothing_and_warn_of_nothing(records, encoder, epsilon):
    X, y = ODD_RECORDS[records]
    shape = None if encoder == "whiten-by-bounds" else (4, 5)
    for n_clusters in (None, 3)[epsilon is None :]:
        generator = make_sketch_generator(
            epsilon, classes=CLASSES, encoder=encoder, n_clusters=n_clusters, random_state=0,
            image_shape=shape,
        )  # fmt: skip
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            found, labels = generator.fit(X, y).sample(20)
        assert ((found >= 0) & (found <= 1)).all()
        assert set(labels) <= set(CLASSES)


def test_a_ledger_that_refuses_stops_a_fit_before_a_record_is_encoded(monkeypatch):
    seen = []
    monkeypatch.setattr(CosineEncoder, "encode", lambda self, points: seen.append(points))
    ledger = PrivacyLedger(epsilon=0.5, delta=1e-5, neighbouring="add_remove")
    generator = make_sketch_generator(1.0, image_shape=(1, 2), ledger=ledger)

    def fit():
        with pytest.raises(BudgetExceededError):
            generator.fit(np.full((5, 2), 0.7))

    assert transcript_of(fit) == {}
    assert not seen
    with pytest.raises(NotFittedError):
        generator.sample()


@pytest.mark.parametrize("options", [{"classes": range(10)}, {"neighbouring": "replace_one"}])
def test_noise_that_would_be_too_large_is_refused_before_the_charge(options):
    """However many records there turn out to be, about."""
    refused = 0
    for size in (1e2, 1e5, 1e7):
        for epsilon in np.geomspace(0.005, 0.08, 5):
            ledger = PrivacyLedger(
                None, neighbouring=options.get("neighbouring", "add_remove"),
                allow_seeded=True, delta=0.5,
            )  # fmt: skip
            generator = make_sketch_generator(epsilon, ledger=ledger, random_state=0, **options)
            y = np.zeros(5, dtype=int) if "classes" in options else None
            given = {"size": Made(np.array(5), 1.0, 1.0, np.array(size))}
            try:
                transcript_of(lambda: generator.fit(np.zeros((5, 2)), y), given)  # noqa: B023
            except ValueError as error:
                assert "epsilon is too small" in str(error)
                assert ledger.entries() == []
                refused += 1
    assert 0 < refused < 15
