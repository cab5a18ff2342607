"""Other blocks' records, and whether a candidate of a search can reach them."""

import gc
import pickle
import threading
import types

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from scipy import sparse
from sklearn import config_context
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.dummy import DummyClassifier

from skdpot import PrivacyLedger, PrivateSearchCV

N, BLOCKS, PLACE = 60, 3, 17
# A record has one of these: the first is looked for, and the second is in a neighbouring table.
WORDS, FLOATS, INTEGERS = ("s3cret77", "b"), (7777.25, 0.5), (7_777_777, 1)
MARKS = (
    WORDS[0].encode(), WORDS[0].encode("utf-32-le"), np.float64(FLOATS[0]).tobytes(),
    np.int64(INTEGERS[0]).tobytes(),
)  # fmt: skip
# Ways that the garbage collector does not know.
WAYS = ("_mgr", "blocks", "dictionary", "chunks", "_pa_array")
LEFT_OUT = (
    type, types.ModuleType, types.FunctionType, types.MethodType, types.BuiltinFunctionType,
    types.FrameType, types.GetSetDescriptorType, np.ufunc,
)  # fmt: skip


def buffers_of(thing):
    """Return all of the memory that an object holds, with parts that it does not show."""
    if isinstance(thing, str | int | float | complex | bytes | np.generic):
        held = [thing.encode("utf-8", "replace") if isinstance(thing, str) else thing]
        return [each if isinstance(each, bytes) else np.asarray(each).tobytes() for each in held]
    if isinstance(thing, np.ndarray) and thing.dtype.kind != "O":
        return [thing.tobytes()]
    if isinstance(thing, pa.Array):
        return [buffer.to_pybytes() for buffer in thing.buffers() if buffer is not None]
    return []


def neighbours_of(thing):
    yield from gc.get_referents(thing)
    if isinstance(thing, np.ndarray):
        yield thing.base
        yield from thing.ravel().tolist() if thing.dtype.kind == "O" else ()
    if isinstance(thing, pl.DataFrame):
        yield from thing.get_columns()
    if isinstance(thing, pl.Series):
        yield thing.to_arrow()
        yield from thing.to_frame().to_arrow().columns
    if type(thing).__module__.partition(".")[0] in ("pandas", "pyarrow"):
        for name in WAYS:
            try:
                yield getattr(thing, name)
            except Exception:  # Not all have all of these.
                continue


def reaches_mark(*things):
    """Tell whether the mark can be reached from things, by whatever way."""
    left, seen, kept = list(things), set(), []
    while left:
        thing = left.pop()
        if id(thing) in seen or isinstance(thing, LEFT_OUT):
            continue
        seen.add(id(thing))
        # An object that is made on the way must not give its place to another one.
        kept.append(thing)
        if any(mark in held for held in buffers_of(thing) for mark in MARKS):
            return True
        left += neighbours_of(thing)
    return False


SEEN = []


class Watcher(ClassifierMixin, BaseEstimator):
    """Notes whether it reaches the mark, and all that it is given."""

    def __init__(self, name="a"):
        self.name = name

    __metadata_request__fit = {"notes": True}

    def fit(self, X, y=None, notes=None):
        self.classes_ = np.array([0, 1])
        # What pandas keeps beside the values has a size, and no address.
        sizes = [str(each.memory_usage(deep=True)) for each in (X, y) if hasattr(each, "iloc")]
        SEEN.append((reaches_mark(X, y, notes), pickle.dumps((X, y, notes, sizes))))
        return self

    def score(self, X, y=None):
        return 1.0


