r"""
=============================================
What does a round of the barycenter disclose?
=============================================

Owners of data who may not share rows can still compute a barycenter together. Each owner tells a
coordinator how useful every candidate for a support point would be for its group, and the
coordinator adds up the answers. No row leaves its owner. **That is not privacy**, and this page
shows it by attacks on the first round of the single-loop algorithm of the paper "Federated
Calculation of the Free-Support Transportation Barycenter by Single-Loop Dual Decomposition":

- from the plain message of an owner, its points can be read exactly;
- from the *sum* of the messages, which is all that secure aggregation discloses, points of all
  owners can be read too, and their owners, with some geometry;
- on what owners release with noise, all of this fails. It must fail: no attack can do better than
  epsilon permits.

The attackers are curious, but follow the protocol. They know what is public: the candidates, the
weights of the owners, and the size of the support. The random numbers of this page are seeded, so
that it always looks the same. Noise that protects real people must not be seeded.
"""

# %%
# Three clinics
# -------------
# Each clinic knows where its patients live, in a town of 10 by 10 kilometres. A home counts as
# recovered if it is known to a millimetre. The candidates are a public grid.

import math
from typing import NamedTuple

import matplotlib.pyplot as plt
import numpy as np
from scipy import ndimage
from scipy.spatial import ConvexHull, cKDTree
from scipy.spatial.distance import cdist

from skdpot import FairBarycenterPreprocessor
from skdpot.fairness import FreeSupport
from skdpot.privacy.audit import audit
from skdpot.privacy.random import make_source
from skdpot.releases import UnitLayout, VectorRelease, plan_release
from skdpot.transport.barycenter import useful_candidates

TOWN = 10.0
MILLIMETRE, HUNDRED_METRES = 1e-6, 0.1
SIZES = (60, 100, 150)
WEIGHTS = np.array([0.5, 0.3, 0.2])
N_SUPPORT = 50
SIDES = (30, 60, 120, 240, 360)
# Where patients of each clinic live: parameters of beta distributions from west to east, and from
# south to north.
DISTRICTS = (((4, 4), (3, 5)), ((2, 4), (4, 2)), ((3, 3), (3, 3)))


def draw_homes(sizes=SIZES, seed=0):
    """Draw the homes of patients of each clinic, in kilometres."""
    rng = np.random.default_rng(seed)
    return [
        TOWN * np.column_stack([rng.beta(*axis, size) for axis in district])
        for size, district in zip(sizes, DISTRICTS, strict=True)
    ]


def public_grid(side):
    """Return the candidates: a grid with `side` points on each side of the town."""
    axis = np.linspace(0.0, TOWN, side)
    return np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1).reshape(-1, 2)


def n_recovered(homes, guesses, within=MILLIMETRE):
    """Return the number of homes with a guess within a distance in kilometres."""
    if not len(guesses):
        return 0
    return int(np.sum(cKDTree(guesses).query(homes)[0] <= within))


# %%
# The message
# -----------
# In round 1 all potentials are 0. Clinic s, with points :math:`y_i` and weight :math:`\lambda_s`,
# sends for every candidate :math:`z_k`
#
# .. math:: T_{sk} = -w_s \min_i |y_i - z_k|^2, \qquad w_s = \lambda_s / M.
#
# With secure aggregation, messages are whole numbers modulo :math:`2^{64}`, with masks that cancel
# in the sum. Here every two clinics share a mask. Real protocols also agree on masks and handle
# clinics that fail, but they disclose the same sum.

RESOLUTION = 2.0**-44


def message(homes, weight, grid):
    """Return what a clinic sends in round 1."""
    cost, masses = cdist(homes, grid, "sqeuclidean"), np.full(len(homes), 1 / len(homes))
    return useful_candidates(cost, masses, weight / N_SUPPORT, np.zeros(len(homes)))[0]


def as_numbers(words):
    """Return the numbers that 64-bit words encode."""
    return words.view(np.int64) * RESOLUTION


