"""The report on what was fitted: what it is made of, and whether it is right."""

import json
import math
import warnings

import numpy as np
import pandas as pd
import pytest

from skdpot import DPSinkhornGenerator
from skdpot.generative import ImageSketch, TableSketch, VectorSketch
from skdpot.generative import _table as table_sketch
from tests.quick import first_quick

SCHEMA = {
    "age": range(18, 80),
    "wage": {"bounds": (0.0, 9000.0), "missing": True},
    "grade": {"levels": ["low", "mid", "high"]},
    "job": ["cook", "judge", "clerk"],
    "retired": ["no", "yes"],
}
QUICK = {"n_components": 4, "n_iter": 10}


def make_records(n, seed=0):
    rng = np.random.default_rng(seed)
    age = rng.integers(18, 80, n)
    wage = np.where(rng.random(n) < 0.1, np.nan, rng.uniform(0, 100, n) * age)
    return pd.DataFrame({
        "age": age, "wage": wage, "grade": rng.choice(["low", "mid", "high"], n),
        "job": rng.choice(["cook", "judge", "clerk"], n, p=[0.6, 0.3, 0.1]),
        "retired": np.where(age + rng.normal(0, 5, n) > 60, "yes", "no"),
    })  # fmt: skip


def make_generator(epsilon=1.0, target="retired", **options):
    settings = {"schema": SCHEMA, "model": TableSketch(**QUICK), "random_state": 0} | options
    return DPSinkhornGenerator(epsilon, target=target, **settings)


@pytest.mark.parametrize("target", ["retired", "job", None])
@pytest.mark.parametrize("n_records", first_quick([1, 3, 400]))
def test_odd_tables_have_reports(n_records, target):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for epsilon in (0.05, None):
            report = make_generator(epsilon, target).fit(make_records(n_records)).quality()
            assert len(report.pairs) == (10 if target is None else 6)
            json.dumps(report.to_dict(), allow_nan=False)


# Whether it is right
# -------------------


def association(first, second):
    """Return the distance of two columns of records from independence, in total variation."""
    shares = pd.crosstab(first, second, normalize=True).to_numpy()
    return np.abs(shares - np.outer(shares.sum(axis=1), shares.sum(axis=0))).sum() / 2


def coins(n, seed=0):
    """Return two columns that go together, one that goes with neither, and their class."""
    rng = np.random.default_rng(seed)
    a, c = rng.integers(0, 2, (2, n))
    b = np.where(rng.random(n) < 0.8, a, 1 - a)
    y = np.where(rng.random(n) < 0.7, b, 1 - b)
    return pd.DataFrame({"a": a, "b": b, "c": c, "y": y})


def found_associations(report):
    return {fit.columns: (fit.released, fit.modelled) for fit in (*report.columns, *report.pairs)}


@pytest.mark.parametrize("target", ["y", None])
def test_associations_are_those_of_the_records(target):
    records = coins(20_000)
    schema = {name: [0, 1] for name in records}
    model = TableSketch(60, n_iter=300)
    report = make_generator(20.0, target, schema=schema, model=model).fit(records).quality()
    found = found_associations(report)
    for columns, (released, modelled) in found.items():
        if len(columns) == 1 and target is None:
            assert released is modelled is None
            continue
        exact = association(records[columns[0]], records[(*columns, "y")[1]])
        assert released == pytest.approx(exact, abs=0.02), columns
        assert modelled == pytest.approx(exact, abs=0.02), columns
    assert found["a", "b"][0] > 0.25 and found["a", "c"][0] < 0.02


@pytest.mark.experiment
def test_noise_alone_makes_hardly_an_association():
    """Independent columns: of what noise makes of the distances, most is taken off again."""
    fits, schema = [], dict.fromkeys("abc", range(4))
    for seed in range(20):
        records = np.random.default_rng(seed).integers(0, 4, (300, 3))
        generator = make_generator(0.5, None, schema=schema, random_state=seed)
        fits += generator.fit(pd.DataFrame(records, columns=[*"abc"])).quality().pairs
    assert np.mean([fit.released for fit in fits]) < 0.5 * np.mean([fit.noise for fit in fits])


def test_a_pair_that_the_model_lacks_is_named_first(monkeypatch):
    """Independent columns have the counts of columns, and nothing of what goes together."""
    monkeypatch.setattr(table_sketch, "fit_table", of_even_columns)
    records = coins(20_000)
    schema = {name: [0, 1] for name in records}
    report = make_generator(5.0, None, schema=schema).fit(records).quality()
    first, second, *others = report.pairs
    assert (first.columns, second.columns) == (("a", "b"), ("b", "y"))
    assert first.released > 0.25 and first.modelled < 1e-2
    assert not first.fits and not second.fits
    assert str(report).index("a x b  ") < str(report).index("b x y  ")
    distances = [fit.distance - fit.noise for fit in report.pairs]
    assert distances == sorted(distances, reverse=True)
    assert all(fit.fits for fit in others if "c" in fit.columns)


def of_even_columns(released, schema, *_, **__):
    """Return the model of independent columns, each even."""
    sizes = released["n_cells"]
    return {
        **{name: released[name] for name in ("n_cells", "starts", "stops")},
        "weights": np.ones(1), "classes": np.zeros(1, dtype=np.int64),
        "cells": np.concatenate([np.full(size, 1 / size) for size in sizes])[None],
    }  # fmt: skip


def test_a_model_that_does_not_fit_is_named(monkeypatch):
    monkeypatch.setattr(table_sketch, "fit_table", of_even_columns)
    records = make_records(20_000)[["grade", "job"]]
    schema = {name: SCHEMA[name] for name in records}
    report = make_generator(5.0, None, schema=schema).fit(records).quality()
    assert [(fit.columns, fit.fits) for fit in report.columns] == [
        (("job",), False), (("grade",), True),
    ]  # fmt: skip
    assert "DOES NOT FIT 2 of 3" in str(report)