class AllRows:
    """A splitter that trains and tests on all rows."""

    def split(self, X, y=None, groups=None):
        yield (np.arange(N // BLOCKS),) * 2

    def get_n_splits(self, X=None, y=None, groups=None):
        return 1


def fits_to(X, y=None, ledger=None, **params):
    """Return what a candidate saw, block by block."""
    SEEN.clear()
    search = PrivateSearchCV(
        Watcher(), {"name": ["a", "b"]}, n_iter=1, n_blocks=BLOCKS, cv=AllRows(),
        random_state=0, refit=False, ledger=ledger,
    )  # fmt: skip
    search.fit(X, np.arange(N) % 2 if y is None else y, **params)
    # First, both candidates are tried on invented rows, unless X is a list, which has no types.
    return SEEN[2 * (not isinstance(X, list)) :]


def column(values, which, others=None):
    """Return a list of values, with one that is or is not the mark in its place."""
    others = [values[1]] * N if others is None else list(others)
    return [*others[:PLACE], values[which], *others[PLACE + 1 :]]


def words(which):
    return column(WORDS, which, ["ab"[i % 2] for i in range(N)])


def numbers(which):
    return column(FLOATS, which, np.arange(N) / N)


def integers(which):
    return column(INTEGERS, which, range(N))


def matrix(which):
    return np.column_stack([numbers(which), np.arange(N)])


def frame(values, dtype=None, **more):
    return pd.DataFrame({"c": pd.Series(values, dtype=dtype), **more})


def with_levels(table, which):
    table.index = pd.MultiIndex.from_arrays([words(which), numbers(which)], names=["who", "when"])
    table.attrs = {"all": words(which)}
    return table


def with_unused_columns(which):
    names = pd.MultiIndex.from_tuples([(WORDS[which], "u"), ("a", "v")])
    return pd.DataFrame(np.ones((N, 2)), columns=names)[["a"]]


def categories(which, ordered=False):
    # Labels of an ordered type are declared: one that no other record has is not known elsewhere.
    labels = ["b", *{WORDS[which]: 0} - {"b": 0}.keys(), "a"]
    return pd.Categorical(words(which), categories=labels, ordered=ordered)


def intervals(which):
    return pd.arrays.IntervalArray.from_arrays(numbers(which), np.array(numbers(which)) + 1)


def in_arrow(values, kind):
    return frame(pd.array(values, dtype=pd.ArrowDtype(kind)))


class Linked:
    """An object that refers to all others of its kind."""

    def __init__(self, value, all_of_them):
        self.value, self.all_of_them = value, all_of_them
        all_of_them.append(self)


def cells(which, make):
    made = np.empty((N, 1), dtype=object)
    together = []
    made[:, 0] = [make(value, together) for value in words(which)]
    return made


# What is given, for the mark (0) and for another value (1); and in how many of the blocks the
# record with the mark can be seen.
GIVEN = {
    "array": (matrix, 1),
    "view": (lambda w: np.stack([matrix(w)] * 2)[1, ::-1], 1),
    "array of dates": (lambda w: np.array(integers(w), dtype="M8[us]")[:, None], 1),
    "array with notes": (
        lambda w: np.ones((N, 1)).astype(np.dtype("f8", metadata={"all": words(w)})),
        0,
    ),
    "array of objects": (lambda w: np.array(words(w), dtype=object)[:, None], 1),
    "objects that are lists": (lambda w: cells(w, lambda value, _: [value]), 0),
    "objects that refer to others": (lambda w: cells(w, Linked), 0),
    **{
        f"sparse, {kind.__name__}": (lambda w, kind=kind: kind(matrix(w)), 1)
        for kind in (
            sparse.csr_matrix, sparse.csc_array, sparse.lil_matrix,
        )
    },
    "list of rows": (lambda w: matrix(w).tolist(), 1),
    "list of texts": (words, 1),
    "list of dictionaries": (lambda w: [{"a": word} for word in words(w)], 0),
    "chunks of Arrow": (lambda w: pa.chunked_array([words(w)]), 1),
    "frame": (lambda w: pd.DataFrame(matrix(w)), 1),
    "frame with levels": (lambda w: with_levels(pd.DataFrame(np.ones((N, 2))), w), 0),
    "frame with levels of columns": (with_unused_columns, 0),
    "frame, named by categories": (
        lambda w: pd.DataFrame(
            np.ones((N, 1)), columns=pd.CategoricalIndex(["a"], categories=["a", WORDS[w]])
        ),
        0,
    ),
    "frame of objects": (lambda w: frame(words(w), object), 1),
    "frame of str": (lambda w: frame(words(w), "str"), 1),
    "frame of string[python]": (lambda w: frame(words(w), "string[python]"), 1),
    "frame of Int64": (lambda w: frame(integers(w), "Int64"), 1),
    "frame of dates": (
        lambda w: frame(pd.to_datetime(integers(w), unit="us").tz_localize("UTC")),
        1,
    ),
    "frame of intervals": (lambda w: frame(intervals(w)), 1),
    "frame of categories": (lambda w: frame(categories(w)), 1),
    "frame of ordered categories": (lambda w: frame(categories(w, ordered=True)), 1),
    "frame of Arrow texts": (lambda w: in_arrow(words(w), pa.string()), 1),
    "frame of Arrow numbers": (lambda w: in_arrow(numbers(w), pa.float64()), 1),
    "polars": (lambda w: pl.DataFrame({"c": numbers(w), "i": np.arange(N)}), 1),
    "polars of texts": (lambda w: pl.DataFrame({"c": [word * 9 for word in words(w)]}), 1),
    "polars of Categorical": (lambda w: pl.DataFrame({"c": words(w)}).cast(pl.Categorical), 1),
    "polars of Enum": (
        lambda w: pl.DataFrame({"c": words(w)}).cast(pl.Enum(["b", *{WORDS[w]} - {"b"}, "a"])),
        1,
    ),
}  # fmt: skip
REFUSED = {
    "masked array": lambda: np.ma.masked_array(matrix(0)),
    "array of records": lambda: np.array([(1.0,)] * N, dtype=[("c", float)]),
    "frame of sparse columns": lambda: frame(numbers(0), pd.SparseDtype(float)),
    "frame of Arrow dictionaries": lambda: in_arrow(
        words(0), pa.dictionary(pa.int8(), pa.string())
    ),
    "frame of Arrow lists": lambda: in_arrow([[1]] * N, pa.list_(pa.int8())),
    "table of Arrow": lambda: pa.table({"c": words(0)}),
    "lazy frame": lambda: pl.LazyFrame({"c": words(0)}),
    "polars of lists": lambda: pl.DataFrame({"c": [[1]] * N}),
    "polars of objects": lambda: pl.DataFrame({"c": pl.Series([{1}] * N, dtype=pl.Object)}),
    "dictionary": lambda: {"c": words(0)},
    "text": lambda: "s" * N,
}
# The same for targets and parameters of fits.
COLUMNS = {
    "array": (lambda w: np.array(words(w)), 1),
    "list": (words, 1),
    "series with levels": (lambda w: with_levels(pd.Series(np.ones(N)), w), 0),
    "series of categories": (lambda w: pd.Series(categories(w)), 1),
    "categories": (categories, 1),
    "frame": (lambda w: with_levels(frame(integers(w)), w), 1),
    "polars": (lambda w: pl.Series(words(w)).cast(pl.Categorical), 1),
}


def assert_only_its_block_sees_a_record(given, n_that_see):
    with config_context(enable_metadata_routing=True):
        marked, other = (fits_to(**given(which)) for which in (0, 1))
    # No block fails, unless it holds an object of which nobody knows what it refers to.
    assert len(marked) == len(other)
    assert sum(reaches for reaches, _ in marked) == n_that_see
    changes = sum(before != after for (_, before), (_, after) in zip(marked, other, strict=True))
    assert changes == n_that_see
    return len(marked)


@pytest.mark.parametrize("name", GIVEN)
def test_records_are_seen_in_their_block_alone(name):
    make, n_that_see = GIVEN[name]
    n_fits = assert_only_its_block_sees_a_record(lambda which: {"X": make(which)}, n_that_see)
    failing = ("objects that refer to others", "objects that are lists", "list of dictionaries")
    assert n_fits == (0 if name in failing else BLOCKS)


@pytest.mark.parametrize("argument", ["y", "notes"])
@pytest.mark.parametrize("name", COLUMNS)
def test_targets_and_parameters_are_seen_in_their_block_alone(name, argument):
    make, n_that_see = COLUMNS[name]
    assert_only_its_block_sees_a_record(
        lambda which: {"X": np.ones((N, 1)), argument: make(which)}, n_that_see
    )


@pytest.mark.parametrize("name", REFUSED)
def test_other_containers_are_refused_before_the_charge(name):
    ledger = PrivacyLedger(100.0, allow_seeded=True)
    with pytest.raises((TypeError, ValueError), match="separated from all others|mask|not read"):
        fits_to(REFUSED[name](), ledger=ledger)
    assert not ledger.entries()


def test_a_cell_that_cannot_be_sent_to_a_worker_raises_nothing():
    nested = []
    for _ in range(5000):
        nested = [nested]
    for cell in (threading.Lock(), nested):
        X = matrix(1).astype(object)
        X[PLACE, 0] = cell
        ledger = PrivacyLedger(100.0)
        search = PrivateSearchCV(
            DummyClassifier(), {"strategy": ["prior", "uniform"]}, n_iter=2, n_blocks=3, cv=2,
            n_jobs=2, refit=False, ledger=ledger,
        )  # fmt: skip
        search.fit(X, np.arange(N) % 2)
        assert len(ledger.entries()) == 1


def test_values_are_those_of_the_records():
    """Whatever the type, and with missing values."""
    frame = pd.DataFrame({"f": np.arange(N) * 1.5, "t": ["a", None, "b"] * (N // 3)})
    frame["i"] = pd.array([1, None, 3] * (N // 3), dtype="Int64")
    frame["c"] = pd.Categorical(["y", None, "x"] * (N // 3), ["z", "y", "x"], ordered=True)
    dates = pd.to_datetime(["2020-01-01", None, "2021-06-01"] * (N // 3))
    frame["d"] = dates.tz_localize("Europe/Paris")
    frame["s"] = frame["t"].astype("string[pyarrow]")
    frame["u"] = frame["d"].astype(pd.ArrowDtype(pa.timestamp("ns", "UTC")))
    blocks = [pickle.loads(seen)[0] for _, seen in fits_to(frame.set_index(frame["f"] + 1))]
    for block in blocks:
        assert block["c"].cat.ordered and "z" not in block["c"].cat.categories
        assert list(block.index) == list(range(N // BLOCKS))
        rows = frame.set_index("f", drop=False).loc[block["f"]].reset_index(drop=True)
        of = block.astype({"c": object})
        pd.testing.assert_frame_equal(of, rows.astype({"c": object}), check_column_type=False)


@pytest.mark.parametrize("kind", [pl.Categorical, pl.Enum(["c", "a", "b"])])
def test_labels_of_polars_have_numbers_that_no_other_record_decides(kind):
    """The number of a Categorical's label depends on all the labels that the process has seen."""
    labels = pl.DataFrame({"c": pl.Series(["c"] + ["b", None, "a"] * 19 + ["b"] * 2).cast(kind)})
    for _, seen in fits_to(labels):
        column = pickle.loads(seen)[0]["c"]
        known = column.to_physical().drop_nulls()
        assert set(known) == set(range(column.drop_nulls().n_unique()))
