"""The report on what was fitted: what it costs, what it is made of, and whether it is right."""

import json
import math
import warnings
from pathlib import Path

import joblib
import numpy as np
import pandas as pd
import pytest
from scipy.stats import halfnorm, kstest

from skdpot import DPSinkhornGenerator, PrivacyLedger
from skdpot.generative import Declared, ImageSketch, TableSketch, VectorSketch
from skdpot.generative._files import read_generator, write_generator
from skdpot.generative._quality import (
    _auc_against_samples,
    _auc_between_classes,
    _distance,
    _mean_of,
)
from skdpot.generative._sketch import held_out, judges, table_sketch, vector_releases
from skdpot.generative._sketch.held_out import hold_out
from skdpot.generative._sketch.vector_summaries import summaries, summary_schema
from skdpot.privacy.random import make_source
from tests.oracles.sketch import moved_by, squared_mu, transcript_of

SCHEMA = {
    "age": range(18, 80),
    "wage": {"bounds": (0.0, 9000.0), "missing": True},
    "grade": {"levels": ["low", "mid", "high"]},
    "job": ["cook", "judge", "clerk"],
    "retired": ["no", "yes"],
}
QUICK = {"n_components": 4, "n_iter": 10}


pytestmark = pytest.mark.usefixtures("few_samples")


def make_records(n, seed=0):
    rng = np.random.default_rng(seed)
    age = rng.integers(18, 80, n)
    wage = np.where(rng.random(n) < 0.1, np.nan, rng.uniform(0, 100, n) * age)
    return pd.DataFrame({
        "age": age, "wage": wage, "grade": rng.choice(["low", "mid", "high"], n),
        "job": rng.choice(["cook", "judge", "clerk"], n, p=[0.6, 0.3, 0.1]),
        "retired": np.where(age + rng.normal(0, 5, n) > 60, "yes", "no"),
    })  # fmt: skip


def make_generator(epsilon=1.0, target="retired", share=0.4, **options):
    model = options.pop("model", TableSketch(**QUICK, quality_share=share))
    settings = {"schema": SCHEMA, "target": target, "random_state": 0} | options
    return DPSinkhornGenerator(epsilon, model=model, **settings)


# What is released, and its price
# -------------------------------


def test_a_coin_is_thrown_for_every_record_and_looks_at_none():
    uses = hold_out(30_000, 0.3, make_source(0))
    np.testing.assert_allclose(np.bincount(uses) / 30_000, [0.7, 0.1, 0.2], atol=0.01)
    np.testing.assert_array_equal(hold_out(20_000, 0.3, make_source(0)), uses[:20_000])
    # Whoever could foresee the coins would know in which release a record is.
    agree = [np.mean(hold_out(30_000, 0.3, make_source(seed)) == uses) for seed in (1, None)]
    np.testing.assert_allclose(agree, 0.7**2 + 0.1**2 + 0.2**2, atol=0.02)
    source = make_source(0)
    assert not hold_out(100, 0.0, source).any() and source.n_words == 0


def neighbours(generator, n_records, record):
    """Return transcripts of fits with a record and without, where the same is released."""
    records = make_records(n_records)
    first = transcript_of(lambda: generator.fit(records))
    left = joblib.hash(vars(generator))
    more = pd.concat([records, record], ignore_index=True)
    made = transcript_of(lambda: generator.fit(more), given=first)
    # What is left behind is a function of what was released.
    assert joblib.hash(vars(generator)) == left
    return first, made


RECORDS = {
    "of one end": {"age": 18, "wage": 0.0, "grade": "low", "job": "cook"},
    "of the other": {"age": 10**9, "wage": 1e9, "grade": "high", "job": "clerk"},
    "in between": {"age": 40, "wage": np.nan, "grade": "mid", "job": "judge"},
}


