"""Messages and utilities under attack: no lower bound exceeds the claim, and bugs are found.

All audits of this file together are wrong with a probability of at most 5 %.
"""

import numpy as np
import pytest

from skdpot.privacy.audit import audit
from skdpot.privacy.random import make_source
from skdpot.releases import MessageReleases, UtilityNoise, UtilityResponse
from tests.oracles.allocation import project_rows

pytestmark = pytest.mark.experiment

N_AUDITS = 18
CONFIDENCE = 1 - 0.05 / N_AUDITS
N_TRIALS = 6000
DELTA = 1e-5
CAP, RANGE, ETA = 6.0, 4.0, 1.0
N_ROUNDS = 6
# Slopes of a node of two edges: one of them at either end of its range.
OURS, THEIRS = np.array([5.0, 3.0]), np.array([1.0, 3.0])


class Node:
    """A node in many copies, which talk to an adversary.

    It answers such that the next message is at one end of where utilities can move it, and the
    penalty follows what was sent.
    """

    def __init__(self, slopes, n):
        self.slopes, self.alpha, self.eta = slopes, np.zeros((n, 2)), np.full((n, 1), ETA)
        self.z = self._wanted()

    def _wanted(self):
        return np.array([-1.0, -3.0]) / self.eta

    def message(self):
        return project_rows(self.z + (self.slopes - self.alpha) / self.eta, CAP)

    def hear(self, sent):
        away = np.abs(sent).sum(axis=1, keepdims=True)
        previous = self.eta
        self.eta = ETA * np.where(away > 20, 2.0, np.where(away < 5, 0.5, 1.0))
        # With this answer, what the next message is the projection of is as wanted.
        share = previous / self.eta
        wanted = self._wanted() + self.alpha / self.eta
        answer = (wanted - (1 - share) / 2 * sent) / ((1 + share) / 2)
        self.z = (sent + answer) / 2
        self.alpha = self.alpha + previous / 2 * (sent - answer)


def rounds_of(delta, bug):
    """Return how many rounds an attack needs: with normal noise a budget per round hides long."""
    return 40 if bug == "each round" and delta else N_ROUNDS


def noise_of(n, epsilon, delta, random_state, n_rounds=N_ROUNDS, utility_range=RANGE):
    return MessageReleases(
        epsilon,
        delta,
        n_rounds=n_rounds,
        degrees=[2] * n,
        utility_range=utility_range,
        cap=CAP,
        source=make_source(random_state),
    )


def transcripts(epsilon, delta, bug=None):
    """Return the release of all messages of a node, with one of several bugs."""

    def release(slopes, n, random_state):
        source, node, sent = make_source(random_state), Node(slopes, n), []
        # The rate as it is printed, rho beta / eta, is that of a sensitivity of eta / rho.
        width = ETA**2 / RANGE if bug == "rate" else RANGE
        noise = noise_of(n, epsilon, delta, source, utility_range=width)
        for _ in range(rounds_of(delta, bug)):
            if bug == "each round":
                noise = noise_of(n, epsilon, delta, source, n_rounds=1)
            penalty = 8.0 if bug == "penalty" else node.eta[:, 0]
            sent.append(noise.run(node.message().ravel(), penalty).reshape(n, 2))
            node.hear(sent[-1])
        return np.stack(sent, axis=1)

    return release


def log_ratio(delta, bug=None):
    """Return the log-density ratio of transcripts, up to a factor of the rounds' scales."""

    def ratio(outputs):
        n, total = len(outputs), 0.0
        nodes = Node(OURS, n), Node(THEIRS, n)
        for sent in np.moveaxis(outputs, 1, 0):
            messages = [node.message() for node in nodes]
            penalty = 8.0 if bug == "penalty" else nodes[0].eta[:, 0]
            scale = noise_of(n, 1.0, delta, 0).standard_deviations(penalty)
            away = [np.linalg.norm(sent - message, axis=1) / scale for message in messages]
            total = total + (away[1] ** 2 - away[0] ** 2 if delta else away[1] - away[0])
            for node in nodes:
                node.hear(sent)
        return total

    return ratio


def attack(epsilon, delta, seed, bug=None):
    return audit(
        transcripts(epsilon, delta, bug),
        OURS,
        THEIRS,
        delta=delta,
        n_trials=N_TRIALS,
        confidence=CONFIDENCE,
        log_density_ratio=log_ratio(delta, bug),
        vectorized=True,
        random_state=seed % 2**31,
    )


@pytest.mark.parametrize("delta", [0.0, DELTA])
@pytest.mark.parametrize("epsilon", [2.0, 6.0])
def test_all_rounds_together_keep_the_claim(epsilon, delta, seed):
    """With a penalty that follows the messages, from half to twice itself in every round."""
    found = attack(epsilon, delta, seed)
    assert not found.exceeds(epsilon)
    assert found.epsilon_lower > 0.2 * epsilon


@pytest.mark.parametrize("delta", [0.0, DELTA])
@pytest.mark.parametrize("bug", ["rate", "each round", "penalty"])
def test_bugs_are_found(bug, delta, seed):
    """The rate as the paper prints it; a budget per round; one penalty for all."""
    assert attack(0.5, delta, seed, bug).exceeds(0.5)


def utilities(kind, epsilon, protect, claimed):
    """Return an audit's release of a node of three edges, which may spend more than is claimed."""

    def release(parameters, n, random_state):
        node = kind(claimed, low=1.0, high=5.0, degrees=[3] * n, protect=protect)
        return node.run(np.tile(parameters, n), make_source(random_state)).reshape(n, 3)

    return release


@pytest.mark.parametrize("kind", [UtilityNoise, UtilityResponse])
@pytest.mark.parametrize("protect", ["parameter", "node"])
def test_utilities_keep_the_claim_and_a_budget_per_edge_is_found(kind, protect, seed):
    ours = np.array([5.0, 5.0, 5.0])
    theirs = np.array([1.0, 1.0, 1.0]) if protect == "node" else np.array([1.0, 5.0, 5.0])
    options = {
        "n_trials": N_TRIALS,
        "confidence": CONFIDENCE,
        "vectorized": True,
        "random_state": seed % 2**31,
        "log_density_ratio": lambda outputs: (
            outputs.sum(axis=1) if protect == "node" else outputs[:, 0]
        ),
    }
    found = audit(utilities(kind, 1.0, protect, 1.0), ours, theirs, **options)
    assert not found.exceeds(1.0)
    assert found.epsilon_lower > 0.3
    found = audit(utilities(kind, 1.0, protect, 3.0), ours, theirs, **options)
    assert found.exceeds(1.0)


def test_the_confidence_is_shared():
    assert 4 + 6 + 8 <= N_AUDITS
