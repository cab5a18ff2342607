"""Workloads of tables: what is wanted has less noise, by as much as its weight says."""

import math

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

from skdpot import DPSinkhornGenerator, PrivacyLedger
from skdpot.generative import TableSketch
from skdpot.generative._files import read_generator, write_generator
from skdpot.generative._sketch.marginals import release_marginals, share_marginals
from skdpot.generative._sketch.workload import read_workload
from skdpot.privacy.random import make_source
from skdpot.releases import SketchReleases
from skdpot.tables import read_schema
from tests.oracles.sketch import moved_by, squared_mu, transcript_of

SCHEMA = {f"x{j}": list("abc") for j in range(4)} | {"y": ["no", "yes"]}
WORKLOAD = {"x0": 4, ("x1", "y"): 9.0, ("x3", "x2"): 16, ("x0", "x1", "x2"): 25}


def make(workload=None, **params):
    model = TableSketch(n_components=30, n_iter=60, workload=workload)
    options = {"epsilon": 2.0, "schema": SCHEMA, "target": "y", "model": model}
    return DPSinkhornGenerator(**options | params)


def some_units(n, seed=0):
    rng = np.random.default_rng(seed)
    return np.column_stack([rng.integers(0, 3, (n, 4)), rng.integers(0, 2, n)])


def make_table(n=500, seed=0):
    """Return a table whose first three columns have the sum 0, in thirds."""
    codes = some_units(n, seed)
    codes[:, 2] = -codes[:, 0] - codes[:, 1]
    letters = {f"x{j}": np.array(list("abc"))[codes[:, j] % 3] for j in range(4)}
    return pd.DataFrame(letters | {"y": np.array(["no", "yes"])[codes[:, 4]]})


def transcript(workload, units, noise=5.0, seed=0, given=None):
    """Return the releases of marginals, and what they give."""
    schema = read_schema(SCHEMA, "y")
    read = read_workload(workload, schema)
    shares = share_marginals(schema, parities=True, workload=read)
    releases = SketchReleases(noise, shares, "add_remove", make_source(seed))
    found = []

    def release():
        made = release_marginals(units, schema, releases, parities=True, workload=read)
        found.append(made)

    return transcript_of(release, given=given), found[0]


@pytest.mark.parametrize("workload", [None, WORKLOAD, ["x0", ("x0", "x1"), ("x1", "x2", "x3")]])
def test_releases_of_all_weights_are_the_budget(workload):
    units = some_units(400)
    first, _ = transcript(workload, units)
    more, _ = transcript(workload, np.vstack([units, [2, 0, 1, 2, 1]]), given=first)
    moved = moved_by(more, first)
    assert all(far == pytest.approx(1) for far in moved.values())
    assert squared_mu(more, first) == pytest.approx(1 / 5.0**2, rel=1e-9)
    assert squared_mu(more, first) <= 1 / 5.0**2


def test_noise_falls_with_the_root_of_the_weight():
    made, released = transcript(WORKLOAD, some_units(400))
    of_values, of_pairs = released["deviations"]
    for weight in (4.0, 9.0):
        name = f"values of weight {weight!r}"
        assert made[name].deviation == pytest.approx(of_values / math.sqrt(weight))
    for weight in (16.0, 25.0):
        name = f"pairs of weight {weight!r}"
        assert made[name].deviation == pytest.approx(of_pairs / math.sqrt(weight))
    assert made["values"].deviation == pytest.approx(of_values)
    assert made["pairs"].deviation == pytest.approx(of_pairs)
    np.testing.assert_array_equal(released["column_weights"], [4, 9, 1, 1])
    np.testing.assert_array_equal(released["pair_weights"], [1, 1, 1, 1, 1, 16])


