"""Data sets of the examples: read from files on disk, or made up."""

from skdpot.datasets._checkins import load_checkins, make_city_checkins
from skdpot.datasets._fairness import load_adult, load_compas
from skdpot.datasets._mnist import load_mnist
from skdpot.datasets._movielens import load_movielens100k

__all__ = [
    "load_adult",
    "load_checkins",
    "load_compas",
    "load_mnist",
    "load_movielens100k",
    "make_city_checkins",
]
