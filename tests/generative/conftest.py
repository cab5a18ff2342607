"""Fixtures of the tests of generators."""

import pytest

from skdpot.generative._sketch import held_out, judges


@pytest.fixture
def few_samples(monkeypatch):
    """Make judges of quality quick."""
    monkeypatch.setattr(held_out, "_N_SAMPLES", 3000)
    monkeypatch.setattr(judges, "_MOST_FEATURES", 60)
    monkeypatch.setattr(judges, "_BOOSTED", 20)