def test_errors_of_what_is_wanted_fall_as_theory_says():
    units = some_units(3000)
    exact = np.array([[np.sum(units[:, j] == k) for k in range(3)] for j in range(4)])
    errors = {}
    for name, workload in (("even", None), ("wanted", {"x0": 16})):
        found = [transcript(workload, units, seed=seed)[1] for seed in range(30)]
        shown = np.array([of["counts"].sum(axis=1).reshape(4, 3) for of in found])
        errors[name] = np.sqrt(np.mean((shown - exact) ** 2, axis=(0, 2)))
    shares = [0.3 * (16 + 3) / 4 + 0.4 + 0.08, 0.3 + 0.4 + 0.08]
    loss = math.sqrt(shares[0] / shares[1])
    np.testing.assert_allclose(
        errors["wanted"] / errors["even"], [loss / 4, loss, loss, loss], rtol=0.35
    )
    previews = [
        {error.quantity: error.error for error in make(workload).preview(3000).errors}
        for workload in (None, {"x0": 16})
    ]
    of_x0 = "standard error of the share of a category of 'x0'"
    # Pairs tell of columns, too, and matter less where counts are precise.
    assert loss / 4 < previews[1][of_x0] / previews[0][of_x0] < 1.4 * loss / 4


def test_columns_that_are_wanted_together_are_sampled_together():
    generator = make([("x0", "x1", "x2")], epsilon=20.0, random_state=0).fit(make_table(4000))
    sampled = generator.sample(3000)
    codes = sum(sampled[f"x{j}"].map({"a": 0, "b": 1, "c": 2}) for j in range(3))
    assert (codes % 3 == 0).mean() > 0.85
    given = generator.sample(300, given={"x0": "b", "x1": "b"})
    assert (given["x2"] == "b").mean() > 0.8


def test_files_and_copies_hold_the_workload(tmp_path):
    path = tmp_path / "generator"
    generator = make(WORKLOAD, random_state=0).fit(make_table())
    generator.save(path)
    loaded = DPSinkhornGenerator.load(path)
    again = clone(loaded).set_params(random_state=0).fit(make_table())
    for other in (loaded.set_params(random_state=0), again):
        pd.testing.assert_frame_equal(other.sample(20), generator.sample(20))
    header, arrays = read_generator(path)
    wrong = {
        "joint_columns": [arrays["statistics.joint_columns"] + 9],
        "joint_parts": [arrays["statistics.joint_parts"] + 1],
        "joint_weights": [-arrays["statistics.joint_weights"], np.ones(3)],
        "joints": [arrays["statistics.joints"][1:]],
        "column_weights": [np.zeros(4), np.ones(3)],
        "pair_weights": [np.zeros(6), np.ones((6, 1))],
    }
    for name, values in wrong.items():
        for value in values:
            write_generator(path, header, arrays | {f"statistics.{name}": value})
            with pytest.raises(ValueError):
                DPSinkhornGenerator.load(path)


@pytest.mark.parametrize(
    "workload, message",
    [
        ({"z": 2}, r"workload has 'z', and the table has no such column"),
        ([("x0", "z")], "the table has no such column"),
        ({"x0": 0}, "no weight above 0 for 'x0'"),
        ({"x0": True}, "no weight above 0"),
        ({"x0": math.inf}, "no weight above 0"),
        ({"x0": "much"}, "no weight above 0"),
        (["y"], "not one to 5 different columns beside the target"),
        ([("x0", "x0")], "not one to 5 different columns"),
        ([()], "not one to 5 different columns"),
        ("x0", "give a list of columns"),
        (3, "give a list of columns"),
    ],
    ids=str,
)
def test_wrong_workloads_are_refused_before_the_charge(workload, message):
    ledger = PrivacyLedger(10.0, 0.1, neighbouring="add_remove")
    with pytest.raises(ValueError, match=message):
        make(workload, ledger=ledger).fit(make_table(20))
    assert not ledger.entries()


def test_a_table_of_one_column_beside_the_target_has_a_workload():
    """It has no pairs, and is not to fail once it is paid for."""
    frame = pd.DataFrame({"age": [20, 30, 40] * 200, "sex": ["F", "M"] * 300})
    generator = DPSinkhornGenerator(
        10.0, 1e-6, schema={"age": range(99), "sex": ["F", "M"]}, target="sex", random_state=0,
        model=TableSketch(n_components=4, n_iter=2, workload={"age": 2}),
    )  # fmt: skip
    assert len(generator.fit(frame).sample(10)) == 10
