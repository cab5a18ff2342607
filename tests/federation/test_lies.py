"""Lies of owners: what is refused, and how far an accepted one moves a barycenter."""

import dataclasses
import hashlib
import json

import numpy as np
import pytest
from scipy.stats import binom, norm

from skdpot.federation import (
    BarycenterCoordinator,
    BarycenterOwner,
    FederationError,
    GroupRelease,
    InProcessCarrier,
    SecureAggregation,
    SigningKey,
    run_barycenter,
)
from skdpot.federation._wire import Packet, pack, unpack
from skdpot.privacy.random import make_source
from skdpot.privacy.sensitivity import histogram_sensitivities
from skdpot.releases import SummedRelease, UnitLayout, _ranges, median_of_parts
from skdpot.releases._tails import NoiseTail

NAMES = ("a", "b", "c")
N_ROWS = 500
BUDGETS = [{"epsilon": 2.0}, {"epsilon": 2.0, "delta": 1e-5}, {"epsilon": 40.0, "delta": 1e-5}]
TABLES = {
    "numbers": {"bounds": ([0, 0], [1, 1])},
    "categories": {"layout": UnitLayout((0, 2, 4), (3, 1))},
}


def release_of(kind="histogram", budget=BUDGETS[1], table="numbers", **options):
    """Return a release of two groups."""
    return GroupRelease(groups=["x", "y"], kind=kind, **budget, **TABLES[table], **options)


def rows_of(seed, n_rows=N_ROWS, n_features=2):
    """Return rows and their groups."""
    rng = np.random.default_rng(seed)
    return rng.uniform(size=(n_rows, n_features)), rng.choice(["x", "y"], n_rows)


def records_of(release, seed):
    """Return rows in unit coordinates, and positions of their groups."""
    rng = np.random.default_rng(seed)
    layout = release.unit_layout
    V = np.zeros((N_ROWS, layout.n_coordinates))
    V[:, : layout.n_numbers] = rng.uniform(size=(N_ROWS, layout.n_numbers))
    for block in layout.block_slices:
        V[np.arange(N_ROWS), block.start + rng.integers(0, block.stop - block.start, N_ROWS)] = 1
    return V, rng.integers(-1, 2, N_ROWS)


class Lying(InProcessCarrier):
    """Owners of whom one sends something else than it should."""

    def __init__(self, owners, lie, liar="c"):
        super().__init__(owners)
        self.lie, self.liar = lie, liar

    def exchange(self, messages, timeout=None):
        """Return what arrives."""
        answers = []
        for name, data in super().exchange(messages, timeout):
            told = self.lie(unpack(data)) if name == self.liar else data
            if told is not None:
                answers.append((name, pack(told) if isinstance(told, Packet) else told))
        return answers


def instead_of_the_part(make):
    """Return a lie about the vector, and about nothing else."""

    def lie(packet):
        if "vector" not in packet.arrays:
            return packet
        made = make(packet.arrays["vector"])
        if isinstance(made, bytes):
            return made
        return dataclasses.replace(packet, arrays={"vector": made})

    return lie


def greeting(**changed):
    """Return a lie in the greeting."""

    def lie(packet):
        if packet.kind != "welcome":
            return packet
        return dataclasses.replace(packet, fields=packet.fields | changed)

    return lie


def run(lie, release=None, n_support=10, **options):
    """Return the coordinator, after it was run, and what was found or the error."""
    release = release or release_of()
    owners = [
        BarycenterOwner(name, *rows_of(seed), release=release, random_state=seed)
        for seed, name in enumerate(NAMES)
    ]
    options = {"n_attempts": 1} | options
    coordinator = BarycenterCoordinator(NAMES, n_support, release=release, **options)
    try:
        return coordinator, run_barycenter(coordinator, Lying(owners, lie))
    except FederationError as error:
        return coordinator, error


def with_nan(vector):
    """Return an answer with a number that is none, as a message that was not checked."""
    data = bytearray(pack(Packet("answer", arrays={"vector": vector.astype(float)})))
    data[-8:] = np.array([np.nan]).tobytes()
    return bytes(data)


