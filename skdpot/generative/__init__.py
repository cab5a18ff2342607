"""Generators of synthetic data."""

from ._generator import DPSinkhornGenerator

__all__ = ["DPSinkhornGenerator"]
