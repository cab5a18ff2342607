"""Loaders of the data sets of the examples, from files on disk."""

from skdpot.datasets._movielens import load_movielens100k

__all__ = ["load_movielens100k"]
