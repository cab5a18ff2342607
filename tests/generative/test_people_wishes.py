"""The report of people who were held out."""

import math

import numpy as np
import pandas as pd
import pytest

from skdpot import DPSinkhornGenerator, PrivacyLedger
from skdpot.generative import TableSketch
from skdpot.generative._sketch import held_out, people_sketch
from skdpot.generative._sketch.held_out import HeldOutRows, hold_out
from skdpot.privacy.random import make_source
from tests.oracles.people import SCHEMA, fit_people, make_people
from tests.oracles.sketch import moved_by, squared_mu, transcript_of

PEOPLE = {
    "a row": [5], "two rows": [1, 5], "three alike": [5] * 3, "far too many": [5] * 50_000,
    "in turns": [1, 5] * 400,
}  # fmt: skip


pytestmark = pytest.mark.usefixtures("few_samples")


def sketch(**options):
    return TableSketch(**{"n_components": 24, "n_iter": 5, **options})


def last_person(stars):
    """Return rows of a person who is the last one: whose coin is the last one that is thrown."""
    n = len(stars)
    same = {"shop": "A", "spent": 1000.0, "sex": "F", "age": 18, "user": 10**6}
    return pd.DataFrame({"day": np.arange(n) % 100.0, "stars": stars, **same})


def neighbours(n_people, stars, **options):
    """Return transcripts without a person and with her, where the same is released."""
    X = make_people(n_people)
    left = []

    def fit(X):
        generator = fit_people(X, **options)
        left.append(repr(sorted(generator._fitted.to_file()[1].items())))

    first = transcript_of(lambda: fit(X))
    more = transcript_of(lambda: fit(pd.concat([X, last_person(stars)])), given=first)
    # What is left behind is a function of what was released.
    assert left[0] == left[1]
    return first, more


def test_files_hold_the_report(tmp_path):
    model = sketch(quality_share=0.4)
    generator = fit_people(make_people(200), model=model, target="spent")
    generator.save(tmp_path / "file")
    loaded = DPSinkhornGenerator.load(tmp_path / "file")
    assert loaded.quality().to_dict() == generator.quality().to_dict()
    assert loaded.n_records_ == generator.n_records_


# People who are held out
# -----------------------


@pytest.mark.parametrize("target", [None, "sex", "spent"])
def test_a_person_moves_the_part_that_she_is_in_by_its_sensitivity_and_no_other(target):
    parts = set()
    options = {"model": sketch(quality_share=0.4), "target": target}
    for n_people, stars in zip((38, 40, 44, 45, 49), PEOPLE.values(), strict=True):
        first, more = neighbours(n_people, stars, **options)
        moved = moved_by(first, more)
        assert max(moved.values()) <= 1.0
        use = int(hold_out(n_people + 1, 0.4, make_source(0).for_user(0))[-1])
        held = [name for name in moved if name.startswith("held-out")]
        of_part = [[name for name in moved if name not in held], held[:1], held[1:]][use]
        assert {name for name, far in moved.items() if far} <= set(of_part)
        if use and len(stars) <= 3:
            # A power of two rows has all of a whole, and others nearly.
            assert min(moved[name] for name in of_part) > 0.7
        # All of the budget, and no more, whichever part it is.
        spent = math.fsum((of.sensitivity / of.deviation) ** 2 for of in first.values())
        assert squared_mu(first, more) <= spent
        parts.add(use)
    assert parts == {0, 1, 2}


def test_every_part_has_the_whole_budget_and_the_ledger_pays_it_once():
    ledger = PrivacyLedger(2.0, 1e-5, neighbouring="add_remove")
    model = sketch(quality_share=0.4)
    generator = fit_people(make_people(80), model=model, random_state=None, ledger=ledger)
    assert ledger.spent()[0] == pytest.approx(1.0, rel=1e-3) and len(ledger.entries()) == 1
    assert generator.privacy_guarantee_.unit == "user"
    made, parts = transcript_of(lambda: fit_people(make_people(80), model=model)), [[], [], []]
    for name, of in made.items():
        part = 1 + (name != "held-out features") if name.startswith("held-out") else 0
        parts[part].append((of.sensitivity / of.deviation) ** 2)
    for part in parts:
        assert math.fsum(part) ** -0.5 == pytest.approx(generator.noise_multiplier_, rel=1e-9)


