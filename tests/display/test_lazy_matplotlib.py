"""The import of matplotlib, by all displays, once something is plotted."""

import sys

import pytest

from skdpot import display

MADE = {
    display.GroupDistributionDisplay: lambda cls: cls(
        [[1.0, 2.0]], [[1.0, 2.0]], ["a", "b"], feature_names=["age"]
    ),
    display.LedgerDisplay: lambda cls: cls([0.5], ["mean"]),
    display.FrontierDisplay: lambda cls: cls([[1.0]], [[[1.0]]], labels=["a"]),
    display.SampleGridDisplay: lambda cls: cls([[0.0]], image_shape=(1, 1)),
}


def test_every_display_is_made_here():
    assert {cls.__name__ for cls in MADE} == set(display.__all__)


@pytest.mark.parametrize("cls", MADE)
def test_least_displays_can_be_drawn(cls):
    shown = MADE[cls](cls)
    assert shown.plot() is shown
    shown.figure_.canvas.draw()


@pytest.mark.parametrize("cls", MADE)
def test_plotting_without_matplotlib_says_what_to_install(cls, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r"pip install skdpot\[plot\]"):
        MADE[cls](cls).plot()
