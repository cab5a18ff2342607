"""Files of generators that were forged or damaged: each is refused, or is one of a generator."""

import copy

import numpy as np
import pandas as pd
import pytest

from skdpot import DPSinkhornGenerator
from skdpot.generative import TableSketch
from skdpot.generative._files import plain, read_generator, write_generator
from skdpot.privacy import PrivacyGuarantee

SCHEMA = {
    "age": range(18, 40),
    "wage": {"bounds": (0.0, 9.0), "missing": True},
    "sex": ["F", "M"],
    "grade": {"levels": ["a", "b", "c"], "missing": True},
}
ODD = [
    None, "", "x", -1, 0, 1, 10**30, 1.5, 1e308, True, [], {}, [None], [[1]], {"a": 1}, ["a", "a"],
]  # fmt: skip


def table_of(n, rng):
    return pd.DataFrame(
        {
            "age": rng.integers(18, 40, n),
            "wage": np.where(rng.random(n) < 0.3, np.nan, rng.uniform(0, 9, n)),
            "sex": rng.choice(["F", "M"], n),
            "grade": rng.choice(["a", "b", "c"], n),
        }
    )


def fit_table(rng):
    model = TableSketch(12, n_iter=3)
    generator = DPSinkhornGenerator(schema=SCHEMA, target="sex", model=model, random_state=0)
    return generator.fit(table_of(200, rng))


def fit_image(rng):
    generator = DPSinkhornGenerator(5.0, image_shape=(4, 4), classes=[0, 1], random_state=0)
    return generator.fit(rng.uniform(size=(60, 16)), np.arange(60) % 2)


def fit_people(rng):
    generator = DPSinkhornGenerator(schema=SCHEMA, model=TableSketch(24, n_iter=2), random_state=0)
    return generator.fit(table_of(200, rng), groups=rng.integers(0, 60, 200))


