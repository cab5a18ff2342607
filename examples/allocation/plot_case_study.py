r"""
=================================================================
Sharing out what four have among thirty, and what that tells
=================================================================

Four sources have 20 to 40 units each, of anything: power, vaccines, hours. Thirty targets want up
to 5 units. What a unit is worth differs between any two of them, on either side, and is everybody's
own business. Nodes therefore exchange *amounts*: each says what it wants, prices follow, and after
some rounds they agree on the plan that is worth most to all together. But who hears what a node
wants, in round after round, learns what it is worth to it.

This is the case study of "Differentially Private ADMM-Based Distributed Discrete Optimal Transport
for Resource Allocation", which adds noise to every message. Its three figures follow, with what its
column of privacy parameters leaves out: the paper's :math:`\beta` is the price of *one* round, by a
rate of the noise that is inverted (:ref:`allocations`). And beside it
:class:`skdpot.PrivateADMMTransport`, whose epsilon is that of all that a node ever sends.
"""

# %%
# The network
# -----------
# Bounds and edges are public, and so is the range of utilities, 1 to 5. Utilities are integers,
# drawn at random, of the targets and of the sources.

import matplotlib.pyplot as plt
import numpy as np

from skdpot import PrivateADMMTransport
from skdpot.display import AllocationPlanDisplay, BudgetWelfareDisplay
from skdpot.privacy.allocation_sensitivity import message_sensitivity
from skdpot.transport.consensus import LinearUtility, consensus, make_network, repair

N_TARGETS, N_SOURCES = 30, 4
UTILITY_RANGE = (1, 5)
N_NETWORKS = 20
# Of the paper: penalty, what it takes for the sensitivity, and how many rounds we let it have.
ETA, RHO, N_ROUNDS = 1.0, 2.0, 100


def draw_case(seed):
    """Return the utilities of both sides, and the public bounds."""
    rng = np.random.default_rng(seed)
    targets, sources = rng.integers(1, 6, (2, N_TARGETS, N_SOURCES)).astype(float)
    bounds = {
        "target_bounds": np.c_[np.zeros(N_TARGETS), rng.uniform(1, 5, N_TARGETS)],
        "source_bounds": np.c_[np.zeros(N_SOURCES), rng.uniform(20, 40, N_SOURCES)],
    }
    return targets, sources, bounds


targets, sources, bounds = draw_case(0)
best = PrivateADMMTransport(**bounds).fit(targets, source_utilities=sources)
print(f"{best.welfare_:.1f} in {best.n_iter_} rounds, the best up to {best.gap_:.0e} of it")

# %%
# The published noise
# -------------------
# It has a density that falls as :math:`\exp(-\xi \lVert e \rVert)`, with :math:`\xi = \rho \beta /
# \eta` as it is printed. A node's message moves by up to :math:`\Delta` if a utility of it changes
# within the range, so that a round costs :math:`\xi \Delta`, and all rounds what they add up to.


