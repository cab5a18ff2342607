r"""
=========================================
A synthetic table of wages and promotions
=========================================

A company of 20,000 people wants to publish data on promotions, but may not publish anybody's
record. Its table is simulated, but typical: ages and hours, a bonus that is 0 for most people and
large for some, levels of education, sites, and missing answers.
:class:`skdpot.DPSinkhornGenerator` with a *schema* releases a sketch of such a table under
:math:`(\varepsilon, \delta)`-differential privacy: noisy counts of pairs of columns. Tables that
are drawn from it have the same columns, contain only declared values, and may be published.

How good are these tables? Their marginals are compared with those of the private table. A
classifier learns to predict promotions from synthetic people, and is tested on real ones. Records
are also drawn under conditions, such as a site or an age. It takes less than a minute on one core.
"""

# %%
# Declared values
# ---------------
# A schema says which values each column may hold. It is public and may not be learned from the
# table: here, the range of ages follows from labour law, and the sites are on the company's
# website. Numbers outside their bounds are moved to them. For the bonus only the bounds are
# declared. The range of most of its values is found privately.

from itertools import combinations

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OrdinalEncoder

from skdpot import DPSinkhornGenerator, PrivacyLedger

EPSILONS, DELTA = (0.2, 1.0, 5.0), 1e-5
LEVELS = ["school", "apprenticeship", "bachelor", "master"]
SITES = ["Aachen", "Bari", "Cork", "Dole", "Ede"]
SCHEMA = {
    "age": range(18, 68),
    "hours": {"bounds": (5, 60), "integer": True, "missing": True},
    "education": {"levels": LEVELS},
    "site": SITES,
    "bonus": (0.0, 50_000.0),
    "promoted": ["no", "yes"],
}
TARGET = "promoted"
N_RECORDS, N_TEST, N_DRAWN = 20_000, 10_000, 10_000


def make_company(n_records, seed=0):
    """Return a simulated table."""
    rng = np.random.default_rng(seed)
    site = rng.choice(5, n_records, p=[0.4, 0.25, 0.2, 0.1, 0.05])
    level = np.clip(rng.binomial(3, 0.35 + 0.06 * site), 0, 3)
    age = np.clip(rng.normal(38 + 3 * level, 11), 18, 67).astype(int)
    hours = np.where(rng.uniform(size=n_records) < 0.7, 40, rng.integers(10, 56, n_records))
    merit = 0.05 * (age - 40) + 0.8 * (level - 1) + 0.05 * (hours - 38) + 0.5 * (site == 3)
    promoted = rng.uniform(size=n_records) < 1 / (1 + np.exp(2 - merit))
    rewarded = rng.uniform(size=n_records) < np.where(promoted, 0.45, 0.08)
    bonus = np.where(rewarded, np.minimum(rng.lognormal(7.5 + 0.3 * level, 0.7), 50_000), 0)
    return pd.DataFrame(
        {
            "age": age,
            "hours": pd.array(hours, dtype="Int64"),
            "education": np.array(LEVELS)[level],
            "site": np.array(SITES)[site],
            "bonus": bonus,
            "promoted": np.where(promoted, "yes", "no"),
        }
    ).assign(hours=lambda table: table["hours"].mask(rng.uniform(size=n_records) < 0.1))


# %%
# A release and its ledger
# ------------------------
# The fit is charged before anything is released. The other fits of this page are seeded, so that it
# always looks the same. To protect real people, leave ``random_state`` at None. The number of
# people is private, too: draw a round number of records, not ``len(company)``.


def release_once(company):
    """Sketch the table, without a seed and on a ledger; return both."""
    ledger = PrivacyLedger(1.0, DELTA, neighbouring="add_remove")
    generator = DPSinkhornGenerator(1.0, DELTA, schema=SCHEMA, target=TARGET, ledger=ledger)
    return generator.fit(company), ledger


def make(company, epsilon, seed=0):
    """Return a generator of tables, and a table of people."""
    generator = DPSinkhornGenerator(
        epsilon, DELTA, schema=SCHEMA, target=TARGET, random_state=seed
    ).fit(company)
    return generator, generator.sample(N_DRAWN)


# %%
# How close are the tables?
# -------------------------
# Columns and pairs of columns are compared in total variation, which is 0 for equal distributions
# and 1 for disjoint ones. For this, numbers are put into cells. A classifier learns to predict
# promotions from each table, and is tested on people who are in neither table.

