"""Measures of made images: how near they are to real ones, and whether they have shortcuts.

Distances are in a public feature space, in which nothing was learned: moduli of oriented wavelets.
"""

import numpy as np
from scipy.fft import dctn, idctn
from sklearn.metrics import euclidean_distances

from benchmarks.image_classifiers import CLASSIFIERS
from skdpot.generative._records import sinkhorn_divergence

_N_COMPARED, _NEIGHBOUR, _REG = 1000, 3, 0.05
# Wave lengths in pixels, and the number of directions, of wavelets; moduli are means of cells.
_WAVE_LENGTHS, _N_DIRECTIONS, _N_CELLS = (3.0, 6.0), 4, 4
# Shares of the highest frequency where bands begin.
_BANDS = {"low": (0.0, 0.25), "middle": (0.25, 0.5), "high": (0.5, 2.0)}
_N_SHORTCUT, _EPOCHS_OF_SHORTCUT = (5000, 1000), 3


def gray(X: np.ndarray, image_shape: tuple[int, ...]) -> np.ndarray:
    """Return images of shape (n, height, width), means over channels."""
    return X.reshape(-1, *(*image_shape, 1)[:3]).mean(axis=3)


def wavelet_features(X: np.ndarray, image_shape: tuple[int, ...]) -> np.ndarray:
    """Return moduli of oriented wavelets, and gray values, as means over cells of the image."""
    images = gray(X, image_shape)
    height, width = images.shape[1:]
    spectra = np.fft.fft2(images)
    rows, columns = np.fft.fftfreq(height)[:, None], np.fft.fftfreq(width)[None, :]
    found = [images]
    for length in _WAVE_LENGTHS:
        for k in range(_N_DIRECTIONS):
            angle = np.pi * k / _N_DIRECTIONS
            far = (rows - np.sin(angle) / length) ** 2 + (columns - np.cos(angle) / length) ** 2
            found.append(np.abs(np.fft.ifft2(spectra * np.exp(-2 * length**2 * far))))
    return np.concatenate([_cells(one) for one in found], axis=1)


def _cells(maps: np.ndarray) -> np.ndarray:
    """Return means over a grid of cells."""
    parts = [
        cell.mean(axis=(1, 2))
        for band in np.array_split(maps, _N_CELLS, axis=1)
        for cell in np.array_split(band, _N_CELLS, axis=2)
    ]
    return np.stack(parts, axis=1)


def likeness(made: np.ndarray, real: np.ndarray, image_shape: tuple[int, ...]) -> dict[str, float]:
    """Return precision, recall and a Sinkhorn divergence of wavelet features.

    Precision is the share of made images that are as near to a real one as its third neighbour is;
    recall is the reverse. The divergence is in mean variances of real features.
    """
    features = [wavelet_features(of[:_N_COMPARED], image_shape) for of in (made, real)]
    scale = np.sqrt(np.mean(features[1].var(axis=0)))
    rows, columns = features[0] / scale, features[1] / scale

    def share_near(points, others):
        radii = np.sort(euclidean_distances(others), axis=1)[:, _NEIGHBOUR]
        return float(np.mean((euclidean_distances(points, others) <= radii).any(axis=1)))

    return {
        "precision": share_near(rows, columns),
        "recall": share_near(columns, rows),
        "divergence": float(sinkhorn_divergence(rows, columns, reg=_REG)),
    }


def band_powers(X: np.ndarray, image_shape: tuple[int, ...]) -> dict[str, float]:
    """Return the mean power of each band of frequencies."""
    images = gray(X[:_N_COMPARED], image_shape)
    power = (np.abs(np.fft.fft2(images)) ** 2).mean(axis=0)
    height, width = images.shape[1:]
    far = 2 * np.hypot(np.fft.fftfreq(height)[:, None], np.fft.fftfreq(width)[None, :])
    power[0, 0] = 0.0
    return {
        name: float(power[(far >= low) & (far < high)].sum())
        for name, (low, high) in _BANDS.items()
    }


def fine_structure(X: np.ndarray, image_shape: tuple[int, ...]) -> np.ndarray:
    """Return what the lower half of the cosines, along each side, leaves out of gray images."""
    images = gray(X, image_shape)
    spectra = dctn(images, axes=(1, 2), norm="ortho")
    spectra[:, : images.shape[1] // 2, : images.shape[2] // 2] = 0
    return idctn(spectra, axes=(1, 2), norm="ortho").reshape(len(X), -1).astype(np.float32)


def fine_accuracies(X, y, *tests, image_shape: tuple[int, ...]) -> list[float]:
    """Return what a network that sees fine structure alone gets right of each test, in per cent.

    Made images that are told apart so better than real ones, or far better than what is learned
    from them tells real ones apart, have a shortcut: fine structure that betrays their class and
    that no real image has.
    """
    fine = fine_structure(X, image_shape)
    # Fine structure is small, and has no bounds.
    scale = max(fine.std(), 1e-6)
    network = CLASSIFIERS["batch norm"](image_shape[:2], 0, _EPOCHS_OF_SHORTCUT)
    network.fit(fine / scale, y)
    return [
        100 * float(np.mean(network.predict(fine_structure(of, image_shape) / scale) == labels))
        for of, labels in tests
    ]


def measures(made, labels, real, real_labels, image_shape: tuple[int, ...]) -> dict[str, float]:
    """Return all measures of made images, in random order, beside as many real ones.

    Powers are relative to those of real images; saturated and empty pixels are shares.
    """
    n, n_test = _N_SHORTCUT
    on_made, on_real = fine_accuracies(
        *(made[:n], labels[:n]),
        *((made[-n_test:], labels[-n_test:]), (real[:n_test], real_labels[:n_test])),
        image_shape=image_shape,
    )
    own, others = band_powers(made, image_shape), band_powers(real, image_shape)
    return {
        **likeness(made, real, image_shape),
        "saturated": float(np.mean(made[:_N_COMPARED] > 0.98)),
        "empty": float(np.mean(made[:_N_COMPARED] < 0.02)),
        **{name: own[name] / others[name] for name in _BANDS},
        "fine": on_made,
        "fine_on_real": on_real,
    }
