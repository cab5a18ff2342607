"""The images of benchmarks, read from archives that the environment names."""

import numpy as np
from sklearn.utils import Bunch


def load_images(path):
    """Return the images of an archive of x_train, y_train, x_test and y_test, from 0 to 1."""
    with np.load(path, allow_pickle=False) as arrays:
        rows = {
            part: arrays[f"x_{part}"].reshape(len(arrays[f"x_{part}"]), -1).astype(np.float32) / 255
            for part in ("train", "test")
        }
        return Bunch(
            data=rows["train"], target=arrays["y_train"], data_test=rows["test"],
            target_test=arrays["y_test"], image_shape=arrays["x_train"].shape[1:],
        )  # fmt: skip