@pytest.mark.parametrize("target", ["retired", "grade", None])
def test_a_record_moves_the_part_that_it_is_in_by_its_sensitivity_and_no_other(target):
    generator, parts = make_generator(target=target), set()
    for n_records, values in zip((40, 42, 43, 44, 47), list(RECORDS.values()) * 2, strict=False):
        record = pd.DataFrame([values | {"retired": "yes"}])
        first, made = neighbours(generator, n_records, record)
        moved = moved_by(made, first)
        assert max(moved.values()) <= 1
        touched = {name for name, far in moved.items() if far}
        use = int(hold_out(n_records + 1, 0.4, make_source(0).for_user(0))[-1])
        of_part = [name for name in made if name.startswith("held-out")]
        of_part = [[name for name in made if name not in of_part], of_part[:1], of_part[1:]][use]
        assert touched == set(of_part)
        assert min(moved[name] for name in of_part) > 0.99
        # All of the budget, and no more, whichever part it is.
        assert squared_mu(made, first) * generator.noise_multiplier_**2 == pytest.approx(1)
        parts.add(use)
    assert parts == {0, 1, 2}


def counted_twice(teachers, counted, *rest):
    both = np.concatenate([teachers.units, counted.units])
    return held_out.release_held_out(teachers, held_out.HeldOutRows(both), *rest)


def by_all(units, weights, bins, n_bins):
    """Return counts in which other records decide where one is counted."""
    counts = np.concatenate([np.bincount(of(units), minlength=n) for of, n in zip(bins, n_bins)])  # noqa: B905
    return [np.roll(counts, len(units)).astype(np.int64)]


@pytest.mark.parametrize("bug", ["in two parts", "by other records"])
def test_a_planted_bug_is_found(bug, monkeypatch):
    if bug == "in two parts":
        monkeypatch.setattr(table_sketch, "release_held_out", counted_twice)
    else:
        monkeypatch.setattr(held_out, "_bin_counts", by_all)
    generator, costs = make_generator(), []
    for n_records in range(40, 48):
        record = pd.DataFrame([RECORDS["in between"] | {"retired": "yes"}])
        costs.append(squared_mu(*neighbours(generator, n_records, record)))
    assert max(costs) * generator.noise_multiplier_**2 > 1.5


def test_scores_of_records_are_sums_of_whole_numbers(monkeypatch):
    """Sums of other numbers are rounded in a way that depends on how many records there are."""
    honest, seen = held_out.fit_discriminator, []

    def watched(*arguments):
        score, n_teachers = honest(*arguments)
        return lambda units: seen.append(score(units)) or seen[-1], n_teachers

    monkeypatch.setattr(held_out, "fit_discriminator", watched)
    make_generator().fit(make_records(300))
    scores = np.concatenate(seen)
    assert (scores == np.rint(scores)).all() and 2**20 < np.abs(scores).max() < 2**53


def test_every_part_has_the_whole_budget():
    made = transcript_of(lambda: make_generator().fit(make_records(50)))
    multiplier = make_generator().fit(make_records(50)).noise_multiplier_
    parts = [[], [], []]
    for name, release in made.items():
        part = 1 + (name != "held-out features") if name.startswith("held-out") else 0
        parts[part].append((release.sensitivity / release.deviation) ** 2)
    for part in parts:
        assert math.fsum(part) == pytest.approx(1 / multiplier**2, rel=1e-9)


def test_noise_of_what_is_held_out_has_the_scale_that_is_accounted_for(rng, monkeypatch):
    monkeypatch.setattr(judges, "_MOST_FEATURES", 500)
    schema = {f"c{j}": [*"abcdefgh"] for j in range(40)} | {"t": list(range(30))}
    frame = pd.DataFrame({name: rng.choice(of, 60) for name, of in schema.items()})
    generator = make_generator(4.0, "t", 0.5, schema=schema, random_state=7)
    made = transcript_of(lambda: generator.fit(frame))
    names = [name for name in made if name.startswith("held-out")]
    assert len(names) == 4
    for name in ("held-out features", "held-out values", "held-out utility"):
        noise = made[name].released - made[name].sums
        sample = np.abs(noise + rng.uniform(-0.5, 0.5, noise.shape)) / made[name].deviation
        for scale, fits in ((0.7, False), (1.0, True), (1.4, False)):
            pvalue = kstest(sample, halfnorm(scale=scale).cdf).pvalue
            assert pvalue > 1e-4 if fits else pvalue < 1e-3, (name, scale)