LIES = {
    "poison": (instead_of_the_part(lambda v: v * 0 + 10**15), "out of range", "1e+15"),
    "largest": (instead_of_the_part(lambda v: v * 0 - 2**60), "out of range", "number -1.15"),
    "twice": (instead_of_the_part(lambda v: abs(v) * 20), "out of range", "rows"),
    "rows": (greeting(n_rows=500_000_000_000), "out of range", "500,000,000,000 rows"),
    "nan": (instead_of_the_part(with_nan), "malformed", "cannot be read"),
    "badrecord": (lambda packet: b"\x00" * 100, "malformed", "cannot be read"),
    "oversize": (instead_of_the_part(lambda v: np.zeros(10**6, int)), "malformed", "does not fit"),
    "floats": (instead_of_the_part(lambda v: v.astype(float)), "malformed", "does not fit"),
    "hang": (lambda packet: None, None, "no answer"),
}


@pytest.mark.parametrize("name", LIES)
def test_lies_are_refused_and_the_error_names_the_liar(name):
    lie, cause, reason = LIES[name]
    coordinator, error = run(lie)
    assert isinstance(error, FederationError) and "c (" in str(error)
    assert list(error.missing) == ["c"] and reason in error.missing["c"]
    assert dict(coordinator.rejected) == ({cause: 1} if cause else {})


@pytest.mark.parametrize("name", LIES)
def test_the_others_go_on_without_a_liar(name):
    _, found = run(LIES[name][0], on_missing="drop", n_least=2)
    assert found.owners == ("a", "b") and found.dropped == ("c",)
    assert found.support.min() > -0.01 and found.support.max() < 1.01


def test_all_is_well_without_lies():
    for release in (release_of(), release_of("moments")):
        coordinator, found = run(lambda packet: packet, release)
        assert found.owners == NAMES and not coordinator.rejected


def test_rows_that_are_not_plausible():
    coordinator, error = run(lambda packet: packet, max_rows={"a": 500, "b": 100})
    assert error.missing == {"b": "the owner has more rows than the coordinator's max_rows."}
    _, found = run(lambda packet: packet, max_rows=500)
    assert found.owners == NAMES
    _, error = run(greeting(n_rows=501), max_rows=500)
    assert "501 rows, and max_rows is 500" in error.missing["c"]
    for wrong in (0, {"a": 0}, {"z": 1}):
        with pytest.raises(ValueError, match="max_rows must be"):
            BarycenterCoordinator(NAMES, 1, release=release_of(), max_rows=wrong)


def test_bounds_hold_for_other_methods():
    owners = [BarycenterOwner(name, rows_of(name == "a")[0], name) for name in NAMES]
    lie = instead_of_the_part(lambda vector: vector + 1e6)
    options = {"method": "free", "n_attempts": 1}
    coordinator = BarycenterCoordinator(NAMES, 5, bounds=(0, 1), **options)
    with pytest.raises(FederationError, match="bounds allow") as caught:
        run_barycenter(coordinator, Lying(owners, lie))
    assert list(caught.value.missing) == ["c"]
    honest = run_barycenter(coordinator, InProcessCarrier(owners))
    assert honest.converged


def test_rows_of_several_groups_where_there_is_one():
    release = release_of(owners_per_group=[2, 1])
    owners = [
        BarycenterOwner(name, rows_of(seed)[0], group, release=release, random_state=seed)
        for seed, (name, group) in enumerate(zip(NAMES, "xxy", strict=True))
    ]
    coordinator = BarycenterCoordinator(NAMES, 5, release=release, n_attempts=1)
    with pytest.raises(FederationError, match=r"c \(its answer cannot be: it has rows of several"):
        run_barycenter(coordinator, Lying(owners, instead_of_the_part(lambda v: v * 0 + 1)))


def test_a_sum_of_masked_parts_is_refused_and_nobody_named(monkeypatch):
    release = release_of(noise="shared", n_honest=2)
    keys = {name: SigningKey.create() for name in NAMES}
    publics = {name: key.public for name, key in keys.items()}
    owners = [
        BarycenterOwner(
            name, *rows_of(seed), release=release, random_state=seed, key=keys[name], owners=publics
        )
        for seed, name in enumerate(NAMES)
    ]
    settings = {"release": release, "secure": SecureAggregation(), "n_attempts": 1}
    coordinator = BarycenterCoordinator(publics, 5, **settings)
    honest = type(release).part

    def lying(self, plan, units, codes, source):
        part = honest(self, plan, units, codes, source)
        return part * 0 + 10**12 if units is owners[2]._records[0] else part

    monkeypatch.setattr(type(release), "part", lying)
    with pytest.raises(FederationError, match="Masks hide which owner") as caught:
        run_barycenter(coordinator, InProcessCarrier(owners))
    assert caught.value.missing == {} and coordinator.rejected == {"out of range": 1}


