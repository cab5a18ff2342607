"""The example of a synthetic table: what it spends, and that people are like the private ones."""

import numpy as np
import pytest


@pytest.fixture(scope="module")
def example(load_example):
    """Return the example as a module."""
    return load_example("generative/plot_table.py")


@pytest.fixture(scope="module")
def company(example):
    """Return the private table."""
    return example.make_company(example.N_RECORDS)


@pytest.mark.experiment
def test_a_release_is_charged_and_guaranteed(example, company):
    generator, ledger = example.release_once(company)
    assert ledger.spent() == pytest.approx((1.0, example.DELTA))
    assert generator.privacy_guarantee_.epsilon == 1.0


@pytest.mark.experiment
def test_people_are_like_the_private_ones(example, company):
    generator, made = example.make(company, 1.0)
    assert len(made) == example.N_DRAWN != len(company)
    assert made.columns.tolist() == list(example.SCHEMA)
    assert np.all(np.array(example.errors(made, company)) < (0.02, 0.04))
    conditions = {"age": (18, 25)}
    young = generator.sample(2000, given=conditions)
    assert young["age"].between(18, 25).all()
    promoted = company[company["age"] <= 25]["promoted"].eq("yes").mean()
    assert young["promoted"].eq("yes").mean() == pytest.approx(promoted, abs=0.06)
