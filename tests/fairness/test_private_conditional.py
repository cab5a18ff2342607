"""The private conditional repair: a sketch is released and charged, and rows are drawn from it."""

import pickle
import re

import numpy as np
import pytest

from skdpot import FairBarycenterPreprocessor, PrivacyLedger
from skdpot.fairness import ConditionalRepair, FreeSupport
from skdpot.fairness.metrics import group_auc
from skdpot.privacy import allow_useless_releases
from skdpot.releases import SketchReleases, SumRelease
from tests.oracles.fair_tables import COLUMNS, DECLARED, extreme_tables, mixed_frame, shifted_groups
from tests.quick import first_quick

DELTA = 1e-5
PRIVATE = DECLARED | {
    "sensitive_features": "group",
    # Few rows are drawn from the sketch: the repair is coarser, and the fit quicker.
    "method": ConditionalRepair(max_rows=500),
    "epsilon": 1.0,
    "delta": DELTA,
    "random_state": 0,
}
MANY = mixed_frame(3000)[COLUMNS]


def fit(frame=MANY, **params):
    return FairBarycenterPreprocessor(**PRIVATE | params).fit(frame)


def transformed(frame=MANY, **params):
    return fit(frame, **params).set_output(transform="pandas").transform(frame)


def seeded_ledger(*budget):
    return PrivacyLedger(*budget or [None], allow_seeded=True)


# What is charged, and what is released
# -------------------------------------


@pytest.fixture(scope="module")
def seeded():
    """A seeded fit, its ledger, and the noise and relation of all its releases."""
    made, make = [], SketchReleases.__init__

    def watched(self, noise_multiplier, shares, relation, source):
        made.append((noise_multiplier, relation))
        make(self, noise_multiplier, shares, relation, source)

    ledger = seeded_ledger()
    with pytest.MonkeyPatch.context() as patch, allow_useless_releases():
        patch.setattr(SketchReleases, "__init__", watched)
        fair = fit(ledger=ledger)
    return fair, ledger, made


def test_the_event_that_is_charged_is_that_of_the_noise(seeded):
    _, ledger, made = seeded
    (entry,), ((noise_multiplier, relation), *_) = ledger.entries(), made
    assert entry.event.event.noise_multiplier == noise_multiplier
    assert entry.event.delta == DELTA and relation == ledger.neighbouring == "replace_one"
    assert entry.label == "FairBarycenterPreprocessor, a sketch of a table"
    assert entry.unit == "record" and 0.9 < entry.epsilon <= 1.0


@pytest.mark.experiment
def test_weights_are_released_and_there_is_no_certificate():
    """The purity test holds that the map is fitted to drawn rows alone."""
    fitted = fit(MANY)
    exact = (MANY["group"] == "f").mean()
    assert fitted.group_weights_[0] != exact
    assert fitted.group_weights_[0] == pytest.approx(exact, abs=0.05)
    assert fitted.certificate_ is None


# What is said does not depend on private values
# ----------------------------------------------


@pytest.mark.parametrize("epsilon", first_quick([0.01, 1.0, 1e4], 1))
def test_no_table_raises_or_warns(epsilon):
    """Warnings are errors here."""
    tables = list(extreme_tables())
    # At extreme budgets every third.
    for name, frame in tables[:: 1 if epsilon == 1.0 else 3]:
        ledger = seeded_ledger(1e5, 0.1)
        with np.errstate(all="raise"):
            fair = fit(frame, epsilon=epsilon, ledger=ledger)
        np.testing.assert_allclose(fair.group_weights_.sum(), 1, err_msg=name)
        assert len(ledger.entries()) == 1
        rows = mixed_frame(50)[COLUMNS]
        moved = fair.set_output(transform="pandas").transform(rows)
        for column, labels in DECLARED["categories"].items():
            assert set(moved[column]) <= set(labels), name