KINDS = {"table": fit_table, "image": fit_image, "people": fit_people}


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Return the content of a file of each kind."""
    found = {}
    for kind, fit in KINDS.items():
        path = tmp_path_factory.mktemp("files") / "generator.npz"
        fit(np.random.default_rng(0)).save(path)
        header, arrays = read_generator(path)
        # What is fitted with a seed has none.
        header["guarantee"] = plain(vars(PrivacyGuarantee(1.0, 1e-5, "add_remove", "record")))
        found[kind] = header, arrays
    return found


def places_in(value, place=()):
    """Return where something is in a header."""
    parts = value.items() if isinstance(value, dict) else enumerate(value[:4])
    for key, part in parts:
        yield (*place, key)
        if isinstance(part, dict | list):
            yield from places_in(part, (*place, key))


def place_in(header, place):
    for key in place[:-1]:
        header = header[key]
    return header, place[-1]


def forge_header(header, rng):
    """Return a header in which a place has another value, or none, or there is one more."""
    header, places = copy.deepcopy(header), list(places_in(header))
    parent, key = place_in(header, places[rng.integers(len(places))])
    how, odd = rng.choice(["delete", "add", "set", "set", "set"]), ODD[rng.integers(len(ODD))]
    if how == "delete":
        del parent[key]
    elif how == "set":
        parent[key] = odd
    elif isinstance(parent, dict):
        parent["more"] = odd
    else:
        parent.append(odd)
    return header


def forge_arrays(arrays, rng):
    """Return arrays of which one has another shape, type or value, or is not there."""
    arrays, name = dict(arrays), rng.choice(list(arrays))
    values = np.atleast_1d(arrays.pop(name)).copy()
    odd = rng.choice([-1, 0, 2, 1e6, 1e308, np.inf, np.nan])
    if values.dtype.kind == "i":
        odd = rng.integers(-1, 10**6)
    place = rng.integers(max(values.size, 1))
    forged = {
        "delete": lambda: None,
        "shorter": lambda: values[..., :-1],
        "transposed": lambda: values.T,
        "flat": lambda: values.ravel(),
        "twice": lambda: np.concatenate([values, values]),
        "empty": lambda: values[:0],
        "type": lambda: values.astype(rng.choice(["f8", "i8", "?", "f4", "u1"])),
        "value": lambda: np.put(values, [place], [odd]) if values.size else None,
    }
    how = rng.choice(list(forged))
    with np.errstate(all="ignore"):
        made = forged[how]()
    if how != "delete":
        arrays[name] = values if how == "value" else made
    return arrays


def load_and_use(path, kind):
    """Load a file, and ask for all that its generator makes."""
    generator = DPSinkhornGenerator.load(path)
    generator.random_state = 0
    generator.sample(5)
    repr(generator)
    str(generator.privacy_guarantee_)
    generator.save(path)
    DPSinkhornGenerator.load(path)
    if kind == "people":
        generator.sample(n_users=3)
    if kind == "table":
        str(generator.quality())


@pytest.mark.parametrize(
    "n_trials", [20, pytest.param(1000, marks=pytest.mark.experiment)], ids=str
)
@pytest.mark.parametrize("kind", KINDS)
def test_a_forged_file_is_refused_or_is_one_of_a_generator(kind, n_trials, saved, rng, tmp_path):
    header, arrays = saved[kind]
    path, refused = tmp_path / "generator.npz", 0
    write_generator(path, header, arrays)
    load_and_use(path, kind)
    for _ in range(n_trials):
        if rng.random() < 0.6:
            write_generator(path, forge_header(header, rng), arrays)
        else:
            write_generator(path, header, forge_arrays(arrays, rng))
        try:
            load_and_use(path, kind)
        except ValueError as error:
            assert str(error)
            refused += 1
    assert refused > n_trials / 3


@pytest.mark.parametrize(
    "place, value, message",
    [
        (("parameters", "epsilon"), "x", "'epsilon' parameter"),
        (("parameters", "delta"), 1.5, "'delta' parameter"),
        (("parameters", "score_reg"), -1, "'score_reg' parameter"),
        (("model", "n_components"), -1, "'n_components' parameter"),
        (
            ("sketch", "table", "schema", "columns", 0, "bounds"),
            [-(10**6), 39],
            "a sketch of a table",
        ),
        (("noise_multiplier",), {"x": 1}, "no noise_multiplier"),
        (("noise_multiplier",), -1.0, "no noise_multiplier"),
        (("guarantee", "epsilon"), "x", "no epsilon"),
        (("guarantee", "delta"), -1, "no delta"),
        (("guarantee", "unit"), 3, "no text of the guarantee"),
        (("feature_names",), ["age", "wage", "sex", "height"], "columns of other names"),
    ],
)
def test_what_a_file_says_of_a_generator_must_be_possible(place, value, message, saved, tmp_path):
    header, arrays = copy.deepcopy(saved["table"])
    parent, key = place_in(header, place)
    parent[key] = value
    write_generator(tmp_path / "generator.npz", header, arrays)
    with pytest.raises(ValueError, match=message):
        DPSinkhornGenerator.load(tmp_path / "generator.npz")


def test_what_is_missing_in_a_file_is_named(saved, tmp_path):
    header, arrays = saved["image"]
    path = tmp_path / "generator.npz"
    write_generator(path, {k: of for k, of in header.items() if k != "guarantee"}, arrays)
    with pytest.raises(ValueError, match="it lacks 'guarantee'"):
        DPSinkhornGenerator.load(path)
    write_generator(path, header, {k: of for k, of in arrays.items() if k != "means"})
    with pytest.raises(ValueError, match="it lacks 'means'"):
        DPSinkhornGenerator.load(path)


@pytest.mark.parametrize(
    ("name", "value"), [("statistics.pairs", 1e308), ("statistics.largest_parity", 5)]
)
def test_what_no_table_is_counted_as_is_refused(name, value, saved, tmp_path):
    """No report could be made of it."""
    header, arrays = copy.deepcopy(saved["table"])
    arrays[name][0] = value
    write_generator(tmp_path / "generator.npz", header, arrays)
    with pytest.raises(ValueError, match="the file lacks the release"):
        DPSinkhornGenerator.load(tmp_path / "generator.npz")


def test_a_file_has_no_fewer_than_one_parity_where_it_has_any(saved, tmp_path):
    header, arrays = copy.deepcopy(saved["table"])
    write_generator(tmp_path / "generator.npz", header, arrays | {"n_parities": np.array(0)})
    with pytest.raises(ValueError, match="sketch of a table"):
        DPSinkhornGenerator.load(tmp_path / "generator.npz")


def test_the_name_of_the_column_of_people_is_a_text(saved, tmp_path):
    header, arrays = copy.deepcopy(saved["people"])
    header["sketch"]["table"]["user"] = {"sex": 1}
    write_generator(tmp_path / "generator.npz", header, arrays)
    with pytest.raises(ValueError, match="sketch of a table"):
        DPSinkhornGenerator.load(tmp_path / "generator.npz")


def test_people_of_an_earlier_version_are_refused(saved, tmp_path):
    header, arrays = copy.deepcopy(saved["people"])
    header["sketch"]["table"]["people"] = {"own": [], "order": None, "user": "user"}
    write_generator(tmp_path / "generator.npz", header, arrays)
    with pytest.raises(ValueError, match="earlier version"):
        DPSinkhornGenerator.load(tmp_path / "generator.npz")
