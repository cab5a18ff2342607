"""The sketch of a generator under attack: no lower bound exceeds what is claimed.

The attacks see all that a fit releases, and know all records but one, of which they are to tell
whether it is there. Classes are as many trials in one fit. All audits of this file together are
wrong with a probability of at most 5 %.
"""

import numpy as np
import pytest

from skdpot.generative import _gaussians as gaussians
from skdpot.generative import _vectors as vectors
from skdpot.privacy.audit import audit
from skdpot.releases import RADIUS, SketchReleases
from tests.oracles.sketch import transcript_of
from tests.oracles.sketch_generators import make_sketch_generator

pytestmark = pytest.mark.experiment

# Other records of each class, which are close together.
N_OTHERS = 10
# As large as it takes for attacks on normal noise to succeed.
DELTA = 0.1
CONFIDENCE = 1 - 0.05 / 20
# So much of its budget has a release that is attacked on its own.
MOST = 50.0

HONEST = SketchReleases.run


@pytest.fixture(autouse=True)
def classes_are_independent(monkeypatch):
    """Let every class have its own releases, and none learn from what others released.

    Whatever is made of what was released is no matter of privacy.
    """
    monkeypatch.setattr(vectors, "_SHARED_HISTOGRAMS", np.inf)
    monkeypatch.setattr(vectors, "_SHARED_COVARIANCES", np.inf)
    monkeypatch.setattr(vectors, "kept_shares", lambda observed, *_: np.ones(observed.shape))
    monkeypatch.setattr(vectors, "clean_covariance", lambda *_: np.full((1, 1), 0.01))
    monkeypatch.setattr(
        gaussians.NormDistributions, "quantiles", lambda laws, _: np.full(len(laws.scales), 0.1)
    )


class Attack:
    """Guesses from a transcript by the optimal statistic, the ratio of two densities.

    Both are known: with what was released, whatever is released next, less its noise, is a function
    of the records.

    Parameters
    ----------
    release : callable
        How releases are made.
    noise : mapping of str to float, default=None
        What part of the declared noise releases have, if not all of it.
    **options
        Of the generator.
    """

    def __init__(self, epsilon, *, release=HONEST, noise=None, **options):
        self._release, self._noise = release, noise or {}
        self._options = {"epsilon": epsilon, "delta": DELTA, "n_clusters": 1} | options

    def bound(self, seed, n_trials=120):
        """Return the lower bound of epsilon that the attack proves."""
        return audit(
            self._ratios, True, False, delta=DELTA, n_trials=n_trials, confidence=CONFIDENCE,
            vectorized=True, log_density_ratio=lambda ratios: ratios, random_state=seed,
        ).epsilon_lower  # fmt: skip

    def _ratios(self, is_there, n_trials, random_state):
        seen = self._transcript(is_there, n_trials, random_state)
        others = self._transcript(not is_there, n_trials, random_state, seen)
        there, gone = (seen, others) if is_there else (others, seen)
        # How many records there are altogether is no trial's own.
        names = [name for name in seen if name != "size"]
        return np.sum([self._ratio(n, seen[n], there[n], gone[n]) for n in names], axis=0)

    def _transcript(self, is_there, n_trials, random_state, given=None):
        labels = np.arange(n_trials)
        generator = make_sketch_generator(
            bounds=(-1, 1), classes=labels, random_state=random_state, **self._options
        )
        X = np.resize([0.04, -0.05], N_OTHERS * n_trials)[:, None]
        y = np.repeat(labels, N_OTHERS)
        if is_there:
            X, y = np.concatenate([X, np.ones((n_trials, 1))]), np.concatenate([y, labels])
        return transcript_of(lambda: generator.fit(X, y), given, self._release)

    def _ratio(self, name, seen, there, gone):
        shift = (there.sums - gone.sums).reshape(len(there.sums), -1).astype(np.float64)
        apart = (seen.released - gone.sums).reshape(shift.shape) - shift / 2
        deviation = seen.deviation * self._noise.get(name, 1.0)
        return np.sum(apart * shift, axis=1) / deviation**2


@pytest.mark.parametrize("epsilon, n_clusters, n_trials", [(2.0, 1, 600), (4.0, 2, 200)])
def test_no_attack_on_a_fit_refutes_the_claim_and_all_find_a_part_of_it(
    epsilon, n_clusters, n_trials, seed
):
    found = Attack(epsilon, n_clusters=n_clusters).bound(seed, n_trials)
    # With so few trials no more than 3 can be proven.
    assert 0.1 * min(epsilon, 3.0) < found <= epsilon


def test_counts_for_free_are_noticed(seed):
    def release(releases, name, sums, sensitivity):
        released = HONEST(releases, name, sums, sensitivity)
        return sums.astype(np.float64) if name == "counts" else released

    assert Attack(1.0, release=release, noise={"counts": 1e-3}).bound(seed) > 1.0


@pytest.mark.parametrize("name", ["means", "kernels"])
def test_half_of_the_noise_of_one_release_is_noticed(name, seed, monkeypatch):
    """Of one that has most of the budget."""

    def planned(releases, plan, honest=vectors.VectorReleases.planned):
        return honest(releases, plan) | {name: (MOST, honest(releases, plan)[name][1])}

    def release(releases, made, sums, sensitivity):
        half = 2 if made == name else 1
        return HONEST(releases, made, sums, lambda **o: sensitivity(**o) / half)

    monkeypatch.setattr(vectors.VectorReleases, "planned", planned)
    attack = Attack(1.0, release=release, noise={name: 0.5})
    assert attack.bound(seed, 900) > 1.0


def test_a_radius_that_is_the_largest_norm_of_private_records_is_noticed(seed, monkeypatch):
    largest = []

    class LargestNorms(gaussians.NormDistributions):
        def of(self, n_classes):
            return self

        def quantiles(self, level):
            return self.scales

    class Watched(gaussians.ClassRows):
        def norm_counts(self):
            largest.append(np.linalg.norm(self._rows, axis=1).max())
            return super().norm_counts()

    def fitted(counts, deviation, fit_norms=gaussians.fit_norms):
        norms = np.array(largest)
        largest.clear()
        return LargestNorms(norms, fit_norms(counts, deviation).of(len(norms)).freedoms)

    monkeypatch.setattr(vectors, "ClassRows", Watched)
    monkeypatch.setattr(vectors, "fit_norms", fitted)
    assert Attack(1.0).bound(seed) > 1.0


def test_a_clip_that_is_missing_is_noticed(seed, monkeypatch):
    monkeypatch.setattr(
        gaussians, "ball_points", lambda rows, radius: np.rint(rows * (RADIUS / radius))
    )
    assert Attack(1.0).bound(seed) > 1.0