@pytest.mark.parametrize(
    "values",
    [{"group": "nobody"}, {"group": None}, {"color": "black"}, {"color": None}, {"word": 7.5}],
    ids=str,
)
def test_a_row_that_is_not_declared_counts_nowhere(values, monkeypatch):
    sums = []

    def watched(self, values, source):
        sums.append(values)
        raise InterruptedError

    # The first sums are the counts of cells, of all columns.
    monkeypatch.setattr(SumRelease, "run", watched)
    frame = MANY.astype(object)
    ((name, value),) = values.items()
    for table in (frame.iloc[1:], frame.assign(**{name: [value, *frame[name][1:]]})):
        with pytest.raises(InterruptedError):
            fit(table)
    np.testing.assert_array_equal(*sums)


BAD = {
    "no delta": ({"delta": None}, "needs delta above 0"),
    "delta of 0": ({"delta": 0.0}, "needs delta above 0"),
    "a column without bounds": ({"bounds": {"number": (-4, 5)}}, r"columns \['whole'\]"),
    "a large range": (
        {"bounds": {"number": (-4, 5), "whole": range(2**60)}}, "column 'whole' must be declared"
    ),
    "a range of one": ({"bounds": {"number": (-4, 5), "whole": range(1)}}, "must be a pair"),
    "no categories": ({"categories": {"level": ["low"]}}, "categories must be declared"),
    "tol": ({"method": ConditionalRepair(tol=2.0)}, "'tol' parameter"),
    "epsilon": ({"epsilon": 1e-17, "delta": 1e-200}, "epsilon is too small for a sketch"),
    "fixed": ({"conditional_on": "nothing"}, "conditional_on names"),
    "a support": ({"method": "support", "conditional_on": "level"}, "method='conditional'"),
}  # fmt: skip


@pytest.mark.parametrize("params, message", BAD.values(), ids=BAD)
def test_what_is_wrong_raises_before_anything_is_charged(params, message):
    ledger = seeded_ledger()
    with pytest.raises(ValueError, match=message):
        fit(ledger=ledger, **params)
    assert not ledger.entries()


# How well it repairs
# -------------------


@pytest.mark.experiment
def test_groups_are_harder_to_find_and_columns_keep_their_kinds():
    ranges = {"number": (-4, 5), "whole": range(11)}
    rows = transformed(bounds=ranges, epsilon=8.0)
    before = group_auc(MANY.drop(columns="group"), MANY["group"], random_state=0)
    after = group_auc(rows, MANY["group"], random_state=0)
    assert before > 0.8 and after < 0.5 + 0.5 * (before - 0.5)
    assert set(rows["whole"]) <= set(range(11)) and rows["number"].between(-4, 5).all()
    assert list(rows["level"].cat.categories) == ["low", "middle", "high"]
    # An accuracy that more budget buys.
    rows = transformed(epsilon=50.0)
    assert abs(np.subtract(*rows.groupby(MANY["group"])["number"].mean())) < 0.2


@pytest.mark.experiment
@pytest.mark.refuses_useless
def test_a_release_that_tells_nothing_of_groups_moves_nothing_and_says_so():
    frame = MANY.assign(group=np.random.default_rng(1).permutation(MANY["group"]))
    with pytest.warns(UserWarning, match="no row is changed: in what was released"):
        fair = fit(frame)
    rows, own = fair.set_output(transform="pandas").transform(frame), frame[COLUMNS[:-1]]
    assert (rows.astype(object) == own.astype(object)).all(axis=None)


def codes_of_places(n, seed):
    """Return rows of two groups: the code of a place, and what it tells of, in no order."""
    of_place, rng = np.random.default_rng(0).normal(size=(51, 5)), np.random.default_rng(seed)
    place = rng.integers(0, 51, n)
    group = (rng.uniform(size=n) < 0.2 + 0.6 * place / 50).astype(int)
    told = of_place[place] + 0.3 * rng.normal(size=(n, 5))
    return np.column_stack([place, told]), np.array([*"fm"])[group]


@pytest.mark.experiment
@pytest.mark.refuses_useless
@pytest.mark.parametrize("seed", [2, 5])
def test_a_map_that_breaks_what_the_release_hardly_shows_is_made_only_if_it_is_asked_for(seed):
    X, labels = codes_of_places(2000, seed)
    params = {"epsilon": 3.0, "delta": DELTA, "groups": ["f", "m"], "random_state": seed}
    fair = FairBarycenterPreprocessor(bounds=([0] + [-4] * 5, [51] + [4] * 5), **params)
    with pytest.warns(UserWarning, match="no row is changed: in what was released"):
        fair.fit(X, sensitive_features=labels)
    assert (fair.transform(X, sensitive_features=labels) == X).all()
    fair.set_params(method=ConditionalRepair(tol=0.0)).fit(X, sensitive_features=labels)
    rows = fair.transform(X, sensitive_features=labels)
    assert group_auc(rows, labels, random_state=0) > group_auc(X, labels, random_state=0) + 0.2


