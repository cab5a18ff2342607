"""The MNIST digits, and data sets in their format, read from a file that the user has."""

import numpy as np
from sklearn.utils import Bunch

from skdpot.datasets._files import existing_file, read_arrays

_ARRAYS = ("x_train", "y_train", "x_test", "y_test")
_WHERE_TO_GET_IT = (
    "Give an .npz archive of the arrays x_train, y_train, x_test and y_test, as several packages "
    "distribute MNIST and Fashion-MNIST."
)


def load_mnist(path):
    """Load MNIST, or a data set in its format such as Fashion-MNIST, from an archive on disk.

    The data sets hold 60,000 images for training and 10,000 for testing, in ten classes. They do
    not come with this package. What is returned is what the file holds, without noise.

    Parameters
    ----------
    path : str or path-like
        An ``.npz`` archive of the arrays ``x_train`` and ``x_test``, images of shape (n, height,
        width) with grey values from 0 to 255, and ``y_train`` and ``y_test``, their classes.

    Returns
    -------
    data : :class:`~sklearn.utils.Bunch`
        Dictionary-like object, with the following attributes.

        data, data_test : ndarray of shape (n_images, height * width), dtype=float32
            Images, an image a row, from 0 to 1.
        target, target_test : ndarray of shape (n_images,)
            Classes.
        image_shape : tuple of int
            Height and width.

    Raises
    ------
    FileNotFoundError
        If there is no such file; the message says what to give.
    ValueError
        If it holds something else.

    References
    ----------
    Y. LeCun, L. Bottou, Y. Bengio and P. Haffner, "Gradient-based learning applied to document
    recognition", Proceedings of the IEEE 86(11), 1998. H. Xiao, K. Rasul and R. Vollgraf,
    "Fashion-MNIST", 2017. :arxiv:`1708.07747`

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> import numpy as np
    >>> from skdpot.datasets import load_mnist
    >>> images, classes = np.full((2, 28, 28), 255, dtype=np.uint8), np.array([3, 7])
    >>> with TemporaryDirectory() as folder:
    ...     file = Path(folder, "mnist.npz")
    ...     np.savez(file, x_train=images, y_train=classes, x_test=images, y_test=classes)
    ...     data = load_mnist(file)
    >>> data.data.shape, data.data.max(), data.target, data.image_shape
    ((2, 784), np.float32(1.0), array([3, 7]), (28, 28))
    """
    path = existing_file(path, _WHERE_TO_GET_IT)
    no_archive = f"{str(path)!r} is no such archive. {_WHERE_TO_GET_IT}"
    arrays = read_arrays(path, _ARRAYS, no_archive)
    if len(arrays) < len(_ARRAYS):
        raise ValueError(no_archive)
    for part in ("train", "test"):
        images, classes = arrays[f"x_{part}"], arrays[f"y_{part}"]
        if images.ndim != 3 or images.dtype != np.uint8 or classes.shape != images.shape[:1]:
            raise ValueError(
                f"{str(path)!r} must hold images of shape (n, height, width), of type uint8, and a "
                f"class of each; got {images.shape}, {images.dtype} and {classes.shape}."
            )
    return Bunch(
        data=_as_rows(arrays["x_train"]),
        target=arrays["y_train"],
        data_test=_as_rows(arrays["x_test"]),
        target_test=arrays["y_test"],
        image_shape=arrays["x_train"].shape[1:],
    )


def _as_rows(images):
    return images.reshape(len(images), -1).astype(np.float32) / 255
