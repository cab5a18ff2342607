"""Utilities of amounts on edges: linear, quadratic, logarithmic, and the protocol of others."""

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

FAMILIES = ("linear", "quadratic", "log")
_METHODS = ("value", "derivative", "second_derivative", "take")
# Enough for amounts with an error of 3e-14 of the cap.
_BISECTIONS = 45


class ConcaveUtility(Protocol):
    """Protocol of utilities, for all edges of a side at once; amounts are never negative.

    Each edge's utility must be concave and differentiable, with a finite derivative at zero, and
    must depend only on its own amount. All methods work elementwise.
    """

    def value(self, amounts: np.ndarray) -> np.ndarray:
        """Return the utility of the amount on every edge."""

    def derivative(self, amounts: np.ndarray) -> np.ndarray:
        """Return the marginal utility, which never increases with the amount."""

    def second_derivative(self, amounts: np.ndarray) -> np.ndarray:
        """Return the derivative of the marginal utility: never positive."""

    def take(self, edges: np.ndarray) -> "ConcaveUtility":
        """Return the utilities of the edges at some positions, in that order."""


@dataclass(frozen=True, eq=False)
class LinearUtility:
    """Utilities ``slope * x``.

    Parameters
    ----------
    slopes : array-like of shape (n_edges,)
        Utility of one unit of amount.

    Examples
    --------
    >>> from skdpot.transport.consensus import LinearUtility
    >>> LinearUtility([1.0, 3.0]).value([2.0, 2.0])
    array([2., 6.])
    """

    slopes: np.ndarray

    def __post_init__(self) -> None:
        object.__setattr__(self, "slopes", _parameters(self.slopes, "slopes"))

    def value(self, amounts: Any) -> np.ndarray:
        """Return the utility of the amount on every edge."""
        return self.slopes * np.asarray(amounts)

    def derivative(self, amounts: Any) -> np.ndarray:
        """Return the slopes."""
        return self.slopes + np.zeros_like(amounts)

    def second_derivative(self, amounts: Any) -> np.ndarray:
        """Return zeros."""
        return np.zeros_like(amounts)

    def take(self, edges: np.ndarray) -> "LinearUtility":
        """Return the utilities of the edges at some positions."""
        return LinearUtility(self.slopes[edges])


@dataclass(frozen=True, eq=False)
class QuadraticUtility:
    """Utilities ``slope * x - curvature * x**2 / 2``.

    Parameters
    ----------
    slopes : array-like of shape (n_edges,)
        Marginal utility at zero.
    curvatures : array-like of shape (n_edges,)
        Decrease of the marginal utility with every unit of amount; non-negative.

    Examples
    --------
    >>> from skdpot.transport.consensus import QuadraticUtility
    >>> QuadraticUtility([1.0, 3.0], [0.0, 1.0]).value([2.0, 2.0])
    array([2., 4.])
    """

    slopes: np.ndarray
    curvatures: np.ndarray

    def __post_init__(self) -> None:
        object.__setattr__(self, "slopes", _parameters(self.slopes, "slopes"))
        curvatures = _parameters(self.curvatures, "curvatures", len(self.slopes))
        if (curvatures < 0).any():
            raise ValueError("curvatures must be non-negative.")
        object.__setattr__(self, "curvatures", curvatures)

    def value(self, amounts: Any) -> np.ndarray:
        """Return the utility of the amount on every edge."""
        amounts = np.asarray(amounts)
        return (self.slopes - 0.5 * self.curvatures * amounts) * amounts

    def derivative(self, amounts: Any) -> np.ndarray:
        """Return the marginal utility."""
        return self.slopes - self.curvatures * np.asarray(amounts)

    def second_derivative(self, amounts: Any) -> np.ndarray:
        """Return the derivative of the marginal utility."""
        return -self.curvatures + np.zeros_like(amounts)

    def take(self, edges: np.ndarray) -> "QuadraticUtility":
        """Return the utilities of the edges at some positions."""
        return QuadraticUtility(self.slopes[edges], self.curvatures[edges])

    def demand(self, prices: np.ndarray, caps: np.ndarray) -> np.ndarray:
        """Return the amounts in [0, caps] that are best at given prices."""
        gains = self.slopes - prices
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            return np.where(gains > 0, np.minimum(gains / self.curvatures, caps), 0.0)


