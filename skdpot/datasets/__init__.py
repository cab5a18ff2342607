"""Data sets of the examples: read from files on disk, or simulated."""

from ._checkins import load_checkins, make_city_checkins
from ._movielens import load_movielens100k
from ._people import load_adult, load_compas

__all__ = ["load_adult", "load_checkins", "load_compas", "load_movielens100k", "make_city_checkins"]