def test_a_ledger_is_charged_for_one_event_as_without_a_report():
    events = []
    for share in (0.0, 0.2):
        ledger = PrivacyLedger(2.0, 1e-4, neighbouring="add_remove")
        make_generator(share=share, ledger=ledger, random_state=None).fit(make_records(300))
        events += [entry.event for entry in ledger.entries()]
    assert len(events) == 2 and events[0] == events[1]


@pytest.mark.parametrize("target", ["retired", "job", None])
@pytest.mark.parametrize("n_records", [1, 3, 400])
def test_odd_tables_have_reports(n_records, target):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for epsilon in (0.05, None):
            generator = make_generator(epsilon, target, 0.5).fit(make_records(n_records))
            report = generator.quality()
            assert "Records that were held out" in str(report)
            json.dumps(report.to_dict(), allow_nan=False)


# Whether it is right
# -------------------


def test_estimates_are_as_far_off_as_they_say():
    rng = np.random.default_rng(0)
    shares, n, deviation = np.array([0.1, 0.2, 0.3, 0.4]), 4000, 9.0
    of_records = np.array([0.2, 0.2, 0.25, 0.35])
    of_classes = np.array([[0.3, 0.05], [0.2, 0.1], [0.05, 0.3]])
    ranks = np.cumsum(shares) - shares / 2
    first, second = (of / of.sum() for of in of_classes.T)
    truth = {
        "auc": ranks @ of_records,
        "mean": of_records[0],
        "auc of two": second @ (np.cumsum(first) - first / 2),
    }
    found = {name: [] for name in truth}
    distances = []
    for _ in range(400):
        counts = rng.multinomial(n, of_records) + rng.normal(0, deviation, 4)
        table = rng.multinomial(n, of_classes.ravel()) + rng.normal(0, deviation, 6)
        found["auc"].append(_auc_against_samples(counts, shares, deviation))
        found["mean"].append(_mean_of(np.eye(4)[0], counts, deviation))
        found["auc of two"].append(_auc_between_classes(table.reshape(3, 2), deviation))
        distances.append(_distance(counts, shares, deviation, n))
    for name, estimates in found.items():
        scores = [(of.value - truth[name]) / of.error for of in estimates]
        assert abs(np.mean(scores)) < 0.2 and 0.85 < np.std(scores) < 1.15, name
    distance = np.abs(of_records - shares).sum() / 2
    within = [abs(of.value - distance) < 2 * of.error for of in distances]
    assert np.mean(within) > 0.95
    nothing = [
        _distance(rng.multinomial(n, shares) + rng.normal(0, deviation, 4), shares, deviation, n)
        for _ in range(200)
    ]
    assert np.mean([of.value for of in nothing]) < 0.5 * np.mean([of.error for of in nothing])


def test_a_table_that_the_model_does_not_know_is_told_from_samples(monkeypatch):
    """Pairs of a parity are independent, so that only records say that something is wrong."""
    monkeypatch.setattr(table_sketch, "fit_table", of_pairs_alone)
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 2, (2, 8000))
    schema = {"a": [0, 1], "b": [0, 1], "c": [0, 1]}
    reports = []
    for c in (a ^ b, rng.integers(0, 2, 8000)):
        frame = pd.DataFrame({"a": a, "b": b, "c": c})
        reports.append(make_generator(2.0, None, 0.3, schema=schema).fit(frame).quality())
    parity, independent = (report.held_out.telling for report in reports)
    assert parity.value > 0.65 and parity.error < 0.03
    assert abs(independent.value - 0.5) < 4 * independent.error
    assert all(report.held_out.columns["a"].value < 0.05 for report in reports)
    assert all(fit.distance < 0.03 for report in reports for fit in report.pairs)
    # And the parity itself, which was released with noise.
    for report, fits in zip(reports, (False, True), strict=True):
        found = report.parities
        assert (found.columns, found.n_parities) == (("a", "b", "c"), 1)
        assert (found.distance <= found.noise) == fits == (found.misfit < 10)
        assert ("noise explains all" in str(report)) == fits
        assert report.to_dict()["parities"]["columns"] == ["a", "b", "c"]


