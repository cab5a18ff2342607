"""Privacy accounting: prices of events and plans, and the noise that a budget needs."""

from skdpot.privacy.accounting.calibration import calibrate_noise_multiplier, delta_of, epsilon_of
from skdpot.privacy.accounting.guarantees import (
    failure_delta,
    pure_epsilon,
    renyi_divergence,
    squared_gaussian_mu,
)
from skdpot.privacy.accounting.plans import plan_epsilon
from skdpot.privacy.accounting.relations import RELATIONS, check_relation, convert_event