def masked(messages, seed=0):
    """Return messages as 64-bit words, with a mask for every two clinics."""
    rng = np.random.default_rng(seed)
    words = [np.rint(T / RESOLUTION).astype(np.int64).view(np.uint64) for T in messages]
    for first in range(len(words)):
        for second in range(first):
            mask = rng.integers(0, 2**64 - 1, len(words[first]), dtype=np.uint64, endpoint=True)
            words[first], words[second] = words[first] + mask, words[second] - mask
    return words


# %%
# Attack 1: plain messages
# ------------------------
# Divided by the weight, and with :math:`|z|^2` added, a message is
#
# .. math:: u(z) = |z|^2 + T(z) / w_s = \max_i\, (2 z \cdot y_i - |y_i|^2),
#
# a convex function that is linear wherever the nearest home is the same. Three candidates there
# determine the linear function, and so the home, which is half of its gradient. Whether
# neighbouring candidates have the same nearest home can be decided without a guess: *a convex
# function that is linear along both diagonals of a square of 3 x 3 candidates is linear on the
# square.* (In the corners and the middle it agrees with a linear function L, so it is at most L in
# the square. The middle lies between any point p of the square and the opposite point; if u were
# below L at p, it would be below L in the middle.) Squares that share three candidates belong to
# one piece. The constant term is a second check: it must be :math:`-|y|^2`. In d dimensions, d + 1
# candidates determine a home, and others check it.

FLAT = 1e-9


def linear_pieces(total, weight, grid):
    """Return the pieces of the convex function that a message, or a sum of them, encodes.

    Parameters
    ----------
    total : ndarray of shape (side ** 2,)
        What was received.
    weight : float
        Weight of the clinic, or the sum of weights.
    grid : ndarray of shape (side ** 2, 2)
        The candidates.

    Returns
    -------
    ndarray of shape (n_pieces, 3)
        A point m and a number c for each, of which the piece is ``2 z @ m + c``.
    """
    side = math.isqrt(len(grid))
    values = (grid**2).sum(axis=1) + total * (N_SUPPORT / weight)
    u = values.reshape(side, side)
    twice = 2 * u[1:-1, 1:-1]
    diagonals = u[:-2, :-2] + u[2:, 2:] - twice, u[:-2, 2:] + u[2:, :-2] - twice
    flat = np.pad(np.abs(diagonals).max(axis=0) <= FLAT, 1)
    labels, n_labels = ndimage.label(flat, np.ones((3, 3)))
    labels = ndimage.grey_dilation(labels, size=3).ravel()
    order = np.argsort(labels, kind="stable")
    members = np.split(order, np.searchsorted(labels[order], range(1, n_labels + 1)))[1:]
    design = np.column_stack([2 * grid, np.ones(len(grid))])
    fitted = []
    for member in members:
        piece = np.linalg.lstsq(design[member], values[member], rcond=None)[0]
        if np.abs(design[member] @ piece - values[member]).max() <= FLAT:
            fitted.append(piece)
    return without_repetitions(np.reshape(fitted, (-1, 3)))


def without_repetitions(rows):
    """Return the rows without repetitions, up to rounding."""
    equal = np.triu(cdist(rows, rows) <= MILLIMETRE, 1) if len(rows) else np.zeros((1, 0))
    return rows[~equal.any(axis=0)]


def attack_message(received, weight, grid):
    """Return the homes that a single clinic's message discloses."""
    pieces = linear_pieces(received, weight, grid)
    homes, constants = pieces[:, :2], pieces[:, 2]
    return homes[np.abs(constants + (homes**2).sum(axis=1)) <= 10 * TOWN * MILLIMETRE]


