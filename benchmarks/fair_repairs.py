"""The board of repairs of tables: utility, parity, and who finds the group of fresh rows.

Run with ``python -m benchmarks.fair_repairs FOLDER --out RESULTS.json``. The folder holds the files
that `fair_tables.SOURCES` names. For every table, number of training rows and seed, each contender
is fitted on the training rows, and repairs these and fresh rows, of which nobody saw any. Models
are trained on the repaired training rows, and judged on fresh ones. Attackers learn the group from
one half of the repaired fresh rows and name it in the other half: boosting, a forest, and boosting
that gets differences and ratios of numbers, and by how much each number misses what two others
give (their difference, ratio or product, or the logarithm of one). All get the same encoding.

Results are kept in the file as they are found, so that a run can go on, several can write at once,
and ``--contenders FairBarycenterPreprocessor --compare OLD.json`` measures ours alone, takes the
peers of an older file, and prints what has changed. ``--rows`` and ``--tables`` choose; nothing is
measured with ``--seeds 0``, and the file is printed; ``--write doc/measured`` writes the tables of
the page.

Groups with fewer than 10 training rows are left out. PrototypeRepresentationLearner, whose
gradients are numerical, is fitted on 500 rows at most, with 5 prototypes and 20 steps.
"""

import argparse
import fcntl
import json
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from functools import cache, partial
from itertools import combinations, combinations_with_replacement, product
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.stats import rankdata
from sklearn.base import clone
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
)
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.preprocessing import StandardScaler

from benchmarks.fair_board import EQUAL_PARITY, UNTOUCHED, Result, brief, mean_and_error
from benchmarks.fair_contenders import (
    Contender,
    Repaired,
    Split,
    by_correlation,
    by_default,
    by_equipy,
    by_fair_predictions,
    by_thresholds,
    decisions_of,
    judge,
    scores_of,
    split_at,
    untouched,
)
from benchmarks.fair_tables import SOURCES, FairTable, load_fair_table
from skdpot.fairness.metrics import group_auc

_BOOSTING = {"max_iter": 60, "max_leaf_nodes": 15, "early_stopping": False, "random_state": 0}
CLASSIFIERS = {
    "linear": LogisticRegression(max_iter=500),
    "boosting": HistGradientBoostingClassifier(**_BOOSTING),
}
REGRESSORS = {"linear": Ridge(), "boosting": HistGradientBoostingRegressor(**_BOOSTING)}
_TREES = HistGradientBoostingClassifier(**_BOOSTING)
_FOREST = RandomForestClassifier(60, min_samples_leaf=5)
# Fresh rows at most and at least; rows of a group to be in training, and to be judged.
_FRESH, _LEAST_FRESH = 4_000, 400
_SMALL, _JUDGED = 10, 50
# Numbers whose pairs an attacker gets, and misses of identities that it gets.
_PAIRED, _MISSES = 8, 20
# A column with more values than this is one of numbers, for the map by column.
_FEW = 10
# Differences of utility that nobody would notice, and a group that is easier to find by so much.
_EQUAL, _HARM = 0.002, 0.02
_KEY = ["n_rows", "table", "contender", "model", "split"]
OURS = "FairBarycenterPreprocessor"


def draw(table: FairTable, n_rows: int, seed: int) -> Split | None:
    """Draw training rows and fresh rows, or return None if there are too few."""
    rows = np.random.default_rng(seed).permutation(len(table))
    if len(rows) < n_rows + _LEAST_FRESH:
        return None
    names, sizes = np.unique(table.groups[rows[:n_rows]], return_counts=True)
    kept = np.isin(table.groups[rows], names[sizes >= _SMALL])
    sides = rows[:n_rows][kept[:n_rows]], rows[n_rows:][kept[n_rows:]][:_FRESH]
    numeric = SimpleImputer(strategy="median", add_indicator=True, keep_empty_features=True)
    return split_at(table, sides, seed, numeric)


# Peers of few lines.


