"""Random directions, and by quadrature the mechanism that prefers a cap of the sphere."""

import math

import numpy as np
from scipy.integrate import quad
from scipy.optimize import brentq
from scipy.special import betainc


def unit_vectors(n_users, n_features, seed=0):
    """Return directions that are uniform on the sphere."""
    vectors = np.random.default_rng(seed).standard_normal((n_users, n_features))
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def integral_over_angles(n_features, lowest, highest, order=0.0):
    """Integrate the distance to a power over the angles of uniform vectors, unnormalised."""

    def integrand(angle):
        return (2.0 * math.sin(angle / 2)) ** order * math.sin(angle) ** (n_features - 2)

    # A few widths of the integrand around its largest value, and the rest.
    peak = min(max(math.pi / 2, lowest), highest)
    width = 1.0 / math.sqrt(n_features) if peak == math.pi / 2 else 10.0 / n_features
    around = {peak + k * width for k in (-8, -4, -2, -1, 0, 1, 2, 4, 8)}
    breaks = sorted(p for p in {lowest, peak / 2, highest} | around if lowest <= p <= highest)
    return math.fsum(
        quad(integrand, left, right, epsabs=0.0, epsrel=1e-12)[0]
        for left, right in zip(breaks, breaks[1:], strict=False)
    )


def cap_mechanism(n_features, epsilon, angle, order):
    """Return the scale and the expected cost of the mechanism whose cap has this angle."""
    ratio = math.exp(epsilon)
    whole = integral_over_angles(n_features, 0.0, math.pi)
    mass, cost = (
        ratio * integral_over_angles(n_features, 0.0, angle, power)
        + integral_over_angles(n_features, angle, math.pi, power)
        for power in (0.0, order)
    )
    return whole / mass, cost / mass


def optimal_cap_mechanism(n_features, epsilon, order, bracket):
    """Return the angle, the scale and the cost of the best cap.

    A larger cap helps as long as outputs on its edge cost less than an output does on average.
    """

    def edge_minus_mean(angle):
        return (2.0 * math.sin(angle / 2)) ** order - cap_mechanism(
            n_features, epsilon, angle, order
        )[1]

    angle = brentq(edge_minus_mean, *bracket, xtol=1e-300, rtol=1e-14)
    return angle, *cap_mechanism(n_features, epsilon, angle, order)


def cap_mechanism_cdf(z, n_features, epsilon, scale, threshold):
    """Return the probability that ``(1 - <x, y>) / 2`` is at most z under the mechanism."""
    shape = (n_features - 1) / 2
    below, far_above = betainc(shape, shape, z), betainc(shape, shape, 1.0 - z)
    return np.where(z <= threshold, math.exp(epsilon) * scale * below, 1.0 - scale * far_above)
