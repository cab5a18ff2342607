"""An encoder of the user's own, whose codes are clipped to a declared norm."""

import math
from collections.abc import Callable
from numbers import Real
from typing import Any

import numpy as np

from skdpot._sklearn_compat import Interval
from skdpot.generative._encoders.encoder import (
    INSIDE,
    LARGEST_NORM,
    SMALLEST_NORM,
    Encoder,
    RecordSpace,
)
from skdpot.privacy.foreign import result_of, silence


class OwnEncoder(Encoder):
    """An encoder of your own: a fitted transformer, or a pair of functions.

    It is public, must be a function of the record, and must not have learned from private records.
    It is given one record at a time, after the charge, in the units of the data. If it fails on a
    record, or does not return finite numbers, the code is zero. Its output and warnings are hidden.

    Parameters
    ----------
    encoder : transformer or pair of callables
        A fitted transformer with an ``inverse_transform``, or a pair (encode, decode). For
        searches, whose clones are not fitted, wrap a transformer in
        `sklearn.frozen.FrozenEstimator`.
    largest_norm : float, default=None
        The largest norm of a code: longer ones are made shorter, and noise is scaled to it. None
        is the attribute `largest_norm` of the transformer.

    See Also
    --------
    skdpot.generative.VectorSketch : The sketch that it is for.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot import DPSinkhornGenerator
    >>> from skdpot.generative import OwnEncoder, VectorSketch
    >>> encoder = OwnEncoder((np.sqrt, np.square), largest_norm=2.0)
    >>> generator = DPSinkhornGenerator(bounds=(0, 1), model=VectorSketch(encoder))
    >>> generator.fit(np.random.default_rng(0).random((500, 2))).sample(3).shape
    (3, 2)
    """

    NAME_IN_FILES = "own"

    _parameter_constraints = {
        "encoder": "no_validation",
        "largest_norm": [Interval(Real, SMALLEST_NORM, LARGEST_NORM, closed="both"), None],
    }

    def __init__(self, encoder, largest_norm=None):
        self.encoder = encoder
        self.largest_norm = largest_norm

    @staticmethod
    def _accepts(encoder: Any) -> bool:
        """Tell whether a value is a transformer, or a pair of callables."""
        return _two_ways(encoder) is not None

    @classmethod
    def _from_header(cls, given: Any, header: dict[str, Any], space: RecordSpace) -> "OwnEncoder":
        """Return the user's encoder, checked against the header of a file, or raise."""
        if given is None:
            raise ValueError(
                "the file was saved with a user's own encoder: pass it again, as encoder=..."
            )
        if isinstance(given, cls):
            given = given.encoder
        prepared = cls(given, header.get("largest_norm")).prepared(space)
        if prepared.n_codes != header.get("n_codes"):
            raise ValueError(
                f"the encoder makes {prepared.n_codes} numbers of a record, and made "
                f"{header.get('n_codes')} when the generator was fitted."
            )
        return prepared

    def _prepare(self, space: RecordSpace, ample: bool) -> None:
        ways = _two_ways(self.encoder)
        if ways is None:
            raise ValueError(
                "your own encoder must be a fitted transformer with transform and "
                f"inverse_transform, or a pair (encode, decode); got {self.encoder!r}."
            )
        self._forward, self._back = ways
        self.largest_norm = self._read_norm()
        self._space = space
        low, high = space.box
        self.n_codes = self._try_on(np.stack([low + (high - low) / 2, low, high]))

    def _encode(self, points: np.ndarray) -> np.ndarray:
        records = self._space.records(points)
        codes = np.zeros((len(records), self.n_codes))
        with silence(), np.errstate(all="ignore"):
            for code, record in zip(codes, records, strict=True):
                self._encode_into(code, record)
        return codes

    def _decode(self, codes: np.ndarray) -> np.ndarray:
        low, high = self._space.box
        if not len(codes):
            return np.empty((0, len(low)))
        records = np.asarray(self._back(codes), dtype=np.float64)
        if records.shape != (len(codes), len(low)):
            raise ValueError(
                f"the encoder must turn {len(codes)} codes into an array of shape "
                f"{(len(codes), len(low))}, got {records.shape}."
            )
        return np.nan_to_num(self._space.points(records), nan=0.0)

    def _header(self) -> dict[str, Any]:
        return {
            "name": self.NAME_IN_FILES,
            "n_codes": self.n_codes,
            "largest_norm": self.largest_norm,
        }

    def _encode_into(self, code: np.ndarray, record: np.ndarray) -> None:
        """Write the code of a record; zeros stay if there is no valid code."""

        def encoded() -> np.ndarray:
            # A copy, because instructions of processors go by where in memory a row begins.
            return np.array(self._forward(record[None].copy()), dtype=np.float64)

        found = result_of(encoded, np.empty(0))
        if found.shape == (1, self.n_codes) and np.isfinite(found).all():
            norm = math.hypot(*found[0])
            code[:] = found[0]
            if norm > self.largest_norm * INSIDE:
                # In two steps, because the norm may be beyond the range of doubles.
                code /= np.abs(code).max()
                code *= self.largest_norm / math.hypot(*code) * INSIDE

    def _try_on(self, records: np.ndarray) -> int:
        """Return the length of a code, going by records that are public, or raise."""
        found = [np.asarray(self._forward(record[None].copy())) for record in records]
        n_codes = found[0].shape[-1] if found[0].ndim == 2 else 0
        numbers = all(code.dtype.kind in "fiu" for code in found)
        if not n_codes or not numbers or any(code.shape != (1, n_codes) for code in found):
            raise ValueError(
                "the encoder must return an array of numbers of shape (n_records, n_codes), got "
                f"the shapes {[code.shape for code in found]} for one record each."
            )
        codes = np.concatenate(found).astype(np.float64)
        if not np.isfinite(codes).all():
            raise ValueError(
                "the encoder must return finite numbers for records within bounds, and does "
                "not for the middle or a corner of them."
            )
        self._decode(codes)
        return n_codes

    def _read_norm(self) -> float:
        """Return the largest norm of a code, as it is declared."""
        norm: Any = self.largest_norm
        if norm is None:
            norm = getattr(self.encoder, "largest_norm", None)
        if norm is None:
            raise ValueError(
                "the norm of what an encoder of your own returns is not bounded: declare a bound, "
                "as OwnEncoder(encoder, largest_norm=...). Longer codes are scaled down to it, and "
                "noise is scaled to it."
            )
        number = isinstance(norm, int | float | np.number) and not isinstance(norm, bool)
        if not number or not SMALLEST_NORM <= norm <= LARGEST_NORM:
            raise ValueError(f"largest_norm must be a number from 1e-100 to 1e100, got {norm!r}.")
        return float(norm)


def _two_ways(
    encoder: Any,
) -> tuple[Callable[[np.ndarray], Any], Callable[[np.ndarray], Any]] | None:
    """Return the functions of an encoder of the user's own, or None."""
    if isinstance(encoder, tuple | list):
        ways = tuple(encoder)
    else:
        ways = tuple(getattr(encoder, way, None) for way in ("transform", "inverse_transform"))
    if len(ways) != 2 or not all(callable(way) for way in ways):
        return None
    return ways