def _reassign(words, groups, shown, of, rng):
    """Return words of rows whose shares in every group are those of all training rows.

    What a group has too much of moves to what it has too little of, and nothing else.
    """
    names, codes = np.unique(words, return_inverse=True)
    pooled = np.bincount(codes) / len(codes)
    moved = shown.copy()
    for group in np.unique(of):
        own = np.bincount(codes[groups == group], minlength=len(names)) / np.sum(groups == group)
        lacking = np.maximum(pooled - own, 0)
        for code in np.flatnonzero(own > pooled):
            rows = np.flatnonzero((of == group) & (shown == names[code]))
            rows = rows[rng.random(len(rows)) < 1 - pooled[code] / own[code]]
            moved[rows] = rng.choice(names, len(rows), p=lacking / lacking.sum())
    return moved


def _average_quantiles(values, groups, shown, of, rng, use_median=False):
    """Return numbers moved to the average, or lower median, of the quantile functions of groups.

    The rank of a number that occurs several times is drawn; that of a missing one, too.
    """
    samples = {g: np.sort(values[(groups == g) & ~np.isnan(values)]) for g in np.unique(groups)}
    samples = {g: sample for g, sample in samples.items() if len(sample)}
    sizes = [np.sum(groups == g) for g in samples]
    ranks = rng.random(len(shown))
    for group, sample in samples.items():
        rows = np.flatnonzero((of == group) & ~np.isnan(shown))
        low, high = (np.searchsorted(sample, shown[rows], side) for side in ("left", "right"))
        ranks[rows] = (low + ranks[rows] * (high - low)) / len(sample)
    places = [(ranks * len(s)).astype(int).clip(0, len(s) - 1) for s in samples.values()]
    quantiles = [s[place] for s, place in zip(samples.values(), places, strict=True)]
    if use_median:
        return np.quantile(quantiles, 0.5, axis=0, method="lower")
    return np.average(quantiles, axis=0, weights=sizes)


def by_columns(split: Split) -> Repaired:
    """Map each column by itself: numbers by their quantiles, words and few values by shares."""
    rng = np.random.default_rng(split.seed)
    train, groups = split.train.X, split.train.groups
    sides = []
    for half in split.halves:
        moved = half.X.copy()

        def by_share(values, shown, of=half.groups):
            both = [column.astype(object).fillna("").astype(str) for column in (values, shown)]
            return _reassign(both[0].to_numpy(), groups, both[1].to_numpy(), of, rng)

        for name in train:
            values, shown = train[name], half.X[name]
            is_number = pd.api.types.is_numeric_dtype(values)
            if is_number and values.nunique() > _FEW:
                both = values.to_numpy(float), shown.to_numpy(float)
                found = _average_quantiles(both[0], groups, both[1], half.groups, rng)
                missing = by_share(values.isna(), shown.isna()) == "True"
                moved[name] = np.where(missing, np.nan, found)
            else:
                found = by_share(values, shown)
                moved[name] = pd.to_numeric(found, errors="coerce") if is_number else found
        sides.append(split.encode(moved))
    return Repaired(*sides)


def by_medians(split: Split) -> Repaired:
    """Repair numbers as DisparateImpactRemover does: to the median of the quantile functions."""
    rng = np.random.default_rng(split.seed)
    train = split.train.X.select_dtypes("number")
    sides = []
    for half in split.halves:
        moved = half.X.copy()
        for name in train:
            of = train[name].to_numpy(float), half.X[name].to_numpy(float)
            found = _average_quantiles(of[0], split.train.groups, of[1], half.groups, rng, True)
            moved[name] = np.where(np.isnan(of[1]), np.nan, found)
        sides.append(split.encode(moved))
    return Repaired(*sides)


def by_shares(split: Split) -> Repaired:
    """Weigh rows so that the group and the target are independent, as Reweighing does."""
    cells = pd.DataFrame({"group": split.train.groups, "target": split.train.target})
    expected = cells["group"].map(cells["group"].value_counts(normalize=True))
    expected *= cells["target"].map(cells["target"].value_counts(normalize=True))
    found = cells.groupby(["group", "target"])["target"].transform("size") / len(cells)
    return Repaired(split.train.encoded, split.test.encoded, (expected / found).to_numpy())