# %%
# Attack 2: the sum
# -----------------
# Under masks, single messages look like noise. The sum does not. Divided by the sum of weights (1
# here) and with :math:`|z|^2` added, it is the weighted mean of the functions above, so it is
# convex and piecewise linear as well. Half the gradient of a piece is :math:`m = \sum_s \lambda_s
# y_s`: **the weighted mean of one home of each clinic**, exactly.
#
# Single homes are not safe either. Let pieces A and B meet at a kink, where clinic s passes from
# home a to home b, and all others keep theirs. Then, with :math:`r = 1 / \lambda_s`,
#
# .. math:: m_A - m_B = (a - b) / r, \qquad c_A - c_B = -(|a|^2 - |b|^2) / r,
#
# which gives an equation for a alone:
#
# .. math:: 2 (m_A - m_B) \cdot a = r\, |m_A - m_B|^2 - (c_A - c_B).
#
# Where *three* pieces meet, and not four, all belong to one clinic: its homes a, b and c are
# equally far from that corner. (Kinks of two clinics cross, which makes four.) This gives two
# equations for a, and likewise for b and c. They determine single homes if it is known which of the
# weights gives r. With a wrong :math:`r'` the solution is :math:`a + (r'/r - 1)(a - o)`, where o is
# the corner. So at two corners of the same home, the right weight gives the same solution twice,
# and a wrong one gives two different solutions. **Solutions that occur twice are homes**, except
# for coincidences. The weight tells which clinic they belong to, unless weights are equal.
#
# The corners need no search: u is the maximum of its pieces, so its corners are the faces of the
# upper convex hull of the points (m, c).
#
# If all clinics but one collude with the coordinator, they subtract their own messages and apply
# attack 1 to the rest.


def corners(pieces):
    """Return the triples of pieces that meet at corners within the town; shape (n, 3)."""
    if len(pieces) < 4 or np.linalg.matrix_rank(pieces - pieces[0]) < 3:
        return np.empty((0, 3), dtype=int)
    hull = ConvexHull(pieces)
    upper = hull.equations[:, 2] > 1e-9
    triples, normals = hull.simplices[upper], hull.equations[upper]
    where = normals[:, :2] / (2 * normals[:, 2:3])
    # A crossing of kinks is a face with four corners, which the hull divides into triangles.
    alone = cKDTree(where).query(where, k=2)[0][:, 1] > 10 * MILLIMETRE
    return triples[alone & ((where > 0) & (where < TOWN)).all(axis=1)]


def solutions(pieces, triples, weight):
    """Return the homes at corners if they belong to the clinic of this weight; shape (3 n, 2)."""
    found = []
    for place in range(3):
        others = pieces[np.delete(triples, place, axis=1)]
        jumps = pieces[triples[:, place], None] - others
        moves, constants = jumps[..., :2], jumps[..., 2]
        right = ((moves**2).sum(axis=2) / weight - constants) / 2
        found.append(np.linalg.solve(moves, right[..., None])[..., 0])
    return np.concatenate(found)


def attack_sum(pieces, weights=WEIGHTS):
    """Return the homes that corners of the sum disclose, one array per clinic."""
    triples = corners(pieces)
    if not len(triples):
        return [np.empty((0, 2)) for _ in weights]
    found = []
    for weight in weights:
        homes = solutions(pieces, triples, weight)
        twice = cKDTree(homes).query(homes, k=2)[0][:, 1] <= MILLIMETRE
        found.append(without_repetitions(homes[twice]))
    return found


def true_means(homes, grid, weights=WEIGHTS):
    """Return the weighted means of the homes that are nearest to each candidate: the truth."""
    nearest = [own[cKDTree(own).query(grid)[1]] for own in homes]
    return np.unique(np.tensordot(weights, nearest, axes=1), axis=0)


class Disclosed(NamedTuple):
    """What a round discloses: plain messages, masked ones, their sum, and with collusion."""

    plain: list
    masked: list
    pieces: np.ndarray
    of_sum: list
    by_collusion: np.ndarray


def attack_round(homes, grid):
    """Mount all attacks on the first round; the clinics but the first one collude in the last."""
    messages = [message(own, weight, grid) for own, weight in zip(homes, WEIGHTS, strict=True)]
    words = masked(messages)
    total = as_numbers(np.sum(words, axis=0))
    pieces = linear_pieces(total, WEIGHTS.sum(), grid)
    rest = total - np.sum(messages[1:], axis=0)
    return Disclosed(
        [attack_message(T, weight, grid) for T, weight in zip(messages, WEIGHTS, strict=True)],
        [
            attack_message(as_numbers(word), weight, grid)
            for word, weight in zip(words, WEIGHTS, strict=True)
        ],
        pieces,
        attack_sum(pieces),
        attack_message(rest, WEIGHTS[0], grid),
    )


