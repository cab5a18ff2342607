"""The outputs of many releases, and the numbers, types and texts in them."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from tqdm.auto import tqdm

from skdpot.privacy.random import make_source

# Number of chunks that the trials on one data set are divided into, for any number of workers.
_N_CHUNKS = 32
_SEED_BITS = 32


@dataclass(frozen=True)
class Raised:
    """The outcome of a release that raised an error.

    Attributes
    ----------
    kind : str
        Name of the exception's class, which distinguishes such outcomes.
    message : str
        The message of the exception.
    """

    kind: str
    message: str


class Outcomes:
    """The outcomes of many releases: numbers, other objects, or errors.

    Parameters
    ----------
    outputs : list or ndarray
        One output per trial.

    Attributes
    ----------
    outputs : list or ndarray
        The same.
    matrix : ndarray of shape (n_trials, n_numbers) or None
        The outputs' numbers where all outputs are arrays of one shape and type.
    """

    def __init__(self, outputs: Any) -> None:
        if not isinstance(outputs, np.ndarray):
            outputs = _stack(outputs)
        self.outputs = outputs
        self.matrix = None
        if isinstance(outputs, np.ndarray):
            self.matrix = _real_numbers(outputs).reshape(len(outputs), -1)

    def __len__(self) -> int:
        return len(self.outputs)

    def __getitem__(self, part: slice) -> "Outcomes":
        return Outcomes(self.outputs[part])

    def numbers(self) -> list[np.ndarray]:
        """Return the numbers in every output; an output without numbers has none."""
        if self.matrix is not None:
            return list(self.matrix)
        return [_numbers(output) for output in self.outputs]

    def padded(self, width: int) -> np.ndarray:
        """Return the numbers as rows of this width, padded with zeros or cut off."""
        if self.matrix is not None and self.matrix.shape[1] == width:
            return self.matrix
        rows = np.zeros((len(self), width))
        for row, numbers in zip(rows, self.numbers(), strict=True):
            row[: len(numbers)] = numbers[:width]
        return rows

    def width(self) -> int:
        """Return the largest number of numbers in an output."""
        return max(len(numbers) for numbers in self.numbers())

    def names(self) -> list[str]:
        """Return the kind of every output: an array's type and shape, another type, or an error."""
        if self.matrix is not None:
            return [_kind(self.outputs.dtype, self.outputs.shape[1:])] * len(self)
        return [_name(output) for output in self.outputs]

    def texts(self) -> list[str]:
        """Return a text for every output that is not numerical, and an empty one for numbers."""
        if self.matrix is not None:
            return [""] * len(self)
        return [_text(output) for output in self.outputs]

    def atoms(self) -> list[tuple[str, str, bytes]]:
        """Return keys that are equal for bitwise equal outputs."""
        return [
            (name, text, numbers.tobytes())
            for name, text, numbers in zip(self.names(), self.texts(), self.numbers(), strict=True)
        ]


def alike_and_finite(first: Outcomes, second: Outcomes) -> bool:
    """Tell whether all outputs are arrays of one type and shape, with finite numbers alone."""
    matrices = first.matrix, second.matrix
    if any(matrix is None or not np.isfinite(matrix).all() for matrix in matrices):
        return False
    return first.names()[0] == second.names()[0]


def _stack(outputs: list) -> Any:
    """Return outputs as one array if they are numbers of one shape and type."""
    arrays = [array for output in outputs if (array := _as_numbers(output)) is not None]
    alike = len({(array.dtype, array.shape) for array in arrays}) == 1
    return np.stack(arrays) if alike and len(arrays) == len(outputs) else outputs


def _as_numbers(output: Any) -> np.ndarray | None:
    if isinstance(output, (Raised, str, bytes)) or output is None:
        return None
    try:
        array = np.asarray(output)
    except Exception:  # An output that cannot be an array is compared as text.
        return None
    return array if array.dtype.kind in "biufc" else None