@pytest.mark.parametrize("budget", BUDGETS)
def test_accepted_lies_move_sums_by_what_is_proven_and_no_more(budget):
    release = release_of("histogram", budget)
    plan = release.plan(3 * N_ROWS, 3)
    V, codes = records_of(release, 0)
    honest = release.part(plan, V, codes * 0, make_source(0))
    n_groups, n_cells = plan.n_groups, len(honest) // plan.n_groups
    tail, quarter = plan.noise.tail, 2.0**-42
    reach = tail.of_sum(1, 2.0**-41 / len(honest))
    of_group = tail.of_sum(n_cells, quarter / (n_groups + 1))
    of_all = tail.of_magnitudes(len(honest), quarter)
    allowed = {
        "count": N_ROWS + 2 * reach,
        "group": N_ROWS + 2 * of_group,
        "all": 2 * (N_ROWS + of_all),
    }
    worst = dict.fromkeys(allowed, 0.0)
    rng = np.random.default_rng(0)
    corner = np.eye(len(honest))[0]
    starts = [honest, np.rint(N_ROWS * corner), 0 * honest]
    some = [rng.normal(size=len(honest)) for _ in range(10)]
    some += [rng.choice([0.0, 1.0], len(honest), p=[0.9, 0.1]) for _ in range(10)]
    half = np.repeat([1.0, 0.0], n_cells)
    for start in starts:
        for direction in [corner, half, 1 - half, half * 0 + 1, 2 * half - 1, *some]:
            for sign in (1, -1):
                lie = farthest(plan, start, sign * direction)
                moved = (lie - honest).reshape(n_groups, n_cells)
                for name, value in {
                    "count": np.abs(moved).max(),
                    "group": np.abs(moved.sum(axis=1)).max(),
                    "all": np.abs(moved).sum(),
                }.items():
                    worst[name] = max(worst[name], value)
                    assert value <= allowed[name], name
    # The search comes near: the bounds could not be much smaller.
    assert worst["count"] > 0.7 * allowed["count"] and worst["group"] > 0.7 * allowed["group"]


def farthest(plan, start, direction):
    """Return the last accepted vector on the way in a direction."""

    def accepted(share):
        lie = np.rint(start + share * direction).astype(np.int64)
        try:
            plan.check_range(lie, N_ROWS)
        except ValueError:
            return None
        return lie

    low, high, last = 0.0, 1e4, accepted(0.0)
    assert last is not None
    for _ in range(40):
        middle = (low + high) / 2
        lie = accepted(middle)
        low, high, last = (low, middle, last) if lie is None else (middle, high, lie)
    return last


def liars_and_others(release, n_owners, n_liars):
    """Return owners of whom some have ten times as many rows, all in a corner."""
    rng = np.random.default_rng(0)
    owners = []
    for i in range(n_owners):
        points, groups = rng.uniform(0.2, 0.5, (1000, 2)), rng.choice(["x", "y"], 1000)
        if i < n_liars:
            points, groups = np.ones((10_000, 2)), ["x"] * 10_000
        options = {"release": release, "random_state": i}
        owners.append(BarycenterOwner(f"owner {i}", points, groups, **options))
    return owners


@pytest.mark.parametrize(("n_owners", "n_liars"), [(5, 1), (9, 2)])
def test_one_of_five_and_two_of_nine_do_not_move_a_median(n_owners, n_liars):
    release = release_of("histogram", {"epsilon": 1.0})
    means = {}
    for combine in ("sum", "median"):
        carrier = InProcessCarrier(liars_and_others(release, n_owners, n_liars))
        coordinator = BarycenterCoordinator(carrier.names, 50, release=release, combine=combine)
        found = run_barycenter(coordinator, carrier)
        means[combine] = found.released.masses[0] @ found.released.points[0]
    assert (means["sum"] > 0.75).all() and (means["median"] < 0.45).all(), means
    told = carrier._owners["owner 0"].outcome
    n_rows = told["n_records"], told["n_parts"], told["n_contributors"]
    again = release.read(told["total"], *n_rows, told["rows"])
    np.testing.assert_array_equal(again.sizes, found.released.sizes)