def of_pairs_alone(released, schema, *_, **__):
    """Return the model of independent columns, each even."""
    sizes = released["n_cells"]
    return {
        **{name: released[name] for name in ("n_cells", "starts", "stops")},
        "weights": np.ones(1), "classes": np.zeros(1, dtype=np.int64),
        "cells": np.concatenate([np.full(size, 1 / size) for size in sizes])[None],
    }  # fmt: skip


def test_a_model_that_does_not_fit_is_named(monkeypatch):
    monkeypatch.setattr(table_sketch, "fit_table", of_pairs_alone)
    records = make_records(20_000)[["grade", "job"]]
    schema = {name: SCHEMA[name] for name in records}
    report = make_generator(5.0, None, 0.0, schema=schema).fit(records).quality()
    assert [fit.fits for fit in report.columns] == [True, False]
    assert "DOES NOT FIT 2 of 3" in str(report) and report.held_out is None


def test_noise_in_many_small_tables_is_no_misfit():
    coins = np.random.default_rng(0).integers(0, 2, (1000, 10))
    schema = {j: [0, 1] for j in range(10)}
    for seed in range(3):
        generator = DPSinkhornGenerator(4.0, schema=schema, random_state=seed).fit(coins)
        report = generator.quality()
        assert len(report.pairs) == 45 and "DOES NOT FIT" not in str(report)


def test_a_preview_says_how_exact_the_report_will_be():
    def of_report(n_records):
        errors = make_generator(1.0).preview(n_records).errors
        return [error for error in errors if "told from samples" in error.quantity]

    few, many = of_report(100), of_report(30_000)
    assert len(few) == len(many) == 1
    assert few[0].error > 0.2 and 0.003 < many[0].error < 0.02
    records = make_records(30_000)
    found = make_generator(1.0).fit(records).quality().held_out.telling
    assert many[0].error == pytest.approx(found.error, rel=0.3)


def test_records_have_the_utility_that_the_report_says(monkeypatch):
    monkeypatch.setattr(judges, "_BOOSTED", 120)
    records = make_records(12_000)
    generator = make_generator(5.0, share=0.3, model=TableSketch(40, quality_share=0.3))
    report = generator.fit(records).quality()
    found = report.held_out
    # The rule of the classes, as it was made, is right so often.
    right = ((records["age"] > 60) == (records["retired"] == "yes")).mean()
    assert found.accuracy.value == pytest.approx(right, abs=4 * found.accuracy.error + 0.02)
    assert found.auc.value > 0.9 and found.accuracy.error < 0.03
    assert report.n_records == generator.n_records_ == pytest.approx(12_000, abs=300)
    assert found.n_records.value == pytest.approx(2400, abs=250)
    assert all(of.value < 3 * of.error + 0.02 for of in found.columns.values())


# Vectors and images
# ------------------

KINDS = {
    "images": {"image_shape": (5, 4), "classes": range(3)},
    "strokes": {"image_shape": (5, 4), "classes": range(3), "encoder": "pose"},
    "colours": {"image_shape": (2, 2, 5)},
    "vectors": {"bounds": (0, 1), "classes": range(3)},
}


