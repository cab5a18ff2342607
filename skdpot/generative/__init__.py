"""Generators of synthetic data, and their parts."""

from ._draws import ReleasedTable as ReleasedTable
from ._encoders import CosineEncoder, PoseEncoder
from ._files import load_generator as load_generator
from ._generator import BaseGenerator as BaseGenerator
from ._generator import DPSinkhornGenerator, schema_from
from ._network import NetworkTraining
from ._network import load_engine as load_engine
from ._network import trained_network as trained_network
from ._network import training_of as training_of
from ._records import FittedRecords as FittedRecords
from ._records import min_noise as min_noise
from ._records import read_points as read_points
from ._records import rounded_up as rounded_up
from ._records import schema_template
from ._records import unseen_points as unseen_points
from ._table import TableSketch
from ._table import plan_table as plan_table
from ._vectors import ImageSketch, VectorSketch

__all__ = [
    "CosineEncoder", "DPSinkhornGenerator", "ImageSketch", "NetworkTraining", "PoseEncoder",
    "TableSketch", "VectorSketch", "schema_from", "schema_template",
]  # fmt: skip
