"""Import of the libraries that keys and secure sums need."""

import importlib
from typing import Any


def library(name: str) -> Any:
    """Import a library, or say how it is installed."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ImportError(
            f"keys and secure sums need the package {name.partition('.')[0]!r}, which comes with "
            '`pip install "skdpot[federated]"`.'
        ) from error
