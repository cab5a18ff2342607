"""Fixtures that the tests of displays share."""

import matplotlib
import pytest


@pytest.fixture(autouse=True)
def closed_figures():
    """Draw on no screen, and close what was drawn."""
    matplotlib.use("Agg")
    from matplotlib import pyplot

    yield
    pyplot.close("all")


@pytest.fixture
def legend_of():
    """Return a function that returns the texts of a legend."""
    return lambda ax: [text.get_text() for text in ax.get_legend().get_texts()]