CELLS = {
    "age": [25, 30, 35, 40, 45, 50, 55, 60],
    "hours": [20, 30, 40, 41, 50],
    "bonus": [1e-2, 1_000, 2_000, 3_000, 5_000, 10_000],
}


def cells_of(table):
    """Return a table in which numbers are replaced by cells; missing values are a cell, too."""
    columns = {
        name: np.digitize(table[name].astype(float).fillna(np.inf), CELLS[name])
        if name in CELLS
        else table[name].to_numpy()
        for name in SCHEMA
    }
    return pd.DataFrame(columns)


def distance(columns, made, real):
    """Return the total variation distance of some columns of two tables."""
    shares = [table.value_counts(list(columns), normalize=True) for table in (made, real)]
    return float(shares[0].sub(shares[1], fill_value=0).abs().sum() / 2)


def errors(made, real):
    """Return the mean distances of columns, and of pairs of them."""
    made, real = cells_of(made), cells_of(real)
    return tuple(
        np.mean([distance(names, made, real) for names in combinations(SCHEMA, size)])
        for size in (1, 2)
    )


def learned(made, test):
    """Return the AUC of a classifier that learned from a table who is promoted."""
    words = make_column_transformer(
        (OrdinalEncoder(categories=[LEVELS, SITES]), ["education", "site"]), remainder="passthrough"
    )
    model = make_pipeline(words, HistGradientBoostingClassifier(max_iter=50, random_state=0))
    model.fit(_inputs(made), made[TARGET])
    return roc_auc_score(test[TARGET] == "yes", model.predict_proba(_inputs(test))[:, 1])


def _inputs(table):
    return table.drop(columns=TARGET).astype({"hours": float})


# %%
# Conditions
# ----------
# The model of the table is a mixture, and columns are independent within each component. So it can
# be sampled exactly under a condition: a value, a list of values, or a range. The printed shares
# under a condition can be compared with those of the private table.

CONDITIONS = (
    {},
    {"site": "Dole"},
    {"age": (18, 25)},
    {"education": ["bachelor", "master"], "age": (50, 67)},
)


def promoted_share(table):
    """Return the share of those who are promoted."""
    return float((table[TARGET] == "yes").mean())


def meets(table, given):
    """Return the records that meet conditions."""
    for name, wanted in given.items():
        if isinstance(wanted, tuple):
            table = table[table[name].between(*wanted)]
        else:
            table = table[table[name].isin(wanted if isinstance(wanted, list) else [wanted])]
    return table


def draw_tables(company, tables):
    """Draw the distributions of age and bonus of the private table, and of synthetic ones."""
    figure, axes = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
    for axis, (name, edges) in zip(
        axes, {"age": np.arange(18, 70, 3), "bonus": np.arange(1, 12_000, 500)}.items(), strict=True
    ):
        axis.hist(company[name], edges, density=True, color="0.85", label="private")
        for (epsilon, made), line in zip(tables.items(), ("-", "--", ":"), strict=False):
            style = {
                "histtype": "step",
                "linestyle": line,
                "label": rf"$\varepsilon$ = {epsilon:g}",
            }
            axis.hist(made[name], edges, density=True, **style)
        axis.set_xlabel(name)
    axes[0].set_ylabel("density")
    axes[1].set_title("those who have any bonus", fontsize="medium")
    axes[0].legend()
    return figure


# %%
# Results
# -------
# With an epsilon of 1, a classifier learns nearly as much from the synthetic people as from the
# real ones.

if __name__ == "__main__":
    company, test = make_company(N_RECORDS), make_company(N_TEST, seed=1)
    generator, ledger = release_once(company)
    print(f"{ledger.spent()[0]:g} of the ledger's epsilon is spent; drawing costs nothing:")
    print(generator.sample(4).to_string(index=False))
    made = {epsilon: make(company, epsilon) for epsilon in EPSILONS}
    print("\n           columns    pairs   AUC of what is learned")
    print(f"{'real':>10s}{0:8.3f}{0:9.3f}{learned(company, test):10.3f}")
    for epsilon, (_, table) in made.items():
        one, two = errors(table, company)
        print(f"eps {epsilon:6g}{one:8.3f}{two:9.3f}{learned(table, test):10.3f}")
    print("\nShare of the promoted, private and synthetic (epsilon 1):")
    for given in CONDITIONS:
        shares = [
            promoted_share(meets(company, given)),
            promoted_share(made[1.0][0].sample(5_000, given=given)),
        ]
        print("{:.3f}  {:.3f}  {}".format(*shares, given or "everybody"))
    draw_tables(company, {epsilon: table for epsilon, (_, table) in made.items()})
    plt.show()