def scored(homes, found):
    """Return the number of recovered homes, and of guesses that are no homes."""
    right = sum(map(n_recovered, homes, found))
    return right, sum(map(len, found)) - sum(map(n_recovered, found, homes))


def print_round(homes, sides=SIDES):
    """Print what rounds with more and more candidates disclose, and return the last one."""
    n = sum(map(len, homes))
    print(f"Homes recovered to a millimetre, of {n} (and guesses that are none):")
    print(
        f"{'candidates':>10}{'plain':>12}{'masked':>12}{'sum':>12}{'collusion':>12}"
        "   weighted means in the sum"
    )
    for side in sides:
        grid = public_grid(side)
        seen = attack_round(homes, grid)
        cells = [
            "{} ({})".format(*scored(homes, found))
            for found in (seen.plain, seen.masked, seen.of_sum)
        ]
        right, wrong = scored(homes[:1], [seen.by_collusion])
        cells.append(f"{right}/{len(homes[0])} ({wrong})")
        exact = n_recovered(seen.pieces[:, :2], true_means(homes, grid))
        print(
            f"{len(grid):>10}" + "".join(f"{cell:>12}" for cell in cells),
            f"  exact: {exact} of {len(seen.pieces)} plateaus",
        )
    return seen


# %%
# Attack 3: a private release
# ---------------------------
# By default an owner sends only one thing: counts of its points in the cells of a public grid, or
# their moments, with noise for an epsilon that is charged to its ledger. (A patient of two clinics
# pays at both.) Everything else is computed from this release, and attackers see all of it. They
# can compute the messages that follow from it and attack these as before. But they only find the
# released points, which are middles of cells, or points with the released moments.
#
# Some of these points are close to a home by chance, because they are where people live; the
# release is meant to show this. So the question is whether *patients* are hit more often than
# *strangers*, who are drawn from the same distribution and are in no clinic's data. By definition,
# with privacy the probability of hitting a patient is at most :math:`e^\varepsilon` times the
# probability if a stranger were in the data instead, plus :math:`\delta`.

EPSILON, DELTA = 1.0, 1e-6
KINDS = ("histogram", "moments")
LAYOUT = UnitLayout(levels=(0, 0), blocks=())


def released_homes(homes, kind="auto", seed=0):
    """Return the points that each clinic releases of its homes, and their masses."""
    source, points, masses = make_source(np.random.RandomState(seed)), [], []
    for own in homes:
        plan = plan_release(kind, LAYOUT, 1, len(own), EPSILON, DELTA)
        released = plan.run((own / TOWN, np.zeros(len(own), dtype=int)), source)
        points.append(TOWN * released.points[0])
        masses.append(released.masses[0])
    return points, masses


def support_of_fit(homes, seed=0):
    """Return the support of a private fit to the rows of all clinics, repeated for each clinic."""
    fair = FairBarycenterPreprocessor(
        epsilon=EPSILON,
        delta=DELTA,
        bounds=(0.0, TOWN),
        groups=range(len(homes)),
        weights=WEIGHTS,
        method=FreeSupport(n_support=N_SUPPORT),
        random_state=seed,
    )
    labels = np.repeat(range(len(homes)), [len(own) for own in homes])
    fair.fit(np.vstack(homes), sensitive_features=labels)
    return [fair.support_] * len(homes)


def release_once(homes, kind, seed):
    """Return the guesses of attackers for each clinic after a private release."""
    return support_of_fit(homes, seed) if kind == "fit" else released_homes(homes, kind, seed)[0]


class Hits(NamedTuple):
    """Shares of people who are hit by guesses, and of patients by as many uniform guesses."""

    patients: float
    strangers: float
    uniform: float


def share_hit(homes, guesses, within):
    """Return the share of homes with a guess for their clinic within a distance."""
    hits = sum(n_recovered(*pair, within) for pair in zip(homes, guesses, strict=True))
    return hits / sum(map(len, homes))