@dataclass(frozen=True, eq=False)
class LogUtility:
    """Utilities ``weight * log(1 + x / scale)``.

    Parameters
    ----------
    weights : array-like of shape (n_edges,)
        Non-negative factors.
    scales : array-like of shape (n_edges,)
        Amounts whose utility is ``weight * log(2)``; positive. The marginal utility at zero is
        ``weight / scale``.

    Examples
    --------
    >>> from skdpot.transport.consensus import LogUtility
    >>> LogUtility([1.0, 2.0], [1.0, 2.0]).derivative([0.0, 2.0])
    array([1. , 0.5])
    """

    weights: np.ndarray
    scales: np.ndarray

    def __post_init__(self) -> None:
        weights = _parameters(self.weights, "weights")
        scales = _parameters(self.scales, "scales", len(weights))
        if (weights < 0).any():
            raise ValueError("weights must be non-negative.")
        if (scales <= 0).any():
            raise ValueError("scales must be positive.")
        object.__setattr__(self, "weights", weights)
        object.__setattr__(self, "scales", scales)

    def value(self, amounts: Any) -> np.ndarray:
        """Return the utility of the amount on every edge."""
        return self.weights * np.log1p(np.asarray(amounts) / self.scales)

    def derivative(self, amounts: Any) -> np.ndarray:
        """Return the marginal utility."""
        return self.weights / (self.scales + np.asarray(amounts))

    def second_derivative(self, amounts: Any) -> np.ndarray:
        """Return the derivative of the marginal utility."""
        return -self.weights / (self.scales + np.asarray(amounts)) ** 2

    def take(self, edges: np.ndarray) -> "LogUtility":
        """Return the utilities of the edges at some positions."""
        return LogUtility(self.weights[edges], self.scales[edges])

    def demand(self, prices: np.ndarray, caps: np.ndarray) -> np.ndarray:
        """Return the amounts in [0, caps] that are best at given prices."""
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            best = np.where(prices > 0, self.weights / prices - self.scales, np.inf)
        return np.where(self.weights > prices * self.scales, np.clip(best, 0.0, caps), 0.0)


def make_utility(family: Any, values: np.ndarray, scale: np.ndarray) -> Any:
    """Return the utility of a family with these parameters, one for every edge."""
    if family == "linear":
        return LinearUtility(values)
    if family == "quadratic":
        return QuadraticUtility(values, scale)
    if family == "log":
        return LogUtility(values, scale)
    found = family(values)
    _check_methods(found, "what a callable utility returns")
    return found


def check_utility(utility: Any, n_edges: int, name: str = "utility") -> None:
    """Raise unless a utility has this number of edges; a user's own class may not check it."""
    _check_methods(utility, name)
    if isinstance(utility, LinearUtility | QuadraticUtility):
        shape = utility.slopes.shape
    elif isinstance(utility, LogUtility):
        shape = utility.weights.shape
    else:
        shape = np.shape(utility.derivative(np.zeros(n_edges)))
    if shape != (n_edges,):
        raise ValueError(f"{name} must be of {n_edges} edges, got shape {shape}.")


def _check_methods(utility: Any, name: str) -> None:
    if not all(hasattr(utility, method) for method in _METHODS):
        raise TypeError(
            f"{name} must have the methods {', '.join(_METHODS)}; see ConcaveUtility and "
            "LinearUtility of skdpot.transport.consensus."
        )


def best_demand(utility: Any, prices: np.ndarray, caps: np.ndarray) -> np.ndarray:
    """Return the amounts in [0, caps] that maximise the utility less the price of every edge."""
    if hasattr(utility, "demand"):
        return utility.demand(prices, caps)
    low, high = np.zeros_like(caps), caps.copy()
    for _ in range(_BISECTIONS):
        middle = 0.5 * (low + high)
        rises = utility.derivative(middle) > prices
        low, high = np.where(rises, middle, low), np.where(rises, high, middle)
    return np.where(utility.derivative(caps) >= prices, caps, low)


def _parameters(values: Any, name: str, length: int | None = None) -> np.ndarray:
    """Return parameters as a finite array of doubles with one entry per edge."""
    try:
        values = np.array(values, dtype=np.float64)
    except Exception:
        values = None
    # Raised outside of the handler: the error there quotes values, which may be private.
    if values is None:
        raise ValueError(f"{name} cannot be read as numbers.")
    if values.ndim != 1 or (length is not None and len(values) != length):
        expected = "(n_edges,)" if length is None else f"({length},)"
        raise ValueError(f"{name} must have shape {expected}, got shape {values.shape}.")
    if not np.isfinite(values).all():
        raise ValueError(f"{name} must be finite.")
    return values