def _real_numbers(array: np.ndarray) -> np.ndarray:
    if array.dtype.kind == "c":
        return np.stack([array.real, array.imag], axis=-1).astype(np.float64)
    return array.astype(np.float64)


def _numbers(output: Any) -> np.ndarray:
    array = _as_numbers(output)
    return np.empty(0) if array is None else _real_numbers(array).ravel()


def _name(output: Any) -> str:
    if isinstance(output, Raised):
        return f"raised {output.kind}"
    array = _as_numbers(output)
    if array is not None:
        return _kind(array.dtype, array.shape)
    return type(output).__name__


def _text(output: Any) -> str:
    if isinstance(output, Raised) or _as_numbers(output) is not None:
        return ""
    return repr(output.tolist() if isinstance(output, np.ndarray) else output)


def _kind(dtype: np.dtype, shape: tuple[int, ...]) -> str:
    return f"{dtype}{shape}"


def collect(
    release: Any,
    pair: tuple[Any, Any],
    n_trials: int,
    *,
    vectorized: bool,
    n_jobs: int | None,
    random_state: Any,
    verbose: int,
) -> tuple[Outcomes, Outcomes]:
    """Release `n_trials` times from each of two data sets, with the parameters of `audit`.

    Raises a RuntimeError if every release raised, or if any did when one call makes many.
    """
    sizes = np.full(min(_N_CHUNKS, n_trials), n_trials // min(_N_CHUNKS, n_trials))
    sizes[: n_trials - sizes.sum()] += 1
    source = None if random_state is None else make_source(random_state)
    run = _run_vectorized if vectorized else _run_singly
    tasks = []
    for data in pair:
        for size in sizes.tolist():
            n_seeds = 1 if vectorized else size
            seeds = [None] * n_seeds if source is None else source.bits(_SEED_BITS, n_seeds)
            tasks.append(delayed(run)(release, data, size, seeds))
    with tqdm(tasks, desc="releases", disable=not verbose) as watched:
        chunks = Parallel(n_jobs=n_jobs, max_nbytes=None)(watched)
    halves = chunks[: len(sizes)], chunks[len(sizes) :]
    if vectorized:
        return Outcomes(_join(halves[0])), Outcomes(_join(halves[1]))
    first, second = ([output for chunk in half for output in chunk] for half in halves)
    _check_some_worked(first + second)
    return Outcomes(first), Outcomes(second)


def _run_singly(release: Any, data: Any, size: int, seeds: Any) -> list:
    outputs: list[Any] = []
    for seed in seeds:
        keywords = {} if seed is None else {"random_state": int(seed)}
        try:
            outputs.append(release(data, **keywords))
        except Exception as error:
            outputs.append(Raised(type(error).__name__, str(error)))
    return outputs


def _run_vectorized(release: Any, data: Any, size: int, seeds: Any) -> Any:
    keywords = {} if seeds[0] is None else {"random_state": int(seeds[0])}
    try:
        outputs = release(data, size, **keywords)
    except Exception as error:
        raise RuntimeError(
            f"release(data, {size}) raised {type(error).__name__}: {error}. Which of the "
            "trials raised cannot be told; with vectorized=False an error is an outcome like "
            "others, since one that a single data set triggers is a leak."
        ) from error
    if len(outputs) != size:
        raise ValueError(
            f"release(data, {size}) must return {size} outputs with vectorized=True, got "
            f"{len(outputs)}."
        )
    return outputs


def _join(chunks: list) -> Any:
    """Return the outputs of all chunks, as one array if all chunks are arrays of one kind."""
    arrays = [array for chunk in chunks if (array := _as_numbers(chunk)) is not None]
    alike = len({(array.dtype, array.shape[1:]) for array in arrays}) == 1
    if alike and len(arrays) == len(chunks):
        return np.concatenate(arrays)
    return [output for chunk in chunks for output in chunk]


def _check_some_worked(outputs: list) -> None:
    if all(isinstance(output, Raised) for output in outputs):
        first = outputs[0]
        raise RuntimeError(f"release raised at every trial, at first {first.kind}: {first.message}")
