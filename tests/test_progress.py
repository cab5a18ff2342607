"""Progress bars: their clock goes on during a step, and ends with the bar."""

import io
import sys
import threading
import time

import numpy as np
import pytest

from skdpot import DPSinkhornGenerator, WassersteinProjectionSampler, _progress


def clocks():
    """Return the threads that are not those of Python or of tqdm."""
    return [thread for thread in threading.enumerate() if type(thread) is threading.Thread]


def test_the_clock_goes_on_during_a_step_and_ends_with_the_bar(monkeypatch):
    monkeypatch.setattr(_progress, "_PAUSE", 0.01)
    before, shown = clocks(), io.StringIO()
    with _progress.progress_bar(total=1, file=shown) as bar:
        first = shown.getvalue().count("\r")
        until = time.monotonic() + 10
        while shown.getvalue().count("\r") < first + 3 and time.monotonic() < until:
            time.sleep(0.01)
        assert shown.getvalue().count("\r") >= first + 3 and bar.n == 0
    ended = shown.getvalue()
    assert clocks() == before
    time.sleep(0.05)
    assert shown.getvalue() == ended


def test_a_hidden_bar_has_no_clock():
    before = clocks()
    with _progress.progress_bar([1, 2], disable=True) as bar:
        assert list(bar) == [1, 2] and clocks() == before


@pytest.mark.parametrize(
    "release",
    [
        lambda X: DPSinkhornGenerator(bounds=(0, 1), verbose=1).fit(X).sample(),
        lambda X: WassersteinProjectionSampler(verbose=1).fit(X).transform(X),
    ],
)
def test_a_release_goes_on_where_nothing_can_be_shown(release, monkeypatch):
    class Closed(io.StringIO):
        tried = 0

        def write(self, text):
            Closed.tried += 1
            raise BrokenPipeError

    monkeypatch.setattr(sys, "stderr", Closed())
    assert np.size(release(np.random.default_rng(0).uniform(size=(500, 2)))) and Closed.tried