def test_a_strong_pair_that_rows_have_is_not_called_lost():
    """It is no part of the components, which are all that reports once looked at."""
    a = np.random.default_rng(0).integers(0, 20, 8000)
    table = pd.DataFrame({"a": a, "square": a**2, "c": a % 2})
    schema = {"a": range(20), "square": range(400), "c": [0, 1]}
    report = make_generator(4.0, None, schema=schema).fit(table).quality()
    (pair,) = [pair for pair in report.pairs if pair.columns == ("a", "square")]
    assert pair.fits and pair.modelled > 0.9 * pair.released > 0.7


def test_noise_in_many_small_tables_is_no_misfit():
    records = np.random.default_rng(0).integers(0, 2, (1000, 10))
    schema = {j: [0, 1] for j in range(10)}
    for seed in range(2):
        generator = DPSinkhornGenerator(
            4.0, schema=schema, random_state=seed, model=TableSketch(100, n_iter=150)
        ).fit(records)
        report = generator.quality()
        assert len(report.pairs) == 45 and "DOES NOT FIT" not in str(report)


def test_a_report_on_a_wide_table_fits_on_a_screen():
    records = np.random.default_rng(0).integers(0, 2, (300, 20))
    schema = {j: [0, 1] for j in range(20)}
    report = make_generator(1.0, None, schema=schema).fit(records).quality()
    text = str(report)
    assert text.count("\n") < 40 and "worst first: 8 of 190" in text
    assert len(report.to_dict()["pairs"]) == 190


# Vectors and images
# ------------------

KINDS = {
    "images": {"bounds": (0, 1), "image_shape": (5, 4), "classes": range(3)},
    "strokes": {"bounds": (0, 1), "image_shape": (5, 4), "classes": range(3), "encoder": "pose"},
    "vectors": {"bounds": (0, 1), "classes": range(3)},
}


def make_images(n, seed=0):
    """Return 20 numbers of each record, which are brighter in a place that is the class's."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, n)
    X = np.clip(0.2 + rng.normal(0, 0.1, (n, 20)) + 0.5 * (np.arange(20) % 3 == y[:, None]), 0, 1)
    return X, y


def image_generator(epsilon=2.0, kind="images"):
    settings = KINDS[kind] | {"random_state": 0}
    kinds = ImageSketch if "image_shape" in settings else VectorSketch
    model = kinds(settings.pop("encoder", "auto"), n_clusters=2)
    return DPSinkhornGenerator(epsilon, model=model, **settings)


def test_classes_have_their_sizes_and_the_worst_is_first():
    X, y = make_images(6000)
    rare = (y != 2) | (np.arange(6000) % 10 == 0)
    report = image_generator(8.0).fit(X[rare], y[rare]).quality()
    assert report.classes[0].label == 2
    assert all(
        of.n_records == pytest.approx((y[rare] == of.label).sum(), rel=0.1) for of in report.classes
    )
    assert all(of.is_seen and of.n_codes == 16 for of in report.classes)
    errors = [of.mean_error for of in report.classes]
    assert errors == sorted(errors, reverse=True)


def test_noise_that_hides_classes_is_named():
    report = image_generator(0.05).fit(*make_images(60)).quality()
    assert "NOISE HIDES" in str(report) and not any(of.is_seen for of in report.classes)
    exact = image_generator(None).fit(*make_images(60)).quality()
    assert all(of.is_seen and of.mean_error == 0 and of.seen == 1 for of in exact.classes)


def test_directions_are_seen_where_variance_is_above_the_noise():
    """A matrix of noise alone has hardly an eigenvalue above the limit."""
    rng, d = np.random.default_rng(0), 100
    noise = rng.normal(0, 1, (d, d))
    noise = (noise + noise.T) / 2
    assert np.diag(noise).std() == pytest.approx(1, rel=0.2)
    assert 0.9 < np.linalg.eigvalsh(noise).max() / math.sqrt(2 * d) < 1.05
    few, many = (image_generator(e).fit(*make_images(3000)).quality() for e in (0.3, 100.0))
    assert few.classes[0].directions < many.classes[0].directions
    assert few.classes[0].mean_error > many.classes[0].mean_error


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n_records", [1, 3, 200])
def test_odd_images_have_reports_and_files_have_them(n_records, kind, tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        generator = image_generator(0.5, kind).fit(*make_images(n_records))
        generator.save(tmp_path / "file.npz")
        loaded = DPSinkhornGenerator.load(tmp_path / "file.npz")
        report = loaded.quality()
    assert report.to_dict() == generator.quality().to_dict()
    json.dumps(report.to_dict(), allow_nan=False)
    assert "Classes, worst first" in str(report) and "Classes" in report._repr_html_()
    assert "Quality of synthetic records" in report.to_html()
    assert loaded.n_records_ == generator.n_records_


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
    for suffix in ("txt", "html", "json"):
        report.save(tmp_path / f"report.{suffix}")
    assert (tmp_path / "report.txt").read_text() == f"{report}\n"
    page = (tmp_path / "report.html").read_text()
    assert "&lt;b&gt;" in page and "<b>" not in page and report._repr_html_() in page
    # Tables with names of columns have them in a header.
    assert "<th>distance</th>" in page
    plain = json.loads((tmp_path / "report.json").read_text())
    assert plain["columns"][0]["released"] == report.columns[0].released
    with pytest.raises(ValueError, match="must end with"):
        report.save(tmp_path / "report.pdf")