@pytest.mark.parametrize("budget", BUDGETS[:2])
@pytest.mark.parametrize("n_rows", [[500] * 5, [100, 200, 400, 800], [100, 1000, 1000]])
def test_the_noise_of_a_median_is_what_it_is_said_to_be(budget, n_rows):
    zeros, source = np.zeros(20_000), make_source(0)
    wide = SummedRelease(
        budget["epsilon"], budget.get("delta", 0.0), histogram_sensitivities,
        n_coordinates=20_000, largest=1e6, n_parts=len(n_rows),
    )  # fmt: skip
    parts = np.array([wide.run(zeros, source) for _ in n_rows])
    measured = median_of_parts(parts, n_rows).std()
    assert wide.of_median(n_rows).standard_deviation == pytest.approx(measured, rel=0.04)


def test_medians_are_of_parts_that_are_seen():
    for options in (
        {"secure": SecureAggregation()},
        {"secure": SecureAggregation(), "release": release_of(noise="shared", n_honest=2)},
        {"method": "free", "release": None},
    ):
        with pytest.raises(ValueError, match="combine='median' is for a release with own noise"):
            BarycenterCoordinator(
                NAMES, 4, **({"release": release_of(), "combine": "median"} | options)
            )
    with pytest.raises(ValueError, match="combine must be one of"):
        BarycenterCoordinator(NAMES, 4, release=release_of(), combine="mean")


def test_a_median_without_an_owner_is_restored(tmp_path):
    settings = {"release": release_of(), "combine": "median", "on_missing": "drop"}
    first = BarycenterCoordinator(NAMES, 4, n_attempts=1, **settings)
    owners = [
        BarycenterOwner(name, *rows_of(i, 500 + i), release=release_of(), random_state=i)
        for i, name in enumerate(NAMES)
    ]
    path = tmp_path / "checkpoint"
    found = run_barycenter(first, Lying(owners, LIES["poison"][0]), checkpoint=path)
    again = BarycenterCoordinator(NAMES, 4, n_attempts=1, **settings)
    again.restore(path.read_bytes())
    restored = run_barycenter(again, InProcessCarrier(owners))
    assert restored.owners == ("a", "b") and restored.rows == found.rows
    np.testing.assert_array_equal(restored.support, found.support)


def test_the_record_says_who_saw_what_and_no_value():
    heard = {}

    def lie(packet):
        heard[packet.kind] = pack(packet)
        return packet if packet.kind != "answer" else LIES["poison"][0](packet)

    coordinator, found = run(lie, on_missing="drop", n_least=2)
    told = json.loads(found.record())
    assert told["rows"] == dict.fromkeys(NAMES, N_ROWS) and told["dropped"] == ["c"]
    assert told["rejected"] == {"c": {"out of range": 1}} == found.rejected
    hello, step, finish = told["legs"]
    assert hello["answered"]["c"] == hashlib.sha256(heard["welcome"]).hexdigest()
    assert set(hello["asked"]) == set(NAMES) and set(step["answered"]) == {"a", "b"}
    size = int(np.prod(release_of().plan(3 * N_ROWS, 3).released_shape))
    assert (step["values_up"], step["values_down"]) == (f"{size} int64", "")
    assert finish["values_down"] == f"20 float64, {size} int64"
    # Repeated questions are the same messages.
    assert len(set(step["asked"].values())) == 1


def test_the_record_has_the_keys_and_what_was_not_signed_with_them():
    keys = {name: SigningKey.create() for name in NAMES}
    publics = {name: key.public for name, key in keys.items()}
    owners = [
        BarycenterOwner(name, *rows_of(i), release=release_of(), key=keys[name])
        for i, name in enumerate(NAMES)
    ]
    settings = {"release": release_of(), "on_missing": "drop", "n_attempts": 1}
    coordinator = BarycenterCoordinator(publics, 5, **settings)
    # What another than the owner has packed is as it should be, but for the signature.
    found = run_barycenter(coordinator, Lying(owners, lambda packet: packet))
    told = json.loads(found.record())
    assert told["keys"] == publics and told["rejected"] == {"c": {"not signed": 1}}


