"""Defaults of runs, in a module that is imported quickly."""

from typing import Any

# Few owners have more rows. An owner has the weight of the rows that it declares.
MAX_ROWS = 10_000_000
# Settings of the runs of both tasks and their defaults, in an operator's file and on Flower.
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
