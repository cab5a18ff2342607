"""The vector that a training step releases, and its sensitivity."""

import math
from dataclasses import dataclass
from typing import Any

from skdpot.privacy.sensitivity import clipped_gradient_sensitivity, clipped_sum_sensitivity

# Range of the loss beside a gradient that is clipped as a whole, as a share of its diameter.
_LOSS_SHARE = 0.25
# Weights of the number of records and of losses beside sums over records, as a share of the
# clipping norm.
_COUNT_SHARE = 0.125
# Possible releases of a step, and the engine's name of such a step.
GRADIENTS = {
    "per_record": "per_record",
    "images": "per_image",
    "per_image": "per_image",
    "parameters": "parameters",
}


@dataclass(frozen=True)
class StepVector:
    """The composition of a step's vector.

    Attributes
    ----------
    sensitivity : float
        How much one record moves it, in the l2 norm, under the relation of the training.
    sensitivity_to_added : float
        How much an added record moves it.
    clip_norm : float
        Norm that gradients are clipped to.
    per_point : bool
        Whether the gradient of each generated point is clipped on its own.
    loss_weight, count_weight : float
        Multipliers of a loss in [0, 1], and of the number of records.
    """

    sensitivity: float
    sensitivity_to_added: float
    clip_norm: float
    per_point: bool
    loss_weight: float
    count_weight: float

    def settings(self, noise_multiplier: float) -> dict[str, Any]:
        """Return it as settings of the engine; nothing is clipped without noise."""
        return {
            "clip_norm": self.clip_norm if noise_multiplier else math.inf,
            "per_point": self.per_point,
            "loss_weight": self.loss_weight,
            "count_weight": self.count_weight,
            "count_noise": self.count_noise(noise_multiplier),
        }

    def count_noise(self, noise_multiplier: float) -> float:
        """Return the standard deviation of the noise on the number of records, or 0."""
        if not self.count_weight:
            return 0.0
        return noise_multiplier * self.sensitivity / self.count_weight


def make_vector(gradient: str, clip_norm: float, batch_size: int, neighbouring: str) -> StepVector:
    """Return the composition of a step's vector, for gradients clipped to a norm.

    `gradient` is one of "per_record", "images", "per_image" and "parameters", and `batch_size` the
    number of generated points.

    Examples
    --------
    >>> from skdpot.published._step_vector import make_vector
    >>> vector = make_vector("per_record", 8.0, 50, "add_remove")
    >>> vector.count_weight, round(vector.sensitivity, 2)
    (1.0, 8.12)
    """
    if gradient == "per_record":
        # A power of two, so that losses on a grid stay on a grid.
        weight = 2.0 ** round(math.log2(_COUNT_SHARE * clip_norm))
        sensitivity, of_added = (
            clipped_sum_sensitivity(
                clip_norm, count_weight=weight, loss_weight=weight, relation=relation
            )
            for relation in (neighbouring, "add_remove")
        )
        return StepVector(sensitivity, of_added, clip_norm, False, weight, weight)
    per_point = gradient == "per_image"
    n_parts = batch_size if per_point else 1
    weight = _LOSS_SHARE * clipped_gradient_sensitivity(clip_norm, n_parts=n_parts)
    sensitivity = clipped_gradient_sensitivity(clip_norm, n_parts=n_parts, loss_range=weight)
    return StepVector(sensitivity, sensitivity, clip_norm, per_point, weight, 0.0)


def default_clip_norm(gradient: str, n_features: int, l1_weight: float, batch_size: int) -> float:
    """Return about the norm of a gradient between rows at a moderate distance: public."""
    of_record = (0.7 + l1_weight) * math.sqrt(n_features)
    if gradient == "per_record":
        return of_record
    if gradient == "parameters":
        return 1.0
    return 2 * of_record / (batch_size if gradient == "per_image" else math.sqrt(batch_size))