def published_noise(beta, rng):
    """Return what the paper does to the messages of a round."""

    def release(n_iter, eta, from_targets, from_sources):
        return tuple(
            amounts + spheres(amounts.size // n_edges, n_edges, RHO * beta / eta, rng).ravel()
            for amounts, n_edges in ((from_targets, N_SOURCES), (from_sources, N_TARGETS))
        )

    return release


def spheres(n, d, rate, rng):
    """Return n vectors with uniform directions and Gamma-distributed lengths."""
    directions = rng.standard_normal((n, d))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    return rng.gamma(d, 1 / rate, (n, 1)) * directions


def price_of(beta, bounds, n_rounds):
    """Return the epsilon that so many published rounds cost, of the node that pays most."""
    moved = [
        message_sensitivity(ETA, 4.0, of[:, 1].max(), degree)
        for of, degree in (
            (bounds["target_bounds"], N_SOURCES),
            (bounds["source_bounds"], N_TARGETS),
        )
    ]
    return n_rounds * RHO * beta / ETA * max(moved)


# %%
# Figure 1: do they agree?
# ------------------------
# The social utility of what is agreed on in every round, as part of the largest one. Without noise
# it settles. With :math:`\beta = 1000` it nearly does, and with :math:`\beta = 1` it never will;
# what is drawn there may be worth more than anything that exists, since noise has no bounds. (The
# plan that is made of it in the end has.)


def agree(targets, sources, bounds, beta, seed=0):
    """Return the welfare in every round, and of the plan in the end, as parts of the best one."""
    network = make_network(np.ones(targets.shape), **bounds)
    utilities = [LinearUtility(of.ravel()) for of in (targets, sources)]
    total = (targets + sources).ravel()
    noise = None if beta is None else published_noise(beta, np.random.default_rng(seed))
    rounds = []

    def release(n_iter, eta, *amounts):
        sent = amounts if noise is None else noise(n_iter, eta, *amounts)
        agreed = (sent[0] + sent[1][network.targets.positions]) / 2
        rounds.append(float(total @ agreed))
        return sent

    result = consensus(
        network, *utilities, eta=ETA, relaxation=1.0, adaptive=False, shifting=False,
        criterion=None, max_iter=N_ROUNDS, release=release,
    )  # fmt: skip
    return np.array(rounds), float(total @ repair(network, result.agreed))


fig, ax = plt.subplots(figsize=(7, 4), layout="constrained")
for beta, colour in ((None, "black"), (1000.0, "C0"), (1.0, "C1")):
    rounds, _ = agree(targets, sources, bounds, beta)
    name = (
        "no noise" if beta is None else rf"$\beta$ = {beta:g}: {price_of(beta, bounds, 100):,.0f}"
    )
    ax.plot(np.arange(1, N_ROUNDS + 1), rounds / best.welfare_, color=colour, label=name)
ax.set(xlabel="round", ylabel="social utility, of the best", ylim=(0.4, 1.3))
ax.legend(title="noise of the paper, and the epsilon of 100 rounds")

# %%
# Figure 2: who gets what
# -----------------------
# The best plan, and the one for utilities of which their nodes released nothing but what costs them
# an epsilon of 10 each, once.

private = PrivateADMMTransport(10.0, utility_range=UTILITY_RANGE, random_state=0, **bounds)
private.fit(targets, source_utilities=sources)
fig, axes = plt.subplots(1, 2, figsize=(10, 7), layout="constrained")
for ax, model, title in zip(axes, (best, private), ("no privacy", "epsilon 10"), strict=True):
    AllocationPlanDisplay.from_estimator(model).plot(ax=ax)
    share = model.score(targets, source_utilities=sources) / best.welfare_
    ax.set_title(f"{title}: {100 * share:.1f} % of the best")

# %%
# Figure 3: what privacy costs
# ----------------------------
# On 20 networks: plans by messages as published, repaired; by our messages, whose noise follows the
# sensitivity that is proven, and whose rounds and penalty are chosen on simulated utilities; and by
# utilities that are released once. Where the published ones stand depends on what one reads: their
# :math:`\beta`, or what they cost in all.

CASES = [draw_case(seed) for seed in range(N_NETWORKS)]
BESTS = [
    PrivateADMMTransport(**bounds).fit(t, source_utilities=s).welfare_ for t, s, bounds in CASES
]


def ratios(epsilon, **parameters):
    """Return the welfare on all networks, as parts of the best."""
    found = []
    for seed, ((t, s, bounds), most) in enumerate(zip(CASES, BESTS, strict=True)):
        model = PrivateADMMTransport(
            epsilon, utility_range=UTILITY_RANGE, random_state=seed, **bounds, **parameters
        )
        model.fit(t, source_utilities=s)
        found.append(model.score(t, source_utilities=s) / most)
    return found


EPSILONS = [0.3, 1.0, 3.0, 10.0, 30.0, 100.0]
curves = {
    "utilities, by response": [ratios(e) for e in EPSILONS],
    "messages": [ratios(e, mechanism="messages", delta=1e-5) for e in EPSILONS],
}
BETAS = [0.001, 0.01, 0.1, 1.0, 10.0]
published = [
    [
        agree(*case, beta, seed)[1] / most
        for seed, (case, most) in enumerate(zip(CASES, BESTS, strict=True))
    ]
    for beta in BETAS
]
prices = [price_of(beta, CASES[0][2], N_ROUNDS) for beta in BETAS]

scores = {name: (EPSILONS, values) for name, values in curves.items()}
scores["as published, what 100 rounds cost"] = (prices, published)
scores[r"as published, read by $\beta$"] = (BETAS, published)
BudgetWelfareDisplay.from_scores(scores).plot()
plt.show()

# %%
# The same as a table: the published parameter, what it says, and what it is.

print("beta    epsilon of 100 rounds    of the best welfare")
for beta, price, values in zip(BETAS, prices, published, strict=True):
    print(f"{beta:<8g}{price:<25,.1f}{np.mean(values):.3f}")
print("\nepsilon in all    utilities    messages")
for k, epsilon in enumerate(EPSILONS):
    print(f"{epsilon:<18g}" + "        ".join(f"{np.mean(of[k]):.3f}" for of in curves.values()))
