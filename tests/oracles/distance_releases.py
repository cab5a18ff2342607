"""Values that a fit of PrivateSinkhornDistance adds noise to, and many draws of its releases."""

import numpy as np

from skdpot.privacy.noise import make_source


class _Listener:
    """Noise that keeps what it was given; all else is that of the noise it stands for."""

    def __init__(self, noise):
        self.noise = noise

    def run(self, values, source):
        self.values = np.array(values)
        return self.noise.run(values, source)

    def __getattr__(self, name):
        return getattr(self.noise, name)


def plan(estimator, X, y):
    """Return what a fit would release, and the records as it would take them."""
    records = estimator._validate(X, y)
    return estimator._plan(records).release, records[0]


def exact_values(release, X):
    """Return the vector that a release of costs or of counts adds noise to."""
    listener = release._noise = _Listener(release._noise)
    released = release.run(X, make_source(0))
    release._noise = listener.noise
    return listener.values, released


def noisy_values(release, values, n_releases, random_state):
    """Return that vector with noise, many times.

    All noise is drawn at once, as if it were that of one vector; it is as large as for each.
    """
    release._noise._mechanism.n_coordinates = n_releases * values.size
    copies = np.broadcast_to(values, (n_releases, *values.shape))
    return release._noise.run(copies, make_source(random_state))