def by_prototypes(split: Split) -> Repaired:
    from fairlearn.preprocessing import PrototypeRepresentationLearner

    scaler = StandardScaler().fit(split.train.encoded)
    learner = PrototypeRepresentationLearner(
        n_prototypes=5, fairness_weight=10.0, max_iter=20, random_state=split.seed
    )
    target = None if split.is_regression else split.train.target[:500]
    learner.fit(
        scaler.transform(split.train.encoded[:500]),
        target,
        sensitive_features=split.train.groups[:500],
    )
    return Repaired(*(learner.transform(scaler.transform(half.encoded)) for half in split.halves))


REPAIRS = (
    Contender(UNTOUCHED, untouched),
    Contender(OURS, by_default, is_ours=True),
    Contender("map by column", by_columns),
    Contender("CorrelationRemover", by_correlation, package="fairlearn"),
    Contender("PrototypeRepresentationLearner", by_prototypes, package="fairlearn"),
    Contender("Reweighing", by_shares, for_numbers=False),
    Contender("DisparateImpactRemover", by_medians),
)
CORRECTIONS = (
    Contender("FairBarycenterRegressor", by_fair_predictions, is_ours=True),
    Contender("ThresholdOptimizer", by_thresholds, package="fairlearn", for_numbers=False),
    Contender("EquiPy", by_equipy, package="equipy"),
)


def with_ratios(X: np.ndarray, paired: Sequence[int]) -> np.ndarray:
    """Return rows with differences and ratios of some columns, and misses of identities.

    A column that goes together with a difference, a ratio, a product or a logarithm of others
    gives one more: by how much it misses the line through most of the rows.
    """
    derived, parents = [], []
    with np.errstate(all="ignore"):
        for i, j in combinations(paired, 2):
            derived += [X[:, i] - X[:, j], X[:, i] / X[:, j], X[:, j] / X[:, i]]
            parents += [(i, j)] * 3
        n_pairs = len(derived)
        for i, j in combinations_with_replacement(paired, 2):
            derived, parents = [*derived, X[:, i] * X[:, j]], [*parents, (i, j)]
        derived += [np.log1p(np.abs(X[:, i])) for i in paired]
        parents += [(i,) for i in paired]
    if not derived:
        return X
    derived = np.nan_to_num(np.column_stack(derived), posinf=0.0, neginf=0.0)
    with np.errstate(all="ignore"):
        ranks = rankdata(np.column_stack([X[:, paired], derived]), axis=0)
        together = np.nan_to_num(np.corrcoef(ranks.T)[: len(paired), len(paired) :])
    for k, of in enumerate(parents):
        together[np.isin(paired, of), k] = 0.0
    found = []
    for place in np.argsort(-np.abs(together), axis=None)[:_MISSES]:
        column, k = np.unravel_index(place, together.shape)
        if abs(together[column, k]) > 0.8:
            x, y = derived[:, k], X[:, paired[column]]
            steps = np.diff(x) != 0
            slope = np.median(np.diff(y)[steps] / np.diff(x)[steps])
            found.append(y - slope * x)
    return np.column_stack([X, derived[:, :n_pairs], *found]).astype(np.float32)


def attack(X: np.ndarray, groups: np.ndarray, estimator: object = _TREES) -> float:
    """Return how well an attacker names the group of one half, who learned it from the other."""
    options = {"cv": 2, "min_group_size": _JUDGED, "random_state": 0}
    return group_auc(X, groups, estimator=estimator, **options)


def attack_rows(split: Split, X: np.ndarray) -> dict[str, float]:
    """Return how well each attacker names the group of repaired fresh rows."""
    # The same pairs before and after a repair, unless its columns are others.
    is_encoded = X.shape[1] == split.test.encoded.shape[1]
    like = split.test.encoded if is_encoded else X
    n_numbers = split.train.X.select_dtypes("number").shape[1] if is_encoded else X.shape[1]
    sizes = np.array([len(np.unique(column)) for column in like[:, :n_numbers].T])
    paired = [k for k in np.argsort(sizes)[::-1][:_PAIRED] if sizes[k] > 2]
    return {
        "boosting": attack(X, split.test.groups),
        "forest": attack(X, split.test.groups, _FOREST),
        "ratios": attack(with_ratios(X, paired), split.test.groups),
    }


