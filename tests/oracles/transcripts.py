"""Transcripts of releases: recorded in one fit, replayed in that of a neighbouring data set."""

import contextlib
import pickle
from dataclasses import dataclass, field

import numpy as np

from skdpot.privacy.noise import NoiseSource
from skdpot.releases import Release
from skdpot.releases._sums import ReleaseSeries


@dataclass
class Transcript:
    """What was released, in order, and whether the neighbour's values would have been others.

    A release that is made of others, such as that of a sketch, is not on the transcript: the others
    are. Which ones these are shows before they end.
    """

    composed: set[type] = field(default_factory=set)
    running: list[type] = field(default_factory=list)
    released: list[bytes] = field(default_factory=list)
    values: list[bytes] = field(default_factory=list)
    position: int = 0
    recording: bool = False
    replaying: bool = False
    neighbour_differs: bool = False

    def record(self):
        """Begin to record."""
        self.recording = True

    def replay(self):
        """Begin to return what was recorded."""
        self.recording, self.replaying = False, True

    @property
    def is_complete(self):
        return self.position == len(self.released)

    def run(self, cls, make, values):
        """Return the result of a release: made, recorded, or replayed."""
        self.composed.update(self.running)
        self.running.append(cls)
        try:
            # The noise is drawn in a replay, too, so that later draws are the same.
            released = make()
        finally:
            self.running.pop()
        if cls in self.composed or not (self.recording or self.replaying):
            return released
        values = pickle.dumps(values)
        if self.recording:
            self.values.append(values)
            self.released.append(pickle.dumps(released))
            return released
        assert not self.is_complete, "the neighbour has more releases"
        self.neighbour_differs |= self.values[self.position] != values
        self.position += 1
        return pickle.loads(self.released[self.position - 1])


def subclasses(base):
    """Return all subclasses of a class, near and far."""
    found = base.__subclasses__()
    return [*found, *(cls for child in found for cls in subclasses(child))]


@contextlib.contextmanager
def on_transcript(transcript):
    """Let the results of all releases go through a transcript."""
    originals = {
        cls: vars(cls)["run"]
        for cls in {*subclasses(Release), *subclasses(ReleaseSeries)}
        if "run" in vars(cls)
    }

    def hooked(cls, original):
        def run(self, *args, **options):
            return transcript.run(cls, lambda: original(self, *args, **options), values_of(args))

        return run

    for cls, original in originals.items():
        cls.run = hooked(cls, original)
    try:
        yield transcript
    finally:
        for cls, original in originals.items():
            cls.run = original


def values_of(args):
    """Return the arguments of a release that may be private: all but sources of noise."""
    return [arg for arg in args if not isinstance(arg, NoiseSource) and not callable(arg)]


def differences(one, other, name="", depth=12):
    """Return where two objects differ, bit by bit."""
    if type(one) is not type(other):
        return [f"{name}: {type(one).__name__} and {type(other).__name__}"]
    if isinstance(one, np.ndarray):
        if one.dtype == object:
            return differences(one.tolist(), other.tolist(), name, depth)
        same = one.shape == other.shape and one.dtype == other.dtype
        return [] if same and one.tobytes() == other.tobytes() else [name]
    if hasattr(one, "detach"):
        return differences(one.detach().numpy(), other.detach().numpy(), name, depth)
    if isinstance(one, dict):
        if list(map(repr, one)) != list(map(repr, other)):
            return [f"{name}: keys"]
        pairs = [(f"{name}[{key!r}]", one[key], other[key]) for key in one]
    elif isinstance(one, list | tuple):
        if len(one) != len(other):
            return [f"{name}: length"]
        pairs = [(f"{name}[{i}]", a, b) for i, (a, b) in enumerate(zip(one, other, strict=True))]
    elif hasattr(one, "__dict__") and not isinstance(one, type) and not callable(one):
        pairs = [(name, vars(one), vars(other))]
    else:
        same = one == other or one is other or repr(one) == repr(other)
        return [] if same else [f"{name}: {one!r} and {other!r}"]
    if depth == 0:
        return []
    return [found for where, a, b in pairs for found in differences(a, b, where, depth - 1)]
