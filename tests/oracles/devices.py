"""Devices that tensors are tested on: the CPU, and a GPU where there is one."""

import pytest
import torch

NEEDS_CUDA = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
DEVICES = ["cpu", pytest.param("cuda", marks=NEEDS_CUDA)]
