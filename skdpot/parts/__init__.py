"""Parts: releases of several owners that are added up, and the estimator fitted to their sum."""

from skdpot.parts._agreement import Agreement
from skdpot.parts._part import add_parts, make_part

__all__ = ["Agreement", "add_parts", "make_part"]
