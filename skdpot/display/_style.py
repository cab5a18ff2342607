"""What plots have in common: matplotlib, once it is needed, and how curves are told apart."""

from typing import Any

import numpy as np

# Colours that colour-blind readers can tell apart (M. Okabe, K. Ito), the darkest ones first.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
MARKERS = ("o", "s", "^", "D", "v", "P")
DASHES = ("-", "--", "-.", (0, (1, 1.2)), (0, (6, 1.5, 1, 1.5, 1, 1.5)), (0, (8, 2)))
GREY = "0.35"


def load_pyplot() -> Any:
    """Return ``matplotlib.pyplot``, or raise and say how to install it."""
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise ImportError(
            "plots need matplotlib; install it with `pip install skdpot[plot]`."
        ) from error
    return pyplot


def numbers(values: Any) -> np.ndarray:
    """Return values as floats; None is none of them."""
    return np.empty(0) if values is None else np.asarray(values, dtype=np.float64)