# ----------------------------------------------------------------------------- how far noise goes


def pmf_of(tail, n_terms):
    """Return the distribution of a sum of rounded variables, from its definition."""
    reach = int(tail.scale * (45 if tail.laplace else 10)) + 12
    ends = (np.arange(reach + 2) - 0.5) / tail.scale
    beyond = np.exp(-ends) if tail.laplace else 2 * norm.sf(ends)
    beyond[0] = 1.0
    magnitudes = -np.diff(beyond)
    one = np.concatenate([magnitudes[:0:-1] / 2, magnitudes[:1], magnitudes[1:] / 2])
    total = one
    for _ in range(n_terms - 1):
        total = np.convolve(total, one)
    return total, np.arange(len(total)) - len(total) // 2


@pytest.mark.parametrize("laplace", [True, False])
@pytest.mark.parametrize("scale", [0.2, 1.0, 3.3, 20.0])
@pytest.mark.parametrize("n_terms", [1, 2, 5, 20])
def test_reaches_are_those_of_the_exact_distribution(laplace, scale, n_terms):
    tail, probability = NoiseTail(laplace, scale), 2.0**-36
    pmf, values = pmf_of(tail, n_terms)

    def exceeds(reach):
        return pmf[np.abs(values) > reach].sum()

    reach = tail.of_sum(n_terms, probability)
    assert exceeds(reach) <= probability
    if n_terms == 1:
        assert reach == 0 or exceeds(reach - 1) > probability
    elif scale >= 1:
        # The factor that the documentation states, but for rounding up.
        assert exceeds((reach - 1) / 1.25 - 1) > probability


@pytest.mark.parametrize("laplace", [True, False])
@pytest.mark.parametrize("scale", [1.0, 5.0])
def test_magnitudes_are_those_of_the_exact_distribution(laplace, scale):
    tail, probability = NoiseTail(laplace, scale), 2.0**-36
    pmf, values = pmf_of(tail, 1)
    one = np.zeros(values[-1] + 1)
    np.add.at(one, np.abs(values), pmf)
    total = one
    for _ in range(39):
        total = np.convolve(total, one)
    beyond = np.cumsum(total[::-1])[::-1]
    reach = int(tail.of_magnitudes(40, probability))
    assert beyond[reach + 1] <= probability < beyond[int(reach / 1.5)]


@pytest.mark.parametrize("kind", ["histogram", "moments"])
@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize(
    ("budget", "shared"),
    [*((budget, {}) for budget in BUDGETS)]
    + [(budget, {"noise": "shared", "n_honest": 2}) for budget in BUDGETS[1:]],
)
def test_honest_parts_and_sums_are_in_range(kind, table, budget, shared):
    release = release_of(kind, budget, table, **shared)
    plan = release.plan(3 * N_ROWS, 3)
    for seed in range(4):
        V, codes = records_of(release, seed)
        # Also with all records in one corner, of one group, or of none.
        for rows, groups in [(V, codes), (V * 0 + V[0], codes * 0), (V, codes * 0 - 1)]:
            parts = [release.part(plan, rows, groups, make_source(seed + i)) for i in range(3)]
            plan.check_range(sum(parts), 3 * N_ROWS, 3)
            if not shared:
                plan.check_range(parts[0], N_ROWS)


def n_refused(release, n_draws):
    """Return how many honest parts are refused."""
    plan = release.plan(3 * N_ROWS, 3)
    # In one cell, the total is at its end.
    V, codes = np.zeros((N_ROWS, 2)), np.zeros(N_ROWS, dtype=int)
    values, source, refused = plan.values(V, codes), make_source(0), 0
    for _ in range(n_draws):
        try:
            plan.check_range(plan.noise.run(values, source).astype(np.int64), N_ROWS)
        except ValueError:
            refused += 1
    return refused


@pytest.mark.experiment
@pytest.mark.parametrize("budget", BUDGETS)
def test_honest_parts_are_never_refused(budget):
    # A hundred thousand draws of each took a minute and a half, and none was refused, either.
    assert n_refused(release_of("histogram", budget), 10_000) == 0


