"""Sketches of tables under attack: no lower bound exceeds what is claimed, and mistakes are caught.

The attacks see all that a fit releases, and know all records but one, or all people but one, of
which they are to tell whether it is there. All audits of this file together are wrong with a
probability of at most 5 %.
"""

import numpy as np
import pandas as pd
import pytest

from skdpot import DPSinkhornGenerator
from skdpot.generative import TableSketch
from skdpot.generative import _table as table_sketch
from skdpot.generative._table_space import People
from skdpot.privacy.audit import audit
from skdpot.releases import SketchReleases
from tests.oracles.sketch import transcript_of

pytestmark = pytest.mark.experiment

# As large as it takes for attacks on normal noise to succeed.
DELTA = 0.1
CONFIDENCE = 1 - 0.05 / 20
# Of a fit as it is; and of those with a mistake, which must be seen to exceed it.
EPSILON, SMALL_EPSILON = 4.0, 1.0
N_TRIALS = 300

HONEST = SketchReleases.run
NAMES = ["a", "b", "c", "d"]
SCHEMA = {name: [0, 1] for name in NAMES}
SMALL = {"n_components": 2, "n_iter": 1}


@pytest.fixture(autouse=True)
def models_are_quick(monkeypatch):
    """Let no model be fitted well: what is made of releases is no matter of privacy."""
    fit_table = table_sketch.fit_table
    models = {}

    def first(fit):
        def fitted(*arguments, **options):
            if fit not in models:
                models[fit] = fit(*arguments, **options)
            return models[fit]

        return fitted

    monkeypatch.setattr(table_sketch, "fit_table", first(fit_table))


def table_of(has_record):
    """Return records that are alike, and perhaps one that is like none of them."""
    rows = np.zeros((24, len(NAMES)), dtype=np.int64)
    one = np.ones((int(has_record), len(NAMES)), dtype=np.int64)
    return pd.DataFrame(np.concatenate([rows, one]), columns=NAMES)


def people_of(has_person):
    """Return people with a row each, and perhaps one with many who is like none of them."""
    rows = table_of(has_record=False).assign(user=range(24))
    person = pd.DataFrame(1, index=range(9), columns=NAMES).assign(user=-1)
    return pd.concat([rows, person]) if has_person else rows


class Attack:
    """Guesses from a transcript by the optimal statistic, the ratio of two densities.

    Both are known: with what was released, whatever is released next, less its noise, is a function
    of the records.

    Parameters
    ----------
    data : callable
        Returns the table, with or without the record in question.
    release : callable
        How releases are made.
    noise : callable
        What part of the declared noise a release has, by its name.
    **options
        Of the fit, and of the model.
    """

    def __init__(
        self, epsilon, data=table_of, *, release=HONEST, noise=lambda name: 1.0, groups=None,
        **model,
    ):  # fmt: skip
        self._epsilon, self._data = epsilon, data
        self._release, self._noise = release, noise
        self._groups, self._model = groups, TableSketch(**SMALL | model)

    def bound(self, seed):
        """Return the lower bound of epsilon that the attack proves."""
        return audit(
            self._ratio_of_a_fit, True, False, delta=DELTA, n_trials=N_TRIALS,
            confidence=CONFIDENCE, log_density_ratio=np.ravel, random_state=seed,
        ).epsilon_lower  # fmt: skip

    def _ratio_of_a_fit(self, has_record, random_state):
        seen = self._transcript(has_record, random_state)
        other = self._transcript(not has_record, random_state, seen)
        there, gone = (seen, other) if has_record else (other, seen)
        return sum(self._ratio(name, seen[name], there[name], gone[name]) for name in seen)

    def _transcript(self, has_record, random_state, given=None):
        generator = DPSinkhornGenerator(
            self._epsilon, DELTA, schema=SCHEMA, model=self._model, random_state=random_state
        )
        table = self._data(has_record)
        return transcript_of(
            lambda: generator.fit(table, groups=self._groups), given, self._release
        )

    def _ratio(self, name, seen, there, gone):
        shift = np.ravel(there.sums - gone.sums).astype(np.float64)
        apart = np.ravel(seen.released - gone.sums) - shift / 2
        return apart @ shift / (seen.deviation * self._noise(name)) ** 2


def with_less_noise(part_of):
    """Return how releases are made of which some have a part of their noise, by their names."""

    def release(releases, name, sums, sensitivity):
        part = part_of(name)
        return HONEST(releases, name, sums, lambda **of: sensitivity(**of) * part)

    return {"release": release, "noise": part_of}


@pytest.mark.parametrize(
    "options", [{}, {"data": people_of, "groups": "user"}], ids=["parities", "people"]
)
def test_no_attack_on_a_fit_refutes_the_claim_and_all_find_a_part_of_it(options, seed):
    found = Attack(EPSILON, **options).bound(seed)
    # With so few trials no more than 3 can be proven.
    assert 0.3 < found <= EPSILON


def test_parities_for_free_are_noticed(seed):
    """They have a hundredth of their noise."""
    attack = Attack(
        SMALL_EPSILON, **with_less_noise(lambda name: 0.01 if name == "parities" else 1.0)
    )
    assert attack.bound(seed) > SMALL_EPSILON


def test_weights_that_are_forgotten_are_noticed(seed, monkeypatch):
    """The mistake that is planted: every row adds what a person may add."""
    honest = People.of
    monkeypatch.setattr(
        People, "of", lambda codes: honest(codes)._replace(weights=np.full(len(codes), 2**20))
    )
    attack = Attack(SMALL_EPSILON, people_of, groups="user")
    assert attack.bound(seed) > SMALL_EPSILON