def hit_rates(homes, kind, distances, n_releases=10):
    """Return the average hit rates of releases of a kind, for each distance."""
    strangers = draw_homes([20 * len(own) for own in homes], seed=1)
    rng = np.random.default_rng(2)
    rates = np.empty((n_releases, len(distances), len(Hits._fields)))
    for seed in range(n_releases):
        guesses = release_once(homes, kind, seed)
        uniform = [rng.uniform(0, TOWN, own.shape) for own in guesses]
        pairs = (homes, guesses), (strangers, guesses), (homes, uniform)
        rates[seed] = [[share_hit(*pair, within) for pair in pairs] for within in distances]
    return [Hits(*means) for means in rates.mean(axis=0)]


def attack_release(homes, grid, kind="auto", seed=0):
    """Return the releases of the clinics, and what attacks find in messages made of them."""
    points, _ = released_homes(homes, kind, seed)
    return points, attack_round(points, grid)


def print_release(homes, grid, n_releases=10):
    """Print what attacks on releases find, and the hit rates."""
    points, seen = attack_release(homes, grid)
    print(f"\nMessages made of a release of {sum(map(len, points))} points, epsilon {EPSILON:g}:")
    for name, found in (("plain messages", seen.plain), ("the sum", seen.of_sum)):
        of_release, of_homes = (scored(truth, found)[0] for truth in (points, homes))
        print(f"of {name}: {of_release} released points, {of_homes} homes to a millimetre")
    print("\nShare of people with a guess near home:")
    print(f"{'release':12}{'within':>10}{'patients':>12}{'strangers':>12}{'uniform guesses':>18}")
    for kind in (*KINDS, "fit"):
        rates = hit_rates(homes, kind, (MILLIMETRE, HUNDRED_METRES), n_releases)
        for name, hits in zip(("1 mm", "100 m"), rates, strict=True):
            print(f"{kind:12}{name:>10}" + "{:12.4f}{:12.4f}{:18.4f}".format(*hits))


# %%
# Who is a patient?
# -----------------
# The weakest goal of an attacker is to learn whether a certain person is a patient, when all other
# patients are known. Which of two neighbouring data sets is it: the one with the person's home, or
# the one with a stranger's home instead? The *advantage* is the probability of saying yes in the
# first case, minus that of saying yes in the second. Attack 2 says yes if it finds the home in the
# sum. On the release, the best attack compares the two counts in which the data sets differ.
#
# No attack on a release with privacy parameters :math:`\varepsilon` and :math:`\delta` has a larger
# advantage than :math:`(e^\varepsilon - 1 + 2 \delta) / (e^\varepsilon + 1)`.


def largest_advantage(epsilon=EPSILON, delta=DELTA):
    """Return the largest advantage that privacy permits."""
    return (math.exp(epsilon) - 1 + 2 * delta) / (math.exp(epsilon) + 1)


def with_stranger(homes, patient, stranger):
    """Return the neighbouring data set: the first clinic's patient is another person."""
    own = homes[0].copy()
    own[patient] = stranger
    return [own, *homes[1:]]


def advantage_against_sum(homes, grid, n_targets=5):
    """Return the advantage of attack 2 against patients whom it finds, and the number tried."""
    others = [message(*of_clinic, grid) for of_clinic in zip(homes[1:], WEIGHTS[1:], strict=True)]

    def found(data):
        words = masked([message(data[0], WEIGHTS[0], grid), *others])
        total = as_numbers(np.sum(words, axis=0))
        return attack_sum(linear_pieces(total, WEIGHTS.sum(), grid))[0]

    distances, patients = cKDTree(homes[0]).query(found(homes))
    targets = patients[distances <= MILLIMETRE][:n_targets]
    stranger = draw_homes(seed=1)[0][0]
    false = [
        n_recovered(homes[0][[patient]], found(with_stranger(homes, patient, stranger)))
        for patient in targets
    ]
    return 1 - float(np.mean(false)), len(targets)