@pytest.mark.parametrize("budget", BUDGETS[:2])
def test_honest_parts_are_refused_as_rarely_as_is_said(budget, monkeypatch):
    monkeypatch.setattr(_ranges, "_REFUSED_BY_CHANCE", 0.1)
    n_draws = 1500
    refused = n_refused(release_of("histogram", budget), n_draws)
    # Nor much more rarely, or else more could be accepted from a liar.
    assert 0.01 * n_draws < refused < binom.ppf(1 - 1e-6, n_draws, 0.1)


def farthest_lie(plan, n_rows):
    """Return a part with all rows in the upper corner, and noise in its favour."""
    part = plan.values(np.ones((n_rows, 2)), np.zeros(n_rows, dtype=int)).ravel()
    reach = plan.noise.tail.of_sum(1, 2.0**-41 / part.size)
    return (part + reach * (part > 0)).astype(np.int64)


def mean_of_support(release, lie, n_owners, n_liars, k, seed, **options):
    """Return the middle of the barycenter where the first owners declare k rows and lie."""
    rng = np.random.default_rng(seed)
    owners = []
    for i in range(n_owners):
        n_rows = k if i < n_liars else 2000
        group = rng.choice(["x", "y"], n_rows)
        points = 0.7 * rng.normal(size=(n_rows, 2)) + np.where(group == "x", 1, -1)[:, None]
        settings = {"release": release, "random_state": 100 * seed + i}
        owners.append(BarycenterOwner(f"owner {i}", points, group, **settings))
    coordinator = BarycenterCoordinator(
        [owner.name for owner in owners], 64, release=release, n_attempts=1, **options
    )
    plan = release.plan(n_liars * k + (n_owners - n_liars) * 2000, n_owners)
    honest = GroupRelease.part

    def part(self, planned, units, codes, source):
        liar = any(units is owner._records[0] for owner in owners[:n_liars])
        return lie(plan, k) if liar else honest(self, planned, units, codes, source)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(GroupRelease, "part", part)
        found = run_barycenter(coordinator, InProcessCarrier(owners))
    return np.abs(found.support.mean(axis=0)).max()


@pytest.mark.experiment
@pytest.mark.parametrize(("n_owners", "n_liars"), [(5, 1), (9, 2)])
@pytest.mark.parametrize("k", [2000, 10_000])
def test_sums_and_medians_move_as_the_page_says(n_owners, n_liars, k):
    release = GroupRelease(1.0, ["x", "y"], bounds=([-4, -4], [4, 4]), delta=1e-6, kind="histogram")
    moved = {
        combine: np.mean([
            mean_of_support(release, farthest_lie, n_owners, n_liars, k, seed, combine=combine)
            for seed in range(3)
        ])
        for combine in ("sum", "median")
    }  # fmt: skip
    assert moved["median"] < 0.1 and moved["sum"] > (0.7 if k == 2000 else 2.0)


@pytest.mark.experiment
def test_a_liar_in_a_secure_sum_moves_all_rows():
    release = GroupRelease(1.0, ["x", "y"], bounds=([-4, -4], [4, 4]), delta=1e-6, kind="histogram")

    def guessing(share):
        def lie(plan, k):
            rng = np.random.default_rng(99)
            groups = rng.choice([0, 1], 4 * k)
            points = 0.7 * rng.normal(size=(4 * k, 2)) + np.where(groups == 0, 1, -1)[:, None]
            others = plan.values(release.to_units(points), groups).ravel()
            n_mine = int(k + share * 4 * k)
            mine = plan.values(np.ones((n_mine, 2)), np.zeros(n_mine, dtype=int))
            return (mine.ravel() - np.rint(share * others)).astype(np.int64)

        return lie

    secure = {"secure": SecureAggregation()}
    moved = [mean_of_support(release, guessing(s), 5, 1, 2000, 0, **secure) for s in (0, 0.5, 1)]
    assert moved[0] < 1 < moved[1] < 3 < moved[2]
    with pytest.raises(FederationError, match="Masks hide"):
        mean_of_support(release, guessing(1.1), 5, 1, 2000, 0, **secure)