USELESS = {
    "a sketch": {"epsilon": 0.05},
    "a histogram": {"method": "support", "epsilon": 0.1},
    "by default": {"method": "auto", "delta": None, "epsilon": 0.3},
}


@pytest.mark.refuses_useless
@pytest.mark.parametrize("params", USELESS.values(), ids=USELESS)
def test_a_map_that_would_show_groups_is_refused_and_the_error_says_what_helps(params):
    ledger = seeded_ledger()
    with pytest.raises(ValueError, match="nothing was charged") as refused:
        fit(MANY, ledger=ledger, **params)
    assert not ledger.entries()
    assert "FairBarycenterRegressor(epsilon=...)" in str(refused.value)
    fair = FairBarycenterPreprocessor(**PRIVATE | params)
    assert fair.preview(3000, MANY[:0]).refusal == str(refused.value)
    # What the error names is enough, and little less is not.
    rows = int(re.search(r"from about ([\d,]+) rows", str(refused.value))[1].replace(",", ""))
    assert fair.preview(rows, MANY[:0]).refusal is None
    assert fair.preview(int(rows / 1.4), MANY[:0]).refusal is not None
    budget = re.search(r"an epsilon of about ([\d.]+)", str(refused.value))
    if budget:
        more = float(budget[1]) * 1.05
        assert fair.set_params(epsilon=more).preview(3000, MANY[:0]).refusal is None


def tied_columns(n, seed):
    """Return rows of three groups, on a lattice, that nearly are functions of each other."""
    rng = np.random.default_rng(seed)
    group = rng.integers(0, 3, n)
    size = np.round(rng.lognormal(0.1 * group, 0.5), 1)
    columns = [size, np.round(size**0.5 + rng.normal(0, 0.02, n), 2), np.round(2 * size, 0)]
    return np.column_stack([*columns, rng.normal(size=n) + group]), np.array([*"abc"])[group]


@pytest.mark.experiment
@pytest.mark.refuses_useless
def test_columns_that_nearly_determine_each_other_show_no_group():
    (X, labels), (new, of_new) = tied_columns(3000, 0), tied_columns(6000, 1)
    fair = FairBarycenterPreprocessor(
        method="conditional", epsilon=4.0, delta=DELTA, random_state=0, groups=["a", "b", "c"],
        bounds=([0, 0, 0, -4], [8, 4, 16, 7]),
    ).fit(X, sensitive_features=labels)  # fmt: skip

    def found(rows):
        ties = np.column_stack([rows[:, 1] - rows[:, 0] ** 0.5, rows[:, 2] - 2 * rows[:, 0]])
        return group_auc(np.hstack([rows, ties]), of_new, random_state=0)

    repaired = fair.transform(new, sensitive_features=of_new)
    assert found(new) > 0.7 and found(repaired) < 0.6
    assert np.corrcoef(repaired[:, 0], repaired[:, 2])[0, 1] > 0.5


def small_group(n, seed, width=3):
    """Return rows of a small group that differs from the other one in a single column."""
    rng = np.random.default_rng(seed)
    labels = np.where(rng.uniform(size=n) < 0.1, "f", "m")
    return rng.normal(size=(n, width)) + np.outer(labels == "f", np.arange(width) == 0), labels


def heaped_columns(n, seed):
    """Return rows of two groups: whole heights, and pressures that are often 120."""
    rng = np.random.default_rng(seed)
    group = rng.integers(0, 2, n)
    height = np.round(161 + 8 * group + rng.normal(0, 7, n))
    pressure = np.round(75 + 0.3 * height + rng.normal(0, 14, n))
    pressure = np.where(rng.uniform(size=n) < 0.3, 120, pressure)
    return np.column_stack([height, pressure]), np.array([*"fm"])[group]