def measure(table: FairTable, n_rows: int, split: Split, contender: Contender) -> Iterator[Result]:
    """Yield what each model reaches after a repair, or corrected."""
    kind = "repair" if contender in REPAIRS else "correction"
    repaired, found = Repaired(*(half.encoded for half in split.halves)), {}
    start = time.process_time()
    if kind == "repair":
        repaired = contender.run(split)
        seconds = time.process_time() - start
        found = attack_rows(split, repaired.test)
    scaler = StandardScaler().fit(repaired.train)
    sides = [scaler.transform(X) for X in (repaired.train, repaired.test)]
    halves = [replace(half, encoded=X) for half, X in zip(split.halves, sides, strict=True)]
    scaled = replace(split, train=halves[0], test=halves[1])
    for name, model in (REGRESSORS if split.is_regression else CLASSIFIERS).items():
        if kind == "repair":
            model = clone(model)
            model.fit(sides[0], split.train.target, sample_weight=repaired.weights)
            scores = scores_of(model, sides[1])
            decisions = decisions_of(split, scores)
        else:
            start = time.process_time()
            corrected = contender.run(scaled, clone(model))
            seconds = time.process_time() - start
            scores, decisions = corrected.scores, corrected.decisions
            found = {"boosting": attack(scores[:, None], split.test.groups)}
        yield Result(
            *(table.name, contender.name, kind, contender.is_ours, name, split.seed),
            **judge(split, decisions, scores, _JUDGED),
            group_auc=found,
            seconds=seconds,
            n_rows=n_rows,
        )


