"""Generators of synthetic data, and their parts."""

from ._base import BaseGenerator as BaseGenerator
from ._encoders.cosine import CosineEncoder
from ._encoders.pose import PoseEncoder
from ._engine import load_engine as load_engine
from ._fitted import FittedRecords as FittedRecords
from ._generator import DPSinkhornGenerator
from ._network import NetworkTraining
from ._network import TrainedNetwork as TrainedNetwork
from ._network import Training as Training
from ._network import training_of as training_of
from ._records import DEFAULT_BOUNDS as DEFAULT_BOUNDS
from ._records import Declared as Declared
from ._records import Points as Points
from ._records import read_points as read_points
from ._records import unseen_points as unseen_points
from ._sketch.plan import least_noise as least_noise
from ._sketch.plan import rounded_up as rounded_up
from ._sketch.released_table import ReleasedTable as ReleasedTable
from ._sketch.table_sketch import TableSketch
from ._sketch.table_sketch import plan_table as plan_table
from ._sketch.vectors import ImageSketch, VectorSketch
from ._template import schema_template

__all__ = [
    "CosineEncoder",
    "DPSinkhornGenerator",
    "ImageSketch",
    "NetworkTraining",
    "PoseEncoder",
    "TableSketch",
    "VectorSketch",
    "schema_template",
]
