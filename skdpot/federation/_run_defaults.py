"""Defaults of runs, for all that tells of them; imports nothing that takes long."""

from typing import Any

# Few owners have more rows. Whoever declares them has so much weight.
MAX_ROWS = 10_000_000
# What runs of either task may be told, and otherwise take: in an operator's file as on Flower.
OF_RUNS: dict[str, dict[str, Any]] = {
    "barycenter": {
        "n-support": int,
        "weights": "proportional",
        "on-missing": "raise",
        "n-attempts": 3,
        "max-rows": MAX_ROWS,
        "combine": "sum",
        "timeout": 120.0,
    },
    "allocation": {
        "eta": 1.0,
        "relaxation": 1.8,
        "tol": 0.0,
        "average-from": 0,
        "n-attempts": 3,
        "timeout": 120.0,
    },
}