@pytest.mark.parametrize("bug", ["rows", "by rows"])
def test_rows_held_out_instead_of_people_would_be_seen(bug, monkeypatch):
    """The mistakes that are planted: rows count as people do, or coins are thrown for rows."""
    if bug == "rows":

        def sum_rows(function, own, part):
            units = np.column_stack(part.units).astype(np.int64)
            return function(units, np.full(len(units), 2.0**20))

        monkeypatch.setattr(people_sketch, "_sum_part_rows", sum_rows)
    else:

        def release(teachers, counted, *rest):
            return held_out.release_held_out(teachers, Both(teachers, counted), *rest)

        monkeypatch.setattr(people_sketch, "release_held_out", release)
    farthest = []
    for n_people in range(40, 52):
        first, more = neighbours(n_people, [5, 1, 5], model=sketch(quality_share=0.4))
        spent = (first["pairs"].sensitivity / first["pairs"].deviation) ** 2
        whole = math.fsum(
            (of.sensitivity / of.deviation) ** 2
            for name, of in first.items() if not name.startswith("held-out")
        )  # fmt: skip
        assert spent < whole
        farthest.append(squared_mu(first, more) / whole)
    assert max(farthest) > 1.5


class Both:
    """People of two parts."""

    def __init__(self, *parts):
        self.parts = parts

    def sums(self, of_rows):
        found = [part.sums(of_rows) for part in self.parts]
        return [sum(of_parts) for of_parts in zip(*found, strict=True)]


@pytest.mark.parametrize(("n_people", "seed"), [(1, 0), (1, 3), (2, 1), (5, 2), (5, 4)])
def test_few_people_have_reports(n_people, seed):
    """Also where nobody is left for the sketch, or for the report."""
    model, X = sketch(quality_share=0.5), make_people(n_people)
    for parts in (X, [of for _, of in X.groupby("user")]):
        generator = fit_people(parts, model=model, random_state=seed, target="sex")
        assert "People that were held out" in str(generator.quality())
        assert len(generator.sample(n_users=3)["user"].unique()) == 3


def test_partitions_of_dask_have_the_same_coins_and_the_same_report():
    dataframe = pytest.importorskip("dask.dataframe")
    import dask

    X, model = make_people(50), sketch(quality_share=0.4)
    with dask.config.set(scheduler="sync"):
        parts = dataframe.from_pandas(X.set_index("user"), npartitions=4).reset_index()
        found = transcript_of(lambda: fit_people(parts, model=model, target="sex"))
    plain = transcript_of(lambda: fit_people(X, model=model, target="sex"))
    assert found.keys() == plain.keys() and max(moved_by(plain, found).values()) == 0.0


def test_rows_of_people_count_as_much_as_people_do():
    """A person with many rows weighs as much as one with a single row, in all that is counted."""
    X = pd.DataFrame({"user": np.repeat(np.arange(3000), np.where(np.arange(3000) < 300, 20, 1))})
    X["kind"] = np.where(X["user"] < 300, "busy", "idle")
    X["word"] = np.where(np.arange(len(X)) % 2, "a", "b")
    schema = {"kind": ["busy", "idle"], "word": ["a", "b"]}
    model = sketch(n_components=60, n_iter=300, quality_share=0.3)
    report = fit_people(X, epsilon=4.0, schema=schema, model=model, target="word").quality()
    assert report.counted == "people" and report.n_records == pytest.approx(3000, abs=60)
    found = report.held_out
    assert found.n_records.value == pytest.approx(600, abs=90)
    assert all(of.value < 0.1 for of in found.columns.values())
    assert abs(found.telling.value - 0.5) < 4 * found.telling.error
    assert abs(found.accuracy.value - 0.5) < 4 * found.accuracy.error
    assert {fit.columns for fit in report.columns} == {("kind",), ("word",), ("number of rows",)}
    assert all(fit.fits for fit in (*report.columns, *report.pairs))


def test_a_preview_says_how_exact_the_report_will_be():
    generator = DPSinkhornGenerator(1.0, 1e-6, schema=SCHEMA, model=sketch(quality_share=0.3))
    *_, error = generator.preview(3000, groups=True).errors
    plain = DPSinkhornGenerator(1.0, 1e-6, schema=SCHEMA, model=sketch(quality_share=0.3))
    plain.schema = {"stars": range(1, 6)}
    assert "AUC by which records are told from samples" in error.quantity
    assert error.error == pytest.approx(plain.preview(3000).errors[-1].error)


def test_the_sums_of_rows_of_one_person_each_are_those_of_records(rng):
    units = rng.integers(0, 5, (100, 2))
    (found,) = HeldOutRows(units).sums(
        lambda of, weights: [np.bincount(of[:, 0], weights, minlength=5).astype(np.int64)]
    )
    np.testing.assert_array_equal(found, np.bincount(units[:, 0], minlength=5))