@pytest.mark.experiment
@pytest.mark.refuses_useless
@pytest.mark.parametrize(
    "rows_of, n, most, epsilon, bounds",
    [
        (small_group, 3000, 0.62, 3.0, (-4, 5)),
        (lambda n, seed: small_group(n, seed, 6), 3000, 0.62, 3.0, (-4, 5)),
        (heaped_columns, 8000, 0.65, 2.0, ([50, -100], [250, 1000])),
    ],
)
def test_a_map_hides_groups_and_marks_none(rows_of, n, most, epsilon, bounds):
    (X, labels), (new, of_new) = rows_of(n, 0), rows_of(6000, 1)
    params = {"delta": DELTA, "groups": ["f", "m"], "random_state": 0, "method": "conditional"}
    fair = FairBarycenterPreprocessor(epsilon=epsilon, bounds=bounds, **params)
    repaired = fair.fit(X, sensitive_features=labels).transform(new, sensitive_features=of_new)
    before, after = (group_auc(rows, of_new, random_state=0) for rows in (new, repaired))
    assert before > 0.7 and after < most


def test_rows_have_the_images_of_their_keys(seeded):
    one = seeded[0]
    np.testing.assert_array_equal(one.transform(MANY)[:40], one.transform(MANY[:40]))
    copied = pickle.loads(pickle.dumps(one))
    np.testing.assert_array_equal(one.transform(MANY), copied.transform(MANY))


@pytest.mark.experiment
def test_columns_that_are_conditioned_on_are_left():
    rows = transformed(conditional_on=["level", "number"], epsilon=8.0)
    assert (rows["number"].to_numpy() == MANY["number"].to_numpy()).all()
    assert (rows["level"].to_numpy() == MANY["level"].to_numpy()).all()
    assert (rows["color"].to_numpy() != MANY["color"].to_numpy()).any()


@pytest.mark.experiment
def test_a_group_that_nobody_is_in_has_next_to_no_weight():
    fair = fit(groups=["f", "m", "x"], epsilon=100.0)
    assert fair.group_weights_[2] < 0.01
    assert fair.transform(MANY.assign(group="x")).shape == (3000, 5)


# What is chosen
# --------------


def chosen(frame=MANY, **params):
    fitted = fit(frame, **{"method": "auto"} | params)
    return "support" if hasattr(fitted, "support_") else "conditional"


@pytest.mark.experiment
def test_the_choice_goes_by_what_is_public():
    assert chosen() == chosen(MANY[:100], epsilon=0.1) == "conditional"
    assert chosen(delta=None) == "support"
    # Of three columns a histogram shows small groups if there is little noise.
    three = MANY[[*COLUMNS[2:]]]
    assert chosen(three, bounds=None, epsilon=4.0) == "support"
    assert chosen(three, bounds=None, epsilon=0.5) == "conditional"
    assert chosen(MANY.assign(group="nobody")) == "conditional"
    fair = FairBarycenterPreprocessor(**PRIVATE | {"method": "auto"}).fit(MANY)
    # The choice was that of the fit, however few rows there are later.
    assert fair.transform(MANY[:3]).shape == (3, 5)


@pytest.mark.experiment
@pytest.mark.parametrize("delta, outcome", [(DELTA, None), (None, "4096 cells")])
def test_too_many_columns_for_a_histogram_need_the_conditional_method(delta, outcome):
    ledger = PrivacyLedger(1.0, DELTA)
    fair = FairBarycenterPreprocessor(
        epsilon=1.0, delta=delta, bounds=(-5, 6), groups=["a", "b"], ledger=ledger
    )
    # Too few rows for the conditional method, if there were a choice.
    X, labels = shifted_groups((30, 40), n_columns=13)
    if delta:
        assert not hasattr(fair.fit(X, sensitive_features=labels), "support_")
    else:
        with pytest.raises(ValueError, match=outcome):
            fair.fit(X, sensitive_features=labels)
        assert not ledger.entries()


def test_bounds_that_are_ranges_are_bounds_of_supports_too():
    ends = [{"number": (-4, 5), "whole": whole} for whole in (range(11), (0, 10))]
    found = [fit(method=FreeSupport(n_support=5), bounds=bounds).support_ for bounds in ends]
    np.testing.assert_array_equal(*found)