def add(path: Path, results: list[Result]) -> None:
    """Add results to a file that other runs add to as well."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        kept = json.loads(path.read_text()) if path.exists() else []
        part = path.with_suffix(".part")
        part.write_text(json.dumps([*kept, *map(asdict, results)]))
        part.replace(path)


def load(path: Path | None) -> pd.DataFrame:
    """Return results as a table; R2 takes the place of AUC, and the best attacker is "group"."""
    if path is None or not path.exists():
        return pd.DataFrame(columns=[*_KEY, "is_ours"])
    found = pd.json_normalize(json.loads(path.read_text()))
    found.columns = [name.rpartition(".")[2] for name in found]
    found = found.rename(columns={"decisions": "gap", "scores": "KS"})
    if "R2" in found:
        found["AUC"] = found["AUC"].fillna(found["R2"])
    attackers = [name for name in ("boosting", "forest", "ratios") if name in found]
    return found.assign(group=found[attackers].max(axis=1)).drop_duplicates(_KEY, keep="last")


# How ours is compared: ours, the kinds of its peers, utility, and the gap that they must reach.
COMPARISONS = {
    "rows, by group AUC": (OURS, ["repair"], "AUC", "group"),
    "rows, by KS": (OURS, ["repair"], "AUC", "KS"),
    "scores, by KS": ("FairBarycenterRegressor", ["repair", "correction"], "AUC", "KS"),
    "decisions, by gap": ("FairBarycenterRegressor", ["correction"], "accuracy", "gap"),
}


def verdicts_of(results: pd.DataFrame) -> pd.DataFrame:
    """Return the lead of ours over the best peer that reaches its gap, for each comparison."""
    found = []
    for key, cell in results.groupby(["n_rows", "table", "model"], sort=False):
        wide = cell.pivot(index="split", columns="contender")
        for title, (ours, kinds, measure, gap) in COMPARISONS.items():
            peers = cell[~cell["is_ours"] & cell["kind"].isin(kinds)]["contender"].unique()
            if ours not in wide["gap"] or wide[measure][ours].isna().all():
                continue
            leads = -wide[measure][peers].sub(wide[measure][ours], axis=0)
            gaps = wide[gap][peers].sub(wide[gap][ours], axis=0).mean()
            leads = leads[peers[gaps <= EQUAL_PARITY]].dropna(axis=1, how="all")
            if leads.shape[1] > 0:
                peer = leads.mean().idxmin()
                lead, error = mean_and_error(leads[peer].dropna())
                is_lost = -lead > max(_EQUAL, np.nan_to_num(error))
                found.append((*key, title, "LOST" if is_lost else "held", lead, error, peer))
    names = ["n_rows", "table", "model", "comparison", "verdict", "lead", "error", "peer"]
    return pd.DataFrame(found, columns=names)


def harms_of(results: pd.DataFrame) -> pd.Series:
    """Return by how much the best attacker finds the group more easily after our repair."""
    wide = results.drop_duplicates(["n_rows", "table", "split", "contender"]).pivot(
        index=["n_rows", "table", "split"], columns="contender", values="group"
    )
    if not {OURS, UNTOUCHED} <= set(wide):
        return pd.Series(dtype=float)
    return (wide[OURS] - wide[UNTOUCHED]).groupby(["n_rows", "table"], sort=False).mean().dropna()


def _both(of: pd.DataFrame, measure: str) -> str:
    """Return the means of a measure with the linear model and with boosting."""
    means = of.groupby("model", sort=False)[measure].mean()
    return " / ".join(brief([means[name]]) for name in ("linear", "boosting"))


def means_of(results: pd.DataFrame) -> pd.DataFrame:
    """Return means over the tables with a binary target, whose number a contender has, too."""
    shown = {"AUC": "AUC", "accuracy": "accuracy", "gap": "gap of decisions", "KS": "KS of scores"}
    classified = results[results["accuracy"].notna()]
    rows = [
        {
            "": name,
            **{title: _both(of, measure) for measure, title in shown.items()},
            "group AUC": brief([of["group"].mean()]),
            "tables": of["table"].nunique(),
        }
        for name, of in classified.groupby("contender", sort=False)
    ]
    order = [one.name for one in (*REPAIRS, *CORRECTIONS)]
    found = pd.DataFrame(rows, columns=["", *shown.values(), "group AUC", "tables"])
    return found.sort_values("", key=lambda names: names.map(order.index))


def show(results: pd.DataFrame, is_short: bool) -> None:
    """Print every table, verdicts, and a summary."""
    shown = ["AUC", "accuracy", "gap", "KS", "boosting", "forest", "ratios", "group", "seconds"]
    verdicts, harms = verdicts_of(results), harms_of(results)
    for key, cell in () if is_short else results.groupby(["n_rows", "table"], sort=False):
        print("\n{1}, {0:,} training rows,".format(*key), f"{cell['split'].nunique()} seeds")
        means = cell.groupby(["contender", "model"], sort=False)[shown].mean().unstack("model")
        # What attackers find in rows does not depend on the model.
        means = means.drop(columns=[(name, "boosting") for name in shown[4:]])
        print(means.round(3).to_string(na_rep=""))
        here = verdicts[(verdicts["n_rows"] == key[0]) & (verdicts["table"] == key[1])]
        print(here.drop(columns=["n_rows", "table"]).round(3).to_string(index=False, header=False))
    for n_rows, here in results.groupby("n_rows"):
        print(f"\n{n_rows:,} training rows, {here['table'].nunique()} tables")
        for title, of in verdicts[verdicts["n_rows"] == n_rows].groupby("comparison", sort=False):
            lost = of[of["verdict"] == "LOST"]
            held = of["table"].nunique() - lost["table"].nunique()
            named = [f"{a} {b} {c:+.3f}" for a, b, c in lost[["table", "model", "lead"]].to_numpy()]
            print(f"{title}: held {held} of {of['table'].nunique()}; lost: {', '.join(named)}")
        easier = [
            f"{key[1]} {h:+.3f}" for key, h in harms.items() if key[0] == n_rows and h > _HARM
        ]
        print("easier to find:", ", ".join(easier) or "nowhere")
        print(means_of(here).to_string(index=False))


def table_by_table(results: pd.DataFrame) -> pd.DataFrame:
    """Return the AUC or R2 that models reach and the group AUC: untouched, ours, by column."""
    rows = []
    for key, cell in results.groupby(["table", "n_rows"], sort=False):
        row = {"table": key[0], "rows": f"{key[1]:,}"}
        for name in (UNTOUCHED, OURS, "map by column"):
            of = cell[cell["contender"] == name]
            if len(of):
                row[f"AUC: {name}"] = _both(of, "AUC")
                row[f"group: {name}"] = brief([of["group"].mean()])
        rows.append(row)
    found = pd.DataFrame(rows).sort_values("table", kind="stable")
    parts = ["table", "rows", "AUC", "group"]
    return found[sorted(found, key=lambda name: parts.index(name.partition(":")[0]))]


def write(results: pd.DataFrame, folder: Path) -> None:
    """Write the tables of the page: means at each size, table by table, and what is lost."""
    for n_rows, here in results.groupby("n_rows"):
        means_of(here).to_csv(folder / f"fair_tables_{n_rows}.csv", index=False)
    table_by_table(results).to_csv(folder / "fair_tables.csv", index=False)
    lost = verdicts_of(results).query("verdict == 'LOST'").sort_values("lead")
    lead = [
        brief([lead]) if np.isnan(error) else f"{brief([lead])}({round(1000 * error)})"
        for lead, error in lost[["lead", "error"]].to_numpy()
    ]
    lost = lost.assign(lead=lead, rows=lost["n_rows"].map("{:,}".format))
    shown = ["rows", "table", "model", "comparison", "lead", "peer"]
    lost[shown].to_csv(folder / "fair_tables_lost.csv", index=False)


def show_changes(results: pd.DataFrame, old: pd.DataFrame) -> None:
    """Print what has changed for ours: means over seeds."""
    shown = ["AUC", "accuracy", "gap", "KS", "group"]
    ours = [of[of["is_ours"].astype(bool)].set_index(_KEY)[shown] for of in (results, old)]
    change = (ours[0] - ours[1]).dropna(how="all").groupby(_KEY[:-1]).mean()
    print("\nChanges of ours", change.round(3).to_string(), sep="\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rows", type=int, nargs="+", default=[500, 2000, 8000])
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--first", type=int, default=200, help="the first seed")
    parser.add_argument("--tables", nargs="+", default=list(SOURCES), choices=SOURCES)
    parser.add_argument("--contenders", nargs="+", default=[], help="only these")
    parser.add_argument("--without", nargs="+", default=[], help="contenders to leave out")
    parser.add_argument("--out", type=Path, required=True, help="results are added to this file")
    parser.add_argument("--compare", type=Path, help="older results, also those of peers")
    parser.add_argument("--short", action="store_true", help="print the summary alone")
    parser.add_argument("--write", type=Path, help="write the tables of the page to this folder")
    chosen = parser.parse_args()
    done = set(load(chosen.out)[["n_rows", "table", "split", "contender"]].itertuples(index=False))
    every = [one for one in (*REPAIRS, *CORRECTIONS) if one.name not in chosen.without]
    every = [one for one in every if one.name in (chosen.contenders or [one.name])]
    seeds = range(chosen.first, chosen.first + chosen.seeds)
    tables = [name for name in chosen.tables if (chosen.folder / SOURCES[name].file).is_file()]
    if chosen.seeds and len(tables) < len(chosen.tables):
        print("not in the folder:", *(set(chosen.tables) - set(tables)))
    load_once = cache(partial(load_fair_table, folder=chosen.folder))
    for n_rows, seed, name in product(chosen.rows, seeds, tables):
        left = [one for one in every if (n_rows, name, seed, one.name) not in done]
        split = draw(load_once(name), n_rows, seed) if left else None
        for one in left if split is not None else ():
            if not one.applies_to(load_once(name)):
                continue
            try:
                with warnings.catch_warnings(action="ignore"):
                    found = list(measure(load_once(name), n_rows, split, one))
            except Exception as error:
                print(f"{name}, {n_rows}, {seed}, {one.name}: {error!r:.200}", flush=True)
                continue
            print(f"{name}, {n_rows}, {seed}, {one.name}: {found[0].seconds:.1f} s", flush=True)
            add(chosen.out, found)
    results, old = load(chosen.out), load(chosen.compare)
    every = pd.concat([old[~old["is_ours"].astype(bool)], results]).drop_duplicates(
        _KEY, keep="last"
    )
    every = every[every["n_rows"].isin(chosen.rows) & every["table"].isin(chosen.tables)]
    every = every.sort_values("n_rows", kind="stable")
    show(every, chosen.short)
    if chosen.write is not None:
        write(every, chosen.write)
    if len(old):
        show_changes(results, old)


if __name__ == "__main__":
    main()