def audit_release(homes, n_trials=100_000, seed=0):
    """Attack the counts of the first clinic, where a patient's cell and a stranger's differ."""
    noises = []

    def make_noise(*budget, **options):
        noises.append(VectorRelease(*budget, **options, counts=True))
        return noises[-1]

    n = len(homes[0])
    plan = plan_release("histogram", LAYOUT, 1, n, EPSILON, DELTA, make_noise=make_noise)
    neighbours = homes, with_stranger(homes, 0, np.full(2, TOWN))
    counts = [plan.values(part[0] / TOWN, np.zeros(n, dtype=int)).ravel() for part in neighbours]
    direction = counts[0] - counts[1]
    middle = direction @ (counts[0] + counts[1]) / 2

    def noisy_counts(exact, n_runs, random_state):
        source = make_source(np.random.RandomState(random_state))
        sizes = np.diff([*range(0, n_runs, 400), n_runs])
        noisy = [noises[0].run(np.tile(exact, (size, 1)), source) for size in sizes]
        return np.concatenate(noisy)

    return audit(
        noisy_counts, *counts, delta=DELTA, n_trials=n_trials, confidence=0.999, vectorized=True,
        log_density_ratio=lambda outputs: outputs @ direction - middle, random_state=seed,
    )  # fmt: skip


def advantage_of(result):
    """Return the advantage of saying yes when the first data set is the likelier one."""
    return float(np.mean(result.data_scores > 0) - np.mean(result.neighbour_scores > 0))


def print_membership(homes, grid):
    """Print advantages against the sum and against the release."""
    advantage, n_targets = advantage_against_sum(homes, grid)
    print(f"\nIs this person a patient? Advantage against the sum: {advantage:g}")
    print(f"(for each of {n_targets} patients whom attack 2 finds);")
    result = audit_release(homes)
    print(f"against the release: {advantage_of(result):.3f}, and {largest_advantage():.3f} is the")
    print(f"most that an epsilon of {EPSILON:g} permits.")
    print(f"Proven by the attack: epsilon is at least {result.epsilon_lower:.3f}")


# %%
# The picture
# -----------


def draw(homes, seen, points, masses):
    """Draw what was recovered from plain messages, from the sum, and from a release."""
    figure, (left, middle, right) = plt.subplots(
        1, 3, figsize=(12, 5.2), sharex=True, sharey=True, layout="constrained"
    )
    ring = {"facecolors": "none", "s": 45, "linewidths": 0.8}
    for axes in (left, right):
        axes.scatter(*homes[0].T, **ring, edgecolors="black", label="homes, clinic 1")
    left.scatter(*seen.plain[0].T, marker="x", s=20, color="C0", label="recovered")
    middle.scatter(*seen.pieces[:, :2].T, s=2, color="grey", label="means")
    for number, (own, found) in enumerate(zip(homes, seen.of_sum, strict=True)):
        middle.scatter(*own.T, **ring, edgecolors=f"C{number}")
        middle.scatter(*found.T, marker="x", s=20, color=f"C{number}", label=f"clinic {number + 1}")
    right.scatter(
        *points[0].T, marker="s", s=300 * masses[0], color="C3", alpha=0.6, label="released points"
    )
    left.set(title="Plain message", ylabel="km")
    middle.set(title="Sum of the messages")
    right.set(title=rf"Release, $\varepsilon$ = {EPSILON:g}")
    for axes in (left, middle, right):
        axes.set(xlabel="km", xlim=(0, TOWN), ylim=(0, TOWN), aspect="equal")
        axes.legend(
            loc="upper center",
            bbox_to_anchor=(0.5, -0.12),
            ncols=4,
            fontsize="small",
            columnspacing=1,
        )
    return figure


# %%
# Results
# -------
# A plain message discloses a home as soon as it is the nearest one for a whole square of
# candidates; with a fine grid, nearly all homes. Masks hide single messages, but *not the sum*:
# every plateau is an exact weighted mean, and most homes of all three clinics follow from corners,
# without help by any clinic. The attack only needs enough candidates, and the coordinator chooses
# how many there are. All recovered homes are right, so attackers can be sure without knowing the
# truth.
#
# Secure aggregation prevents only the first attack. It is worth having, but it is not private on
# its own. The release is private: from messages that are computed from it, attacks recover the
# released points, and these hit patients about as often as strangers.


def main():
    """Run all attacks, and show them."""
    homes = draw_homes()
    seen = print_round(homes)
    print_release(homes, public_grid(120))
    print_membership(homes, public_grid(240))
    draw(homes, seen, *released_homes(homes))
    plt.show()


if __name__ == "__main__":
    main()