def make_images(n, seed=0, kind="images"):
    """Return 20 numbers of each record, which are brighter in a place that is the class's."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, n)
    X = np.clip(0.2 + rng.normal(0, 0.1, (n, 20)) + 0.5 * (np.arange(20) % 3 == y[:, None]), 0, 1)
    return (X, y) if "classes" in KINDS[kind] else (X, None)


def image_generator(epsilon=2.0, share=0.4, kind="images", **options):
    model = {"encoder": "auto", "n_clusters": 2, "quality_share": share}
    settings = KINDS[kind] | {"random_state": 0} | options
    model |= {name: settings.pop(name) for name in ("encoder", "n_clusters") if name in settings}
    sketch = (ImageSketch if "image_shape" in settings else VectorSketch)(**model)
    return DPSinkhornGenerator(epsilon, model=sketch, **settings)


@pytest.mark.parametrize("kind", KINDS)
def test_an_image_moves_the_part_that_it_is_in_by_its_sensitivity_and_no_other(kind):
    generator, parts = image_generator(kind=kind), set()
    ends = np.zeros(20), np.ones(20), np.arange(20) % 2, np.full(20, -1e300)
    for n_records, image in zip((40, 42, 43, 44, 46, 47), [*ends, *ends], strict=False):
        X, y = make_images(n_records, kind=kind)
        more = np.vstack([X, image]), None if y is None else np.append(y, 1)
        first = transcript_of(lambda: generator.fit(X, y))  # noqa: B023
        left = joblib.hash(vars(generator))
        made = transcript_of(lambda: generator.fit(*more), given=first)  # noqa: B023
        assert joblib.hash(vars(generator)) == left
        moved = moved_by(made, first)
        assert max(moved.values()) <= 1
        touched = {name for name, far in moved.items() if far}
        source = make_source(0).for_user(0)
        # Where clusters are looked for at first is drawn before the coins.
        source.bits(62, 2)
        use = int(hold_out(n_records + 1, 0.4, source)[-1])
        of_part = [name for name in made if name.startswith("held-out")]
        of_part = [[name for name in made if name not in of_part], of_part[:1], of_part[1:]][use]
        assert touched <= set(of_part)
        if use:
            assert min(moved[name] for name in of_part) > 0.99
        assert squared_mu(made, first) * generator.noise_multiplier_**2 <= 1 + 1e-9
        parts.add(use)
    assert parts == {0, 1, 2}


def test_parts_of_images_have_the_whole_budget_each():
    generator = image_generator()
    made = transcript_of(lambda: generator.fit(*make_images(60)))
    parts = [[], [], []]
    for name, release in made.items():
        part = 1 + (name != "held-out features") if name.startswith("held-out") else 0
        parts[part].append((release.sensitivity / release.deviation) ** 2)
    for part in parts:
        assert math.fsum(part) == pytest.approx(1 / generator.noise_multiplier_**2, rel=1e-9)


def centred(points, labels, space):
    """Return summaries around the mean of all records."""
    made = summaries(points, labels, space)
    made[:, :-1] = np.clip(made[:, :-1] - made[:, :-1].mean(axis=0) + 128, 0, 255)
    return made


@pytest.mark.parametrize("bug", ["in two parts", "by other records"])
def test_a_planted_bug_in_what_judges_images_is_found(bug, monkeypatch):
    if bug == "in two parts":
        monkeypatch.setattr(vector_releases, "release_held_out", counted_twice)
    else:
        monkeypatch.setattr(vector_releases, "summaries", centred)
    generator, costs = image_generator(), []
    for n_records in range(40, 48):
        X, y = make_images(n_records)
        more = np.vstack([X, np.full(20, 1e3)]), np.append(y, 1)
        first = transcript_of(lambda: generator.fit(X, y))  # noqa: B023
        costs.append(squared_mu(transcript_of(lambda: generator.fit(*more), first), first))  # noqa: B023
    assert max(costs) * generator.noise_multiplier_**2 > 1.5


@pytest.mark.parametrize("kind", KINDS)
def test_summaries_of_a_record_are_its_own_and_whole_numbers_of_the_schema(kind):
    X, y = make_images(50, kind=kind)
    declared = {name: of for name, of in KINDS[kind].items() if name != "encoder"}
    space = Declared(**declared).space(20)
    labels = np.zeros(50, dtype=int) if y is None else y
    schema = summary_schema(space)
    made = summaries(space.points(X), labels, space)
    assert made.dtype == np.int64 and made.shape == (50, len(schema.columns))
    sizes = [column.n_units for column in schema.columns]
    assert (made >= 0).all() and (made < sizes).all()
    alone = [summaries(space.points(X[i : i + 1]), labels[i : i + 1], space) for i in range(50)]
    np.testing.assert_array_equal(made, np.concatenate(alone))
    ends = summaries(np.repeat([[-1.0], [1.0]], 20, axis=1), np.array([0, 0]), space)
    bright = [j for j, name in enumerate(schema.names) if "rough" not in name and name != "label"]
    dark = schema.names.index("dark pixels") if "dark pixels" in schema.names else None
    assert {*ends[0, bright]} == ({0} if dark is None else {0, 255})
    assert {*ends[1, bright]} == ({255} if dark is None else {0, 255})
    assert dark is None or ends[:, dark].tolist() == [255, 0]


def test_a_vector_has_means_of_its_features_and_an_image_of_its_parts():
    vector = Declared(bounds=(0, 1)).space(100)
    assert summary_schema(vector).names[:3] == ["feature 0", "features 1-2", "feature 3"]
    points = np.linspace(-1, 1, 100)[None]
    assert summaries(points, np.zeros(1), vector)[0, 1] == int(256 * 1.5 / 99)
    image = Declared(image_shape=(4, 4)).space(16)
    stripes = np.tile([-1.0, -1.0, 1.0, 1.0], (1, 4))
    found = summaries(stripes, np.zeros(1), image)[0]
    made = dict(zip(summary_schema(image).names, found, strict=True))
    assert made["dark pixels"] == made["bright pixels"] == 128
    assert made["brightness, row 1 of 4, column 3 of 4"] == 255
    roughness = [made[f"roughness, row 2 of 4, column {j} of 4"] for j in (1, 2, 3, 4)]
    assert roughness == [0, 128, 0, 0]


def test_images_are_judged_as_they_are():
    generator = image_generator(8.0, 0.3).fit(*make_images(6000))
    report, y = generator.quality(), make_images(6000)[1]
    found = report.held_out
    # The mean of a place of the class is 5 standard deviations above the others.
    assert found.accuracy.value > 0.95 and found.accuracy.error < 0.03
    assert found.n_records.value == pytest.approx(1200, abs=150)
    assert report.n_records == generator.n_records_ == pytest.approx(6000, abs=100)
    assert [of.label for of in report.classes] == [0, 1, 2] and all(
        of.n_records.value == pytest.approx(0.7 * (y == of.label).sum(), rel=0.1)
        for of in report.classes
    )
    assert all(of.is_seen and of.n_codes == 16 for of in report.classes)


def test_vectors_that_the_model_does_not_know_are_told_from_samples():
    rng = np.random.default_rng(0)
    normal = np.clip(rng.normal(0.5, 0.1, (6000, 20)), 0, 1)
    signs = np.where(normal[:, :10] * normal[:, 10:] > 0.25, 0.8, 0.2)
    options = {"kind": "vectors", "n_clusters": 1, "classes": None}
    of_normal, of_ends = (
        image_generator(8.0, 0.3, **options).fit(X).quality().held_out.telling
        for X in (normal, np.hstack([normal[:, :10], signs]))
    )
    assert abs(of_normal.value - 0.5) < 4 * of_normal.error + 0.01
    assert of_ends.value > 0.7 and of_ends.error < 0.03


def test_noise_that_hides_classes_is_named():
    report = image_generator(0.05, 0.0).fit(*make_images(60)).quality()
    assert "NOISE HIDES" in str(report) and not any(of.is_seen for of in report.classes)
    exact = image_generator(None, 0.0).fit(*make_images(60)).quality()
    assert all(of.is_seen and of.mean_error == 0 and of.seen == 1 for of in exact.classes)


def test_directions_are_seen_where_variance_is_above_the_noise():
    """A matrix of noise alone has hardly an eigenvalue above the limit."""
    rng, d = np.random.default_rng(0), 100
    noise = rng.normal(0, 1, (d, d))
    noise = (noise + noise.T) / 2
    assert np.diag(noise).std() == pytest.approx(1, rel=0.2)
    assert 0.9 < np.linalg.eigvalsh(noise).max() / math.sqrt(2 * d) < 1.05
    few, many = (image_generator(e, 0.0).fit(*make_images(3000)).quality() for e in (0.3, 100.0))
    assert few.classes[0].directions < many.classes[0].directions == 16
    assert few.classes[0].mean_error > many.classes[0].mean_error


def test_a_preview_says_how_exact_the_report_on_images_will_be():
    preview = image_generator(1.0, 0.3).preview(20_000)
    told = [error for error in preview.errors if "told from samples" in error.quantity]
    assert len(told) == 1 and 0.003 < told[0].error < 0.03


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n_records", [1, 3, 200])
def test_odd_images_have_reports_and_files_have_them(n_records, kind, tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        generator = image_generator(0.5, 0.5, kind).fit(*make_images(n_records, kind=kind))
        generator.save(tmp_path / "file.npz")
        loaded = DPSinkhornGenerator.load(tmp_path / "file.npz")
        report = loaded.quality()
    assert report.to_dict() == generator.quality().to_dict()
    json.dumps(report.to_dict(), allow_nan=False)
    assert "Records that were held out" in str(report) and "Classes" in report._repr_html_()
    assert "Quality of synthetic records" in report.to_html()
    assert loaded.model.quality_share == 0.5 and loaded.n_records_ == generator.n_records_


@pytest.mark.parametrize("name", ["noise.mean", "noise.size", "held_out.values", "held_out.scores"])
def test_a_file_of_images_with_other_arrays_is_refused(name, tmp_path):
    generator = image_generator().fit(*make_images(100))
    generator.save(tmp_path / "file.npz")
    header, arrays = read_generator(tmp_path / "file.npz")
    for damaged in (arrays[name][:-1], arrays[name] * np.nan):
        write_generator(tmp_path / "other.npz", header, {**arrays, name: damaged})
        with pytest.raises(ValueError, match="file"):
            DPSinkhornGenerator.load(tmp_path / "other.npz")


# What becomes of it
# ------------------


def test_a_file_has_the_report_and_pages_quote_names_as_text(tmp_path):
    schema = {"<b>": SCHEMA["job"], "retired": SCHEMA["retired"]}
    records = make_records(600)[["job", "retired"]].set_axis(["<b>", "retired"], axis=1)
    generator = make_generator(schema=schema, random_state=None).fit(records)
    generator.save(tmp_path / "file.npz")
    loaded = DPSinkhornGenerator.load(tmp_path / "file.npz")
    report = generator.quality()
    assert loaded.quality().to_dict() == report.to_dict()
    assert loaded.n_records_ == generator.n_records_
    assert loaded.model.quality_share == 0.4
    for suffix in ("txt", "html", "json"):
        report.save(tmp_path / f"report.{suffix}")
    assert (tmp_path / "report.txt").read_text() == f"{report}\n"
    page = (tmp_path / "report.html").read_text()
    assert "&lt;b&gt;" in page and "<b>" not in page and report._repr_html_() in page
    # Tables with names of columns have them in a header.
    assert "<th>distance</th>" in page and "<td>0.5 is best</td>" in page
    plain = json.loads((tmp_path / "report.json").read_text())
    assert plain["held_out"]["telling"]["value"] == report.held_out.telling.value
    with pytest.raises(ValueError, match="must end with"):
        report.save(tmp_path / "report.pdf")


@pytest.mark.parametrize("name", ["n_bins", "values", "utility", "deviations", "predictions"])
def test_a_file_with_other_arrays_is_refused(name, tmp_path):
    generator = make_generator().fit(make_records(100))
    fitted = generator._fitted
    damaged = {**fitted.held_out, name: fitted.held_out[name][:-1]}
    object.__setattr__(fitted, "held_out", damaged)
    generator.save(tmp_path / "file.npz")
    with pytest.raises(ValueError, match="held-out"):
        DPSinkhornGenerator.load(tmp_path / "file.npz")


def test_what_has_no_report_says_so():
    with pytest.raises(ValueError, match="quality_share"):
        make_generator(share=0.6).fit(make_records(10))
    with pytest.raises(ValueError, match="quality_share"):
        image_generator(share=0.6).fit(*make_images(10))
    report = image_generator(share=0.0).fit(*make_images(300)).quality()
    assert report.held_out is None and "held out" not in str(report)
    old = DPSinkhornGenerator.load(Path(__file__).parent / "version_1" / "vectors.npz")
    with pytest.raises(ValueError, match="earlier version"):
        old.quality()


def test_shares_are_from_0_to_1_however_few_records_there_are():
    """Three records, in noise of thirty."""
    rng = np.random.default_rng(0)
    right, drawn = np.array([1.0, 0, 0, 1]), rng.normal([2, 1, 0, 0], 30, (200, 4))
    found = [_mean_of(right, counts, 30.0) for counts in drawn]
    told = [of for of in found if np.isfinite(of.value)]
    assert {of.value for of in told} >= {0.0, 1.0}
    assert all(0 <= of.value <= 1 for of in told)
