"""Plans of private groups, records for them, and what noise is added to."""

import numpy as np

from skdpot.privacy.noise import make_source
from skdpot.releases import HistogramRelease, UnitLayout

DELTA = 1e-5
LAYOUTS = {
    "line": UnitLayout((0,), ()),
    "plane": UnitLayout((0, 0), ()),
    "binary": UnitLayout((2,), ()),
    "levels": UnitLayout((3, 4), ()),
    "block": UnitLayout((), (3,)),
    "blocks": UnitLayout((), (2, 4)),
    "mixed": UnitLayout((0, 0, 5, 2), (3, 2)),
    "one category": UnitLayout((0, 0), (1, 3)),
}


def make_plan(name="mixed", n_groups=3, n_records=500, epsilon=1.0, delta=DELTA):
    return HistogramRelease(LAYOUTS[name], n_groups, n_records, epsilon, delta)


def random_records(layout, n, rng, undeclared=0.2):
    """Return valid records in unit coordinates, with all-zero blocks among them."""
    numbers = np.round(rng.random((n, layout.n_numbers)) * 4) / 4
    smooth = np.array(layout.levels) == 0
    numbers[:, smooth] = rng.random((n, smooth.sum()))
    categories = [rng.integers(0, k, n) for k in layout.blocks]
    V = layout.points(numbers, categories)
    V[:, : layout.n_numbers] = layout.read(V)[0]
    for block in layout.block_slices:
        V[rng.random(n) < undeclared, block] = 0.0
    return V


def exact_values(plan, V, codes):
    """Return the vector that a release adds noise to."""
    V, codes = np.atleast_2d(V), np.atleast_1d(codes)
    values = plan.values(V, codes)
    return values.ravel()


def noisy_values(plan, V, codes, seed):
    """Return that vector with the noise of a run."""
    plan.groups_of = lambda released: released
    noisy = plan.run((V, codes), make_source(seed))
    del plan.groups_of
    return noisy.ravel()
