"""Mistakes of users, over all estimators, and errors that name each with its remedy.

Rows are by class or function. Each has what the user does, what the message says is wrong, and what
it advises. Nothing is charged to any ledger. Files of the rooms look deeper at their own inputs.
"""

import re
import tempfile
import traceback
from functools import cache, partial
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import sparse
from sklearn.cluster import KMeans
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.feature_selection import VarianceThreshold
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import f1_score, make_scorer, zero_one_loss
from sklearn.model_selection import GroupKFold
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder
from sklearn.svm import LinearSVC

import skdpot
from skdpot import (
    DPSinkhornGenerator,
    ExponentialMechanismSampler,
    FairBarycenterClassifier,
    FairBarycenterPreprocessor,
    FairBarycenterRegressor,
    KLProjectionSampler,
    PrivacyLedger,
    PrivateADMMTransport,
    PrivateSearchCV,
    PrivateSinkhornDistance,
    SphericalProjectionSampler,
    WassersteinProjectionSampler,
    optimal_base_measure,
    private_ot_cost,
    published,
    release_files,
    wasserstein_projection,
)
from skdpot.display import GroupDistributionDisplay
from skdpot.fairness import DeclaredGroups, FreeSupport, metrics
from skdpot.generative import TableSketch
from skdpot.parts import Agreement, add_parts, make_part
from skdpot.privacy import LaplaceMechanism, LedgerError, PureDpEvent
from skdpot.published import (
    BarycenterOwner,
    NoisySinkhornDistance,
    PrivateMessageADMM,
    SinkhornGradientGenerator,
    barycenter_rounds,
)
from skdpot.tables import read_table_file

DRAWN = np.random.default_rng(0)

# Users' distributions
# --------------------

PLACES = np.array([[0.0, 0.0], [1.0, 0.0], [4.0, 3.0]])
VISITS = np.array([[2, 1, 0], [0, 1, 3]])
NAMED_VISITS = pd.DataFrame(VISITS, columns=["home", "work", "park"])
NUMBERED_VISITS = pd.DataFrame(VISITS, columns=[5, 30, 70])
NUMBERED_PLACES = pd.DataFrame(PLACES, index=[5, 30, 70])


def sampler(ledger, kind=WassersteinProjectionSampler, **options):
    uniform = {"base_measure": "uniform"} if kind is WassersteinProjectionSampler else {}
    return kind(**{"input_points": PLACES, "ledger": ledger} | uniform | options)


def fitted_sampler(ledger, **options):
    return sampler(ledger, **options).fit(VISITS)


# Groups of records
# -----------------

X = DRAWN.uniform(size=(40, 2))
GROUP = np.repeat(["a", "b"], 20)
TEXT = np.array([["1.5 kg", "2"]] * 40, dtype=object)
STAY = {"stay": (0.0, 48.0)}
STAYS = pd.DataFrame({"stay": pd.to_timedelta(np.arange(40), unit="h")})


def distance(ledger, **options):
    return PrivateSinkhornDistance(**{"bounds": (0, 1), "ledger": ledger} | options)


# People of two groups
# --------------------

PEOPLE = pd.DataFrame(
    {
        "age": DRAWN.integers(18, 80, 60).astype(float),
        "income": DRAWN.normal(30, 5, 60),
        "sex": np.repeat(["f", "m"], 30),
        "city": DRAWN.choice(["Oslo", "Rome"], 60),
    }
)
NUMBERS, SEX = PEOPLE[["age", "income"]], PEOPLE["sex"]
NUMBERS_AND_SEX = PEOPLE[["age", "income", "sex"]]
HIRED, WAGE = DRAWN.integers(0, 2, 60), DRAWN.normal(size=60)
CODED = NUMBERS.assign(sex=1 * (SEX == "f"))
FIRST = PEOPLE.index == 0
AGE_WITH_GAP = PEOPLE["age"].where(~FIRST)
DECLARED = {
    "epsilon": 1.0,
    "delta": 1e-5,
    "bounds": {"age": range(18, 81), "income": (0, 60)},
    "categories": {"city": ["Oslo", "Rome"]},
    "groups": DeclaredGroups(["f", "m"]),
    "random_state": None,
}


def repair(ledger=None, **options):
    defaults = {"sensitive_features": "sex", "random_state": 0, "ledger": ledger}
    return FairBarycenterPreprocessor(**defaults | options)


def private_repair(ledger, **options):
    return repair(ledger, **DECLARED | options)


@cache
def fitted_repair():
    return repair(sensitive_features=None, method=FreeSupport()).fit(
        NUMBERS, sensitive_features=SEX
    )


def regressor(**options):
    defaults = {"sensitive_features": "sex", "sensitive_in_estimator": False}
    return FairBarycenterRegressor(**{"estimator": Ridge()} | defaults | options)


def classifier(model):
    return FairBarycenterClassifier(
        model, sensitive_features="sex", sensitive_in_estimator=False, cv=None
    )


def private_classifier(ledger, **options):
    frozen = FrozenEstimator(LogisticRegression().fit(NUMBERS, HIRED))
    private = {"epsilon": 1.0, "groups": DeclaredGroups(["f", "m"]), "ledger": ledger}
    return classifier(frozen).set_params(cv="auto", **private | options)


def private_regressor(ledger, **options):
    frozen = FrozenEstimator(Ridge().fit(NUMBERS, WAGE))
    private = {"epsilon": 1.0, "groups": DeclaredGroups(["f", "m"]), "bounds": (-3, 3)}
    return regressor(**{"estimator": frozen, "ledger": ledger} | private | options)


@cache
def fitted_regressor():
    beside = {"sensitive_features": None, "sensitive_in_estimator": True}
    return regressor(**beside).fit(NUMBERS, WAGE, sensitive_features=SEX)


# Tables and vectors to be imitated
# ---------------------------------

TABLE = pd.DataFrame({"age": DRAWN.integers(18, 80, 60), "city": PEOPLE["city"]})
SCHEMA = {"age": range(18, 80), "city": ["Oslo", "Rome"]}


def of_tables(ledger, **options):
    sketch = TableSketch(20, n_iter=2)
    return DPSinkhornGenerator(**{"schema": SCHEMA, "model": sketch, "ledger": ledger} | options)


def of_vectors(ledger, **options):
    return DPSinkhornGenerator(**{"bounds": (0, 1), "ledger": ledger} | options)


@cache
def of_classes():
    return of_vectors(None, epsilon=None, classes=["a", "b"]).fit([*X] * 9, [*GROUP] * 9)


@cache
def people():
    return of_tables(None, random_state=0).fit(TABLE)


def gradients(ledger, **options):
    return SinkhornGradientGenerator(ledger=ledger, **options)


# A network of 6 targets and 3 sources
# ------------------------------------

UTILITIES = DRAWN.uniform(1, 5, (6, 3))
DISTANCES = np.abs(np.subtract.outer(range(6), range(3)))
NETWORK = {"utility_bounds": (1, 5), "target_bounds": (0, 5), "source_bounds": (0, 10)}


def allocation(ledger, **options):
    return PrivateADMMTransport(**NETWORK | {"ledger": ledger} | options)


@cache
def fitted_allocation():
    return PrivateADMMTransport(None, source_bounds=(0, 10)).fit(pd.DataFrame(UTILITIES))


def messages(ledger, **options):
    return PrivateMessageADMM(**NETWORK | {"ledger": ledger} | options)


# A search
# --------

RECORDS = DRAWN.normal(size=(200, 3))
LABELS = DRAWN.integers(0, 2, 200)


def search(ledger, **options):
    defaults = {"estimator": LogisticRegression(), "param_distributions": {"C": [0.1, 1.0]}}
    return PrivateSearchCV(**defaults | {"n_iter": 2, "ledger": ledger} | options)


def of_fairlearn(y_true, y_pred, *, sensitive_features):
    """Stand for a metric of fairlearn."""


of_fairlearn.__module__ = "fairlearn.metrics"


def parity_scorer(sensitive_features="sex", **options):
    named = {"sensitive_features": sensitive_features}
    return metrics.make_fairness_scorer(metrics.ks_between_groups, **named, **options)


# Parts of owners, and files
# --------------------------


def drift():
    return PrivateSinkhornDistance(bounds=(0, 1), mechanism="histogram", groups=["a", "b"])


AGREEMENT = Agreement(drift(), 2, 4000, ["north", "south"])


def part_of(owner):
    path = Path(tempfile.mkdtemp()) / f"{owner}.part"
    of_owner = PrivacyLedger(1.0)
    return make_part(
        AGREEMENT, owner, np.tile(X, (50, 1)), list(GROUP) * 50, ledger=of_owner, path=path
    )


def written(text):
    path = Path(tempfile.mkdtemp()) / "table.csv"
    path.write_text(text)
    return path


COST = np.array([[0.0, 1.0], [1.0, 0.0]])
HALVES = np.array([0.5, 0.5])
# By class or function: what the user does, with a ledger of `book`, what is wrong, what to do.
MISTAKES = {
    WassersteinProjectionSampler: [
        ("dates as points",
         lambda book: sampler(book(), input_points=PLACES.astype("M8[s]")).fit(VISITS),
         "input_points holds dates", "make numbers of them first"),
        ("a second matrix", lambda book: sampler(book()).fit_transform(VISITS, VISITS),
         "y is not used", "pass other data by name, as source_utilities or points"),
        ("places in another order than columns with numbers as names",
         lambda book: sampler(book(), input_points=NUMBERED_PLACES[::-1]).fit(NUMBERED_VISITS),
         "input_points has the names of X in another order", "in the order of X, as by reindex"),
        ("places on earth in degrees",
         lambda book: fitted_sampler(book(), input_points=PLACES + [51, 0], metric="haversine"),
         "numbers above 2 pi", "Convert degrees by numpy.radians"),
        ("text", lambda book: sampler(book()).fit([["much", "none", "some"]]),
         "X holds text", r"pandas.crosstab\(users, places\)\.reindex\(columns=all_places"),
        ("an epsilon that was set after the fit",
         lambda book: fitted_sampler(book()).set_params(epsilon=0.5).transform(VISITS),
         "the fit had epsilon=1, not 0.5", "fit again"),
        ("a user in two rows",
         lambda book: fitted_sampler(book()).transform(pd.DataFrame(VISITS, ["ann", "ann"])),
         "the index of X has a user twice", r"groupby\(level=0\).sum.*reset_index\(drop=True"),
        ("a path as ledger", lambda book: fitted_sampler("budget.sqlite"),
         "got the path 'budget.sqlite'",
         r"PrivacyLedger.open\('budget.sqlite'\), or .*path='budget"),
    ],
    KLProjectionSampler: [
        ("a base measure of another sampler",
         lambda book: fitted_sampler(book(), kind=KLProjectionSampler, base_measure="optimal"),
         "Got 'optimal' instead", "must be a str among {'minimax'}"),
    ],
    ExponentialMechanismSampler: [
        ("order 0", lambda book: fitted_sampler(book(), kind=ExponentialMechanismSampler, order=0),
         "Got 0 instead", r"must be a float in the range \(0.0, inf\)"),
    ],
    SphericalProjectionSampler: [
        ("one feature", lambda book: SphericalProjectionSampler(ledger=book()).fit([[1.0], [1.0]]),
         "n_features=1", "needs at least 2 features"),
    ],
    PrivateSinkhornDistance: [
        ("groups that are left in X", lambda b: distance(b()).fit(AGES.assign(year=1), ONES),
         "column 'year' is in X and beside it", "drop it from X, or rename it"),
        ("a frame as bounds",
         lambda book: distance(book(), bounds=pd.DataFrame([[0, 0], [1, 1]])).fit(X, GROUP),
         r"must be a pair \(low, high\)", "or as two lists in the order of the columns"),
        ("a similarity",
         lambda b: distance(b(), metric=lambda a, b: -abs(a - b).sum(), cost_range=(0, 2)).fit(
             X, GROUP
         ),
         r"is -2 between opposite corners, -?0 at equal points, with cost_range=\(0.0, 2.0\)",
         "Give a distance in this unit, no similarity"),
        ("a similarity within its range",
         lambda b: distance(b(), metric=lambda a, b: np.exp(-abs(a - b).sum()),
             cost_range=(0, 1)).fit(X, GROUP),
         "is 0.135335 between opposite corners, 1 at equal points", "no similarity"),
        ("metres in a range of kilometres",
         lambda b: distance(b(), metric=lambda a, b: 1000 * abs(a - b).sum(),
             cost_range=(0, 2)).preview(40, 2, group_sizes={0: 20, 1: 20}),
         "is 2000 between opposite corners", "in this unit, no similarity, or clip it"),
        ("dates as bounds",
         lambda book: distance(book(), bounds=tuple(np.array([0, 1], "M8[D]"))).fit(X, GROUP),
         r"must be a pair \(low, high\)", "of finite numbers"),
        ("bounds as a pair for each feature",
         lambda book: distance(book(), bounds=[(5, 6), (0, 1)]).fit(X, GROUP),
         r"must be a pair \(low, high\)", r"becomes such bounds by tuple\(zip\(\*pairs\)\)"),
        ("one bound in a list", lambda book: distance(book(), bounds=([0], [1])).fit(X, GROUP),
         r"must be a pair \(low, high\)", "arrays with one number for each of the 2 features"),
        ("durations", lambda b: distance(b(), bounds=None, schema=STAY).fit(STAYS, GROUP),
         "column 'stay' has durations", r"X\['stay'\] / pandas.Timedelta\(hours=1\)"),
        ("labels as sizes", lambda b: distance(b()).preview(40, 2, group_sizes=pd.Series(GROUP)),
         "group_sizes holds labels", r"as {label: number}"),
        ("two samples of one column", lambda book: distance(book()).fit(AGES, AGES.round()),
         "y must be a list of groups", r"compare samples by private_ot_cost\(X, Y\)"),
        ("numbers as groups", lambda book: distance(book()).fit(np.tile(X, (30, 1)), range(1200)),
         "a group for nearly every record", r"make bands of numbers .*two samples by private_ot_c"),
        ("roots of distances",
         lambda book: distance(book(), metric="euclidean", order=2).fit(X, GROUP),
         "order takes roots of powers", "leave it out, or use 'sqeuclidean'"),
        ("the name of a column", lambda book: distance(book()).fit(X, "year"),
         "got a single string", "pass the values of this column, and X without it"),
        ("a grid of too many cells",
         lambda book: distance(book(), mechanism="histogram").fit(np.tile(X, 7), GROUP),
         "more than 4096 cells", "Use fewer features, or mechanism='output'"),
        ("a ledger of another relation",
         lambda book: distance(book(neighbouring="add_remove")).fit(X, GROUP),
         "PrivateSinkhornDistance, public .* not hide how many .* the ledger is for 'add_remove'",
         r"Use a PrivacyLedger\(.*, neighbouring='replace_one'\)\. .*own part of their budget"),
    ],
    private_ot_cost: [
        ("samples of two spaces",
         lambda book: private_ot_cost(X, X[:, :1], bounds=(0, 1), ledger=book()),
         "X has 2 features, and Y has 1", "they must agree"),
        ("epsilon", lambda b: private_ot_cost(X[:, 0], X[:, 0], np.ones((9, 9)), ledger=b()),
         "two samples, and no weights", "costs are those of metric="),
        ("groups", lambda b: private_ot_cost(X, X, bounds=(0, 1), ledger=b(), groups=["a", "b"]),
         "has the groups X and Y", "leave out groups"),
        ("an option that there is not",
         lambda book: private_ot_cost(X, X, bounds=(0, 1), ledger=book(), penalty=1),
         "unexpected keyword argument 'penalty'", "PrivateSinkhornDistance"),
    ],
    NoisySinkhornDistance: [
        ("the paper's account and a ledger",
         lambda book: NoisySinkhornDistance(bounds=(0, 1), reg=0.1, accounting="paper",
             ledger=book()).fit(X, GROUP),
         "nothing is guaranteed", "Set accounting='sound', or use no ledger"),
    ],
    FairBarycenterPreprocessor: [
        ("an attribute that is left in X",
         lambda book: private_repair(book(), sensitive_features=None).fit(
             PEOPLE, sensitive_features=SEX
         ),
         "column 'sex' is in X and beside it", "drop it from X, or rename it"),
        ("a new group",
         lambda book: fitted_repair().transform(NUMBERS, sensitive_features=["x"] * 60),
         "neither declared nor in the fit: 'x'", r"unknown='nearest'\) .* leave out"),
        ("numbers of groups as text",
         lambda book: repair().fit(CODED).transform(CODED.astype({"sex": str})),
         "neither declared nor in the fit: .*'0'", "number 1 is not the text '1': convert these"),
        ("pairs of groups as numbers",
         lambda book: repair(sensitive_features=["sex", "city"]).fit(
             CODED.assign(city="1").astype({"sex": str})
         ).transform(CODED.assign(city=1)),
         r"nor in the fit: .*\(0, 1\)", "number 1 is not the text '1': convert these"),
        ("gaps in several columns",
         lambda book: repair().fit(PEOPLE.assign(age=AGE_WITH_GAP, income=AGE_WITH_GAP)),
         "Input X contains NaN or infinity, in column 'age'",
         r"Columns with missing values: \['age', 'income'\]"),
        ("text without categories",
         lambda book: private_repair(book(), categories=None, bounds=(0, 60)).fit(
             PEOPLE.astype({"city": "string"})
         ),
         "type string, which is not numeric", "Convert it first, or declare its labels by cat"),
        ("durations",
         lambda b: private_repair(b(), bounds=STAY, categories=None).fit(STAYS.assign(sex=GROUP)),
         "column 'stay' has durations", r"X\['stay'\] / pandas.Timedelta\(hours=1\)"),
        ("a column that there is not", lambda book: repair(sensitive_features="gender").fit(PEOPLE),
         "has no column 'gender'", "Its columns are"),
        ("the values of a column for its name",
         lambda book: repair(sensitive_features=SEX).fit(PEOPLE),
         "must name columns of X", "give values of rows to fit"),
        ("lists as labels", lambda book: repair().fit(PEOPLE.assign(city=[[1]] * 60)),
         "column 'city' of X holds lists", "which are no labels"),
        ("no attribute", lambda book: repair(sensitive_features=None).fit(NUMBERS),
         "needs the sensitive attribute of every row", "pass sensitive_features= beside X"),
        ("a gap where none is kept",
         lambda book: repair(method=FreeSupport()).fit(PEOPLE.assign(age=AGE_WITH_GAP)),
         "NaN or infinity, in column 'age'", "Impute it before, .* missing='category'"),
        ("epsilon without bounds", lambda book: private_repair(book(), bounds=None).fit(PEOPLE),
         "bounds must be declared", "A dict gives bounds by column"),
        ("labels for two attributes",
         lambda book: private_repair(book(), sensitive_features=["sex", "city"]).fit(PEOPLE),
         "sensitive_features are 2 columns", "declare groups as tuples"),
        ("categories of which none is a declared group",
         lambda book: private_repair(book()).fit(
             PEOPLE.assign(sex=pd.Categorical(PEOPLE["sex"].map({"f": "female", "m": "male"})))
         ),
         "'sensitive_features' has other categories", "convert the column"),
        ("an encoder before a repair",
         lambda book: repair().fit(sparse.csr_array(NUMBERS.to_numpy())),
         "X is sparse", "repair the table before an encoder"),
        ("epsilon without groups", lambda book: private_repair(book(), groups=None).fit(PEOPLE),
         "groups must be declared", r"pass all labels as groups=\[...\]"),
        ("groups of which all pairs take days",
         lambda book: private_repair(book(), groups=DeclaredGroups(range(6000))).fit(
             PEOPLE.assign(sex=1)
         ),
         "nothing was charged: .* all pairs of the 6,000 groups", "Declare fewer groups"),
        ("epsilon without categories",
         lambda book: private_repair(book(), categories=None).fit(PEOPLE),
         r"declared for the columns \['city'\]", r"declare categories={column: \[labels\]}"),
    ],
    FairBarycenterRegressor: [
        ("an attribute that a frozen model has not seen",
         lambda book: private_regressor(book(), sensitive_in_estimator=True).fit(
             NUMBERS_AND_SEX, WAGE
         ),
         "Feature names unseen at fit time", "left out by sensitive_in_estimator=False"),
        ("the name of a column beside X",
         lambda b: regressor(sensitive_features=None).fit(PEOPLE, WAGE, sensitive_features="sex"),
         r"got an object of shape \(\)", "takes the name of a column in its constructor"),
        ("no target", lambda book: regressor().fit(NUMBERS_AND_SEX, None),
         "the target y is None", r"Pass the target: fit\(X, y\)"),
        ("an attribute of text in a linear model",
         lambda book: regressor(sensitive_in_estimator=True).fit(NUMBERS_AND_SEX, WAGE),
         "Ridge does not accept text",
         "Encode columns of text in a pipeline .* sensitive_in_estimator=False"),
        ("a clusterer", lambda book: regressor(estimator=KMeans(2)).fit(NUMBERS_AND_SEX, WAGE),
         "estimator must be a regressor", "that predicts y, got KMeans"),
        ("epsilon for a model of the same rows",
         lambda book: private_regressor(book(), estimator=Ridge()).fit(NUMBERS_AND_SEX, WAGE),
         "would reveal them", "must be a sklearn.frozen.FrozenEstimator"),
    ],
    FairBarycenterClassifier: [
        ("numbers as targets", lambda book: classifier(GaussianNB()).fit(NUMBERS_AND_SEX, WAGE),
         "type of the target is continuous", "FairBarycenterRegressor takes numbers"),
        ("probabilities as percents",
         lambda book: private_classifier(book(), bounds=(0, 100)).fit(NUMBERS_AND_SEX, HIRED),
         "within 0 and 1", "leave them out"),
    ],
    DPSinkhornGenerator: [
        ("labels that are left in X",
         lambda b: of_tables(b(), classes=["Oslo", "Rome"]).fit(TABLE, TABLE["city"]),
         "column 'city' is in X and beside it", "drop it from X, or rename it"),
        ("None among the categories of a schema",
         lambda b: of_tables(b(), schema=SCHEMA | {"city": ["Oslo", "Rome", None]}).fit(TABLE),
         "none of them missing", "with 'missing': True where values may be missing"),
        ("dates as a table writes them",
         lambda book: of_tables(
             None, epsilon=None, schema=SCHEMA | {"born": ("2000-01-01", "2010-01-01")}
         ).fit(TABLE.assign(born="27-08-2001")),
         "it has others", "or read them by pandas.to_datetime"),
        ("samples of one label, as a text", lambda book: people().sample(3, y="Rome"),
         "y asks for labels", "ask for its values with given="),
        ("two labels for three samples",
         lambda book: of_vectors(None, classes=["a", "b"]).fit(X, GROUP).sample(3, y=["a", "b"]),
         "n_samples is 3, and y asks for 2", "leave it out"),
        ("a rule with one =", lambda book: of_tables(book(), rules=["city = 'Oslo'"]).fit(TABLE),
         "must have one value for each row", "; write == for equal"),
        ("a rule with if", lambda book: of_tables(book(), rules=["if age > 65: age"]).fit(TABLE),
         "'If' nodes are not implemented", r"write .* '\(not a\) or b' for if"),
        ("a rule for single rows",
         lambda book: of_tables(book(), rules=[lambda row: row["age"] > 65 or False]).fit(TABLE),
         "truth value of a Series is ambiguous", r"of a whole data frame d, as \(d.a > d.b\) & "),
        ("a formula for the target",
         lambda book: of_tables(book(), target="age", computed={"age": "1"}).fit(TABLE),
         "the target, which cannot be computed", r"It has \['age'\]"),
        ("people in the schema", lambda book: of_tables(book()).fit(TABLE, groups="city"),
         "lacks the columns ..city..", "without a column that groups= names"),
        ("people in it as a column", lambda b: of_tables(b()).fit(TABLE, groups=TABLE["city"]),
         "lacks the columns ..city..", "without a column that groups= names"),
        ("a rule of SQL", lambda b: of_tables(b(), rules=["age > 20 AND age < 60"]).fit(TABLE),
         "invalid syntax", "'and' and 'or' in small letters"),
        ("a name with a blank",
         lambda b: of_tables(b(), schema=SCHEMA | {"my age": range(9)}, rules=["my age > 2"]).fit(
             TABLE.assign(**{"my age": 1})
         ),
         "invalid syntax", "names with blanks in backticks"),
        ("days first", lambda b: of_tables(b(), schema={"a": ("01/01/2024", "31/12/2024")}).fit(X),
         "'01/01/2024' is no date", r"\(YYYY-MM-DD\)"),
        ("the name of a column", lambda book: of_tables(book(), target="city").fit(TABLE, "city"),
         "got a single string", "or name it in the constructor, as the target"),
        ("a schema of column names",
         lambda book: of_tables(book(), schema=["age", "city"]).fit(TABLE),
         "schema must be a dict", r"range\(low, high \+ 1\) for integers"),
        ("a target without a schema", lambda book: of_vectors(book(), target="city").fit(TABLE),
         "target is declared, but VectorSketch", "declare schema={column: ...}"),
        ("a table without a schema", lambda book: of_vectors(book()).fit(TABLE),
         "X holds text", "For a table declare schema="),
        ("labels without classes", lambda book: of_vectors(book()).fit(X, GROUP),
         "classes are not declared", "give all possible labels"),
        ("images in three dimensions",
         lambda book: of_vectors(book(), image_shape=(1, 2)).fit(X[:, None]),
         "X must have two dimensions", r"np.reshape\(X, \(len\(X\), -1\)\), and declare"),
        ("images without bounds",
         lambda book: of_vectors(book(), bounds=None, image_shape=(1, 2)).fit(X),
         "bounds must be declared", r"images of 8 bits have \(0, 255\)"),
        ("images whose channels come first",
         lambda book: of_vectors(book(), image_shape=(3, 5, 6)).fit(np.zeros((9, 90))),
         "has the channels first", r"np.moveaxis\(X, 1, -1\), and declare image_shape=\(5, 6, 3\)"),
        ("images of 8 bits within those of 16",
         lambda book: of_vectors(book(), bounds=(0, 65535), image_shape=(1, 2)).fit(
             X.astype(np.uint8)
         ),
         "of type uint8, which ends at 255", r"declare bounds=\(0, 255\)"),
        ("images of 8 bits within those of shares",
         lambda b: of_vectors(b(), image_shape=(1, 2)).fit((255 * X).astype(np.uint8)),
         "of type uint8, which ends at 255", r"images of 0 and 1 pass X.astype\(float\)"),
        ("a column for a table", lambda book: of_tables(book()).fit(TABLE["age"]),
         "X must be a table of rows and columns", r"becomes one by to_frame\(\)"),
        ("a schema that there is not", lambda book: of_tables(book(), schema="Auto").fit(TABLE),
         "the file 'Auto' is not", "`python -m skdpot template` writes one to be filled in"),
        ("a name twice", lambda b: of_tables(b(), schema='{"age": [1], "age": [2]}').fit(TABLE),
         "schema must be JSON", "it has a name twice"),
        ("truth values that are declared as 1 and 2",
         lambda book: of_tables(book(), schema=SCHEMA | {"age": range(1, 3)}).fit(
             TABLE.assign(age=TABLE["age"] > 40)
         ),
         "'age' has the truth values 0 and 1", "declare these"),
        ("a rule with an undeclared label",
         lambda book: of_tables(book(), rules=["age < 60 or city == 'oslo'"]).fit(TABLE),
         "has 'oslo'", "no label of 'city'"),
        ("a formula beyond its bounds",
         lambda book: of_tables(book(), computed={"age": "100 + 0 * (city == 'Oslo')"}).fit(TABLE),
         "has values that the schema does not declare", "compare both"),
        ("durations", lambda book: of_tables(book(), schema=STAY).fit(STAYS),
         "column 'stay' has durations", r"X\['stay'\] / pandas.Timedelta\(hours=1\)"),
        ("a list of one column", lambda book: of_tables(book()).fit(TABLE, groups=["age"]),
         "groups is a list of one", "name the column, as groups='age'"),
        ("half a year", lambda book: people().sample(5, given={"age": 30.5}),
         "is not declared to hold 30.5", "A condition is a value, a list"),
        ("columns computed in another order",
         lambda book: of_tables(book(), schema=SCHEMA | {"a": [1, 2], "b": [1, 2]},
             computed={"a": "b", "b": "age"}).fit(TABLE.assign(a=1, b=1)),
         "'b' cannot be evaluated", "computed columns follow those they need"),
        ("no folder", lambda book: people().save("no/a.npz"), "No such file", "/no/a.npz'"),
        ("parts that were added up",
         lambda book: DPSinkhornGenerator.load(part_of("north")),
         "is not a file of a generator", "parts are opened by add_parts"),
    ],
    SinkhornGradientGenerator: [
        ("a gradient that there is not",
         lambda book: gradients(book(), gradient="per_pixel").fit(X),
         "Got 'per_pixel' instead", "must be a str among"),
    ],
    PrivateADMMTransport: [
        ("a second matrix", lambda book: allocation(book()).fit(UTILITIES, UTILITIES),
         "y is not used", "pass other data by name, as source_utilities"),
        ("a second matrix of rows", lambda b: fitted_allocation().score(UTILITIES, UTILITIES[:2]),
         "y is not used", "pass other data by name, as source_utilities"),
        ("edges below 0", lambda book: allocation(book(), adjacency=-UTILITIES).fit(UTILITIES),
         "adjacency must hold only 0 and 1", "such as distances <= limit"),
        ("targets in another order",
         lambda book: fitted_allocation().predict(pd.DataFrame(UTILITIES)[::-1]),
         "names of the fit in another order", "by reindex"),
        ("distances as edges",
         lambda book: allocation(book(), adjacency=DISTANCES).fit(UTILITIES),
         "adjacency must hold only 0 and 1", "such as distances <= limit"),
        ("weights of edges",
         lambda b: allocation(b(), adjacency=sparse.lil_array(DISTANCES)).preview(6, 3),
         "other numbers are no weights", "weights > 0"),
        ("values below 0 with a logarithm",
         lambda b: allocation(None, epsilon=None, utility="log").fit(-UTILITIES),
         "utility='log' takes no weights below 0", "from X or utility_bounds; 'quadratic' does"),
        ("more asked for than given",
         lambda book: allocation(book(), target_bounds=(9, 10), source_bounds=(0,
             1)).fit(UTILITIES),
         "no feasible plan", "must receive at least 54 .* can give at most 3"),
        ("costs", lambda b: allocation(b(), utility_bounds=(-5, -1)).fit(-UTILITIES),
         "nothing was charged: .* the best plan is empty", "If X has costs, declare lower bounds"),
        ("one source that has enough",
         lambda book: allocation(book(), source_bounds=(0, 30)).fit(UTILITIES[:, :1]),
         "nothing was charged", "allow one best plan alone"),
        ("one target, and all amounts fixed",
         lambda book: allocation(book(), utility="quadratic", target_bounds=(6, 6),
             source_bounds=(2, 2)).fit(UTILITIES[:1]),
         "nothing was charged", "allow one best plan alone"),
        ("no edge", lambda book: allocation(book(), adjacency=0 * UTILITIES).fit(UTILITIES),
         "nothing was charged", "no edge has bounds above 0 at both ends"),
        ("gaps",
         lambda b: allocation(None, epsilon=None).fit(np.where(UTILITIES > 4, np.nan, UTILITIES)),
         "Input X contains NaN", r"adjacency=X.notna\(\) .* a number that is public"),
        ("text", lambda book: allocation(book()).fit(np.array([["dear", "cheap"]])),
         "X holds text", "becomes X by its method pivot"),
        ("other targets", lambda book: fitted_allocation().transform(UTILITIES[:2]),
         "X has 2 targets, but the fitted plan has 6", "Pass the targets of the fit"),
    ],
    PrivateMessageADMM: [
        ("no rounds", lambda book: messages(book(), n_rounds=0).fit(UTILITIES),
         "Got 0 instead", "'n_rounds' parameter .* must be an int in the range"),
    ],
    PrivateSearchCV: [
        ("an error as scorer",
         lambda b: search(b(), scoring=make_scorer(f1_score, greater_is_better=False)).fit(
             RECORDS, LABELS
         ),
         "is never above 0", r"Choose a range such as \(-1, 0\)"),
        ("the parameter of a step",
         lambda b: search(b(), estimator=make_pipeline(LogisticRegression())).fit(
             RECORDS, LABELS
         ),
         "Invalid parameter 'C' for", "'C' is not a parameter; near are .'logisticregression__C'"),
        ("one candidate",
         lambda book: search(book(), param_distributions={"C": [1.0]}).fit(RECORDS, LABELS),
         "has fewer than two candidates", "Give two or more values, or fit the estimator"),
        ("columns of one name",
         lambda book: search(book()).fit(pd.DataFrame(RECORDS, columns=[*"aba"]), LABELS),
         "column 'a' of X", "is there twice"),
        ("an error that a search would make large",
         lambda book: search(book(), scoring=make_scorer(zero_one_loss)).fit(RECORDS, LABELS),
         "zero_one_loss is better if lower", "pass greater_is_better=False"),
        ("an error as score in [0, 1]",
         lambda book: search(book(), scoring="neg_mean_squared_error").fit(RECORDS, LABELS),
         "is never above 0, as score_range", r"Choose a range such as \(-1, 0\)"),
        ("a score in the range of an error",
         lambda b: search(b(), scoring="accuracy", score_range=(-1, 0)).fit(RECORDS, LABELS),
         "all would score alike", r"Choose a range such as \(0, 1\)"),
        ("a fit beyond the budget",
         lambda b: search(b(1.5), estimator=of_vectors(b(0.5)), score_range=(-1, 0),
             param_distributions={"score_reg": [0.1, 1.0]}).fit(RECORDS),
         "the budget does not allow", "includes the fit with the chosen parameters: see refit"),
        ("candidates beyond the budget",
         lambda b: search(b(1.5), estimator=of_vectors(b(0.5)), score_range=(-1, 0),
             param_distributions={"epsilon": [1.0, 2.0]}).fit(RECORDS),
         "the budget does not allow", "includes the fit with the chosen parameters: see refit"),
        ("a candidate that always fails",
         lambda book: search(book(), param_distributions={"solver": ["lbfgs", "saga"],
             "l1_ratio": [1.0], "C": [1.0]}).fit(RECORDS, LABELS),
         "candidates such as {.*'lbfgs'.* would fail", "Change the estimator, its parameters"),
        ("a frozen model",
         lambda b: search(b(), estimator=FrozenEstimator(Ridge())).fit(RECORDS, LABELS),
         "a FrozenEstimator has", "no parameters to search"),
        ("accuracies in per cent",
         lambda book: search(book(), score_range=(0, 100)).fit(RECORDS, LABELS),
         "scoring=None is never above 1", r"Choose a range such as \(0, 1\)"),
        ("groups that nothing takes",
         lambda book: search(book()).fit(RECORDS, LABELS, groups=np.arange(200) // 2),
         "records are protected, and not people", "give each of them one row"),
        ("groups of other rows",
         lambda book: search(book(), cv=GroupKFold(2)).fit(RECORDS, LABELS, groups=range(9)),
         "groups must have", "one value for each row of X"),
        ("more blocks than records", lambda book: search(book(), n_blocks=100).fit(RECORDS, LABELS),
         "cannot be made of n_samples=200", "Choose fewer blocks, or a smaller cv"),
        ("scores of candidates", lambda book: search(book()).cv_results_,
         "has no cv_results_", "See best_params_ and best_score_"),
    ],
    PrivacyLedger: [
        ("a part that there is not", lambda book: book().partition("by", ["east", "west"])["East"],
         "there is no part 'East'", r"the parts are \['east', 'west'\]"),
        ("delta first", lambda book: PrivacyLedger(1e-5, 0.5),
         "are they swapped?", "epsilon=1e-05 comes before delta=0.5"),
        ("no budget", lambda book: PrivacyLedger(),
         "epsilon must be above 0", "None to record only; got 0.0"),
        ("only a path", lambda book: PrivacyLedger(path=book().path),
         "epsilon must be above 0", r"PrivacyLedger.open\(path\) opens one that exists"),
        ("a path first", lambda book: PrivacyLedger("budget.sqlite"),
         "got 'budget.sqlite'", "A file is path="),
        ("a second unit", lambda book: fitted_sampler(book(units="record")).transform(VISITS),
         "charged per user, and the ledger is per record", r"with units=\['record', 'user'\]"),
        ("no unit", lambda book: book(units=["person"]), "units must be one of", "record, user"),
        ("a number to be charged", lambda book: book().charge(0.5, unit="record", label="a count"),
         "cannot price a float", r"PureDpEvent\(epsilon\) or ApproximateDpEvent"),
        ("a release without a label",
         lambda book: book().charge(PureDpEvent(1.0), unit="record", label=""),
         "got ''", "must be a line of printable text"),
    ],
    metrics.ks_between_groups: [
        ("one group",
         lambda book: metrics.ks_between_groups(HIRED, sensitive_features=["f"] * 60),
         "sensitive_features has 1", "two or more with at least 1 rows"),
        ("a missing attribute",
         lambda book: metrics.ks_between_groups(HIRED, sensitive_features=SEX.where(~FIRST)),
         "sensitive_features contains NaN", "Leave out these rows, or give them their own label"),
        ("complex numbers",
         lambda book: metrics.ks_between_groups(WAGE + 1j, sensitive_features=SEX),
         "Complex data", r"must hold real numbers.$"),
        ("an attribute of numbers",
         lambda book: metrics.ks_between_groups(HIRED, sensitive_features=WAGE),
         "has 60 groups of few rows", "make bands of numbers first"),
        ("more than certain",
         lambda book: metrics.ks_between_groups(WAGE, sensitive_features=SEX, confidence=2),
         "got 2", "must be from 0.5 to below 1"),
    ],
    metrics.wasserstein_between_groups: [
        ("order 0",
         lambda book: metrics.wasserstein_between_groups(WAGE, sensitive_features=SEX, order=0),
         "got 0: of a lower one", "a finite order >= 1"),
    ],
    metrics.group_auc: [
        ("arguments in another order", lambda book: metrics.group_auc(SEX, NUMBERS),
         "X must be two-dimensional", "comes before sensitive_features"),
        ("a regressor", lambda book: metrics.group_auc(NUMBERS, SEX, estimator=Ridge()),
         "got Ridge", "estimator must be a classifier"),
        ("dates", lambda book: metrics.group_auc(NUMBERS.astype("datetime64[s]"), SEX),
         "X holds dates", "make numbers of them"),
        ("no attribute", lambda book: metrics.group_auc(NUMBERS, None),
         r"got an object of shape \(\)",
         "must have one label, or one row of labels, for every row"),
    ],
    metrics.make_fairness_scorer: [
        ("an option that the metric lacks", lambda book: parity_scorer(min_group=3),
         "metric must take the options", r"\['sensitive_features', 'min_group'\]"),
        ("values", lambda book: parity_scorer(sensitive_features=SEX),
         "not have their values", "sensitive_features must name columns of X"),
        ("probabilities for a metric of decisions",
         lambda book: metrics.make_fairness_scorer(
             of_fairlearn, sensitive_features="sex", response_method="predict_proba"
         ),
         "metrics of fairlearn are of decisions", "leave out response_method"),
        ("no attribute",
         lambda book: parity_scorer()(Ridge().fit(NUMBERS, WAGE), NUMBERS, WAGE),
         "sensitive_features names a column that X lacks", "has no column .sex.. Its columns are"),
    ],
    optimal_base_measure: [
        ("a vector of costs", lambda book: optimal_base_measure([1.0, 2.0], 1.0),
         r"got \(2,\)", r"of shape \(n_inputs, n_outputs\)"),
    ],
    wasserstein_projection: [
        ("a base measure above all",
         lambda book: wasserstein_projection([HALVES], COST, [0.5, 0.9], 1.0),
         "infeasible base_measure: it sums to 1.4", "Scale it down"),
    ],
    release_files: [
        ("more files of users than files for samples",
         lambda book: release_files(fitted_sampler(None), ["a.npy", "b.npy"], ["c.npy"],
             ledger=book()),
         "got 2 sources and 1 targets", "must be as many"),
        ("a text", lambda b: release_files(fitted_sampler(None), "a.npy", ["b.npy"], ledger=b()),
         "must be lists of files", "got 'a.npy'"),
        ("a format that there is not",
         lambda book: release_files(fitted_sampler(None), ["a.csv"], ["c.npy"], ledger=book()),
         "files that end with '.csv'", "pass a function as read"),
        ("users read as names",
         lambda book: release_files(
             fitted_sampler(None), [written("2,1,0\n0,1,3\n")], ["c.npy"], ledger=book(),
             read=pd.read_csv,
         ),
         "all names of its columns are numbers", "read it with header=None"),
        ("no ledger",
         lambda book: release_files(fitted_sampler(None), ["a.npy"], ["c.npy"], ledger=None),
         "ledger must be a PrivacyLedger", "Create one"),
    ],
    BarycenterOwner: [
        ("no matrix", lambda book: BarycenterOwner([1.0]), "points must be", "a non-empty matrix"),
    ],
    make_part: [
        ("arguments in another order",
         lambda book: make_part(X, "north", "agreement", ledger=book(), path="north.part"),
         "agreement must be an Agreement", "got ndarray"),
        ("no labels", lambda book: make_part(AGREEMENT, "north", X, ledger=book(), path="a.part"),
         "needs the group of every row", "pass labels"),
        ("a folder that there is not",
         lambda book: make_part(AGREEMENT, "north", X, GROUP, ledger=book(), path="no/north.part"),
         "there is no folder no", "nothing was charged"),
        ("a file of something else",
         lambda book: make_part(AGREEMENT, "north", X, GROUP, ledger=book(), path=__file__),
         "is no part of 'north' for .*, and would be replaced", "nothing was charged"),
        ("the part of another owner",
         lambda book: make_part(
             AGREEMENT, "north", X, GROUP, ledger=book(), path=part_of("south")
         ),
         "is no part of 'north'", "nothing was charged. Give another path"),
    ],
    Agreement: [
        ("a part", lambda book: Agreement.load(part_of("north")),
         "this is no agreement", "must be the text of skdpot.parts.Agreement"),
        ("a text for columns", lambda book: Agreement(drift(), "age", 4000, ["north", "south"]),
         "columns must be their number", "a list of different names"),
    ],
    add_parts: [
        ("a folder", lambda book: add_parts(part_of("north").parent), "is a folder",
         r"pass its files, as by glob"),
        ("the part of one owner", lambda book: add_parts([part_of("north")]),
         r"Missing are \['south'\], and there more than once are none", "one part of each owner"),
    ],
    read_table_file: [
        ("a quotation mark that is not closed",
         lambda book: read_table_file(written('x,note\n1,fine\n1,"open\n1,fine\n'), []),
         "cannot be read as a CSV file", "A quotation mark is not closed"),
        ("another separator", lambda book: read_table_file(written("x;y\n1;2\n"), []),
         "has other separators", "pass sep=';'"),
        ("no separator", lambda book: read_table_file(written("x\n1\n"), [], sep=""),
         "sep must be one character", "got ''"),
        ("another encoding",
         lambda book: read_table_file(written("x\ncaf\u00e9\n"), [], encoding="ascii"),
         "no text in ASCII", "pass another encoding"),
    ],
    barycenter_rounds: [
        ("no candidates",
         lambda book: barycenter_rounds(None, 2, 1, n_features=1, method="dual"),
         "'dual'", "need candidates"),
    ],
}  # fmt: skip

ROWS = [
    pytest.param(do, wrong, remedy, id=f"{of.__name__}-{what}")
    for of, rows in MISTAKES.items()
    for what, do, wrong, remedy in rows
]


# Kinds of mistakes, at all entry points
# --------------------------------------

AGES = pd.DataFrame(X, columns=["age", "hours"])
FEATURES = PEOPLE.drop(columns="sex")
ONES = pd.Series(np.ones(40, dtype=int), name="year")
NETWORK_FRAME = pd.DataFrame(UTILITIES, list("abcdef"), ["x", "y", "z"])

# What the user does with rows beside others, whose index has the same labels in another order.
BESIDE_ROWS = {
    "distance": lambda book, turned: distance(book()).fit(AGES, turned(GROUP)),
    "repair, attribute": lambda book, turned: private_repair(book(), sensitive_features=None).fit(
        NUMBERS, sensitive_features=turned(SEX)
    ),
    "repair, new rows": lambda b, t: fitted_repair().transform(NUMBERS, sensitive_features=t(SEX)),
    "repair, labels": lambda book, turned: repair().repair(PEOPLE, turned(HIRED)),
    "regressor, attribute": lambda book, turned: private_regressor(
        book(), sensitive_features=None
    ).fit(NUMBERS, WAGE, sensitive_features=turned(SEX)),
    "regressor, targets": lambda book, t: private_regressor(book()).fit(NUMBERS_AND_SEX, t(WAGE)),
    "regressor, weights": lambda book, turned: regressor().fit(
        NUMBERS_AND_SEX, WAGE, sample_weight=turned(np.ones(60))
    ),
    "regressor, new rows": lambda book, turned: fitted_regressor().predict(
        NUMBERS, sensitive_features=turned(SEX)
    ),
    "regressor, score": lambda book, turned: fitted_regressor().score(
        NUMBERS, turned(WAGE), sensitive_features=SEX
    ),
    "classifier": lambda book, t: classifier(GaussianNB()).fit(NUMBERS_AND_SEX, t(WAGE > 0)),
    "generator, labels": lambda book, turned: of_vectors(book(), classes=["a", "b"]).fit(
        AGES, turned(GROUP)
    ),
    "allocation": lambda book, turned: allocation(book()).fit(
        pd.DataFrame(UTILITIES), source_utilities=turned(UTILITIES.sum(axis=1))
    ),
    "part": lambda b, t: make_part(AGREEMENT, "north", AGES, t(GROUP), ledger=b(), path="a.part"),
    "generator, people": lambda book, t: of_tables(book()).fit(TABLE, groups=t(np.arange(60))),
    "search, labels": lambda book, t: search(book()).fit(pd.DataFrame(RECORDS), t(LABELS)),
    "distances of groups": lambda book, turned: metrics.ks_between_groups(
        pd.Series(WAGE), sensitive_features=turned(SEX)
    ),
    "AUC of the group": lambda book, turned: metrics.group_auc(NUMBERS, turned(SEX)),
    "a plot": lambda book, turned: GroupDistributionDisplay.from_predictions(
        NUMBERS, NUMBERS, sensitive_features=turned(SEX)
    ),
}  # fmt: skip

# What the user does with a value whose names are in another order, or are others.
NAMED = {
    "weights": lambda book, named: private_repair(book(), weights=named([0.5, 0.5], "fm")),
    "weights of predictions": lambda book, named: private_regressor(
        book(), weights=named([0.5, 0.5], "fm")
    ),
    "node_budgets": lambda book, named: allocation(
        book(), protect="node", node_budgets=(1.0, named([0.1, 1.0, 1.0], "xyz"))
    ),
    "target_bounds": lambda book, named: allocation(
        book(), target_bounds=named([[0, 5]] * 6, "abcdef")
    ),
    "adjacency": lambda book, named: allocation(book(), adjacency=named(UTILITIES > 0, "abcdef")),
    "input_points": lambda book, named: sampler(book(), input_points=named(PLACES, PLACE_NAMES)),
    "base_measure": lambda book, n: sampler(book(), base_measure=n([0.1, 0.2, 0.3], PLACE_NAMES)),
    "base_measure of outputs": lambda book, named: sampler(
        book(), output_points=pd.DataFrame(PLACES, list("abc")),
        base_measure=named([0.1, 0.2, 0.3], "abc"),
    ),
    "cost_matrix of outputs": lambda book, named: sampler(
        book(), output_points=named(PLACES, "abc"), input_points=None,
        cost_matrix=pd.DataFrame(PLACES @ PLACES.T, PLACE_NAMES, list("abc")),
    ),
    "bounds": lambda book, named: distance(book(), bounds=(0, named([1, 2], ["age", "hours"]))),
    "min_group_size": lambda book, named: distance(
        book(), groups=["a", "b"], min_group_size=named([1, 9], "ab")
    ),
}  # fmt: skip
PLACE_NAMES = list(NAMED_VISITS)
# What the user does with labels, of which the first is missing.
LABELS_OF = {
    "distance": lambda book, labels: distance(book()).fit(X, labels(GROUP)),
    "attribute of a repair": lambda book, labels: repair(sensitive_features=None).fit(
        NUMBERS, sensitive_features=labels(SEX)
    ),
    "labels of a repair": lambda book, labels: repair().repair(PEOPLE, labels(SEX)),
    "classifier": lambda book, labels: classifier(GaussianNB()).fit(NUMBERS_AND_SEX, labels(SEX)),
    "metrics": lambda book, labels: metrics.ks_between_groups(
        WAGE, sensitive_features=labels(SEX)
    ),
    "a plot": lambda book, labels: GroupDistributionDisplay.from_predictions(
        WAGE, WAGE, sensitive_features=labels(SEX)
    ),
}  # fmt: skip
# What the user does with columns, by their names.
INTEGERS = {
    "attribute of a repair": lambda X, of: repair(sensitive_features=of["sex"]).fit_transform(X),
    "attribute of a regressor": lambda X, of: regressor(
        sensitive_features=of["sex"], random_state=0
    ).fit(X.drop(columns=of["city"]), WAGE).predict(X.drop(columns=of["city"])),
    "attribute of a scorer": lambda X, of: metrics.make_fairness_scorer(
        metrics.ks_between_groups, sensitive_features=of["city"]
    )(regressor(sensitive_features=[of["sex"], of["city"]], random_state=0).fit(X, WAGE), X, WAGE),
    "conditional_on": lambda X, of: repair(
        sensitive_features=of["sex"], method="conditional", conditional_on=of["income"]
    ).fit_transform(X),
    "categorical_features": lambda X, of: repair(
        sensitive_features=of["sex"], categorical_features=[of["city"]],
        categories={of["city"]: ["Rome", "Oslo", "Bonn"]},
    ).fit_transform(X),
    "bounds": lambda X, of: private_repair(
        None, sensitive_features=of["sex"], random_state=0, epsilon=50.0,
        bounds={of["income"]: (0, 60), of["age"]: range(18, 81)},
        categories={of["city"]: ["Oslo", "Rome"]},
    ).fit_transform(X),
}  # fmt: skip
ROWS_OF = {
    PrivateADMMTransport: (NETWORK_FRAME,), WassersteinProjectionSampler: (NAMED_VISITS,),
    PrivateSinkhornDistance: (AGES, GROUP), FairBarycenterPreprocessor: (PEOPLE,),
    FairBarycenterRegressor: (NUMBERS_AND_SEX, WAGE),
}  # fmt: skip


# What the user does with dates or durations for numbers.
DATES = {
    "sampler": lambda book, X: sampler(book()).fit(X),
    "distance": lambda book, X: distance(book()).fit(X, GROUP),
    "cost": lambda book, X: private_ot_cost(X, X, bounds=(0, 1), ledger=book()),
    "generator": lambda book, X: of_vectors(book()).fit(X),
    "allocation": lambda book, X: allocation(book()).fit(X),
}
# What else the user does with values that may be masked.
MASKED = {
    "second sample": lambda b, m: private_ot_cost(X, m(X), bounds=(0, 1), ledger=b()),
    "labels asked for": lambda b, m: of_classes().sample(y=m([*"ab"])),
    "labels of a score": lambda b, m: of_classes().score(X, m(GROUP)),
    "new rows": lambda b, m: fitted_repair().transform(m(NUMBERS), sensitive_features=SEX),
    "scores": lambda b, m: metrics.ks_between_groups(m(WAGE), sensitive_features=SEX),
    "part": lambda b, m: make_part(AGREEMENT, "north", m(X), GROUP, ledger=b(), path="a.part"),
    "mechanism": lambda b, m: LaplaceMechanism(1.0, 1.0).release(m([0.5])),
    "costs": lambda b, m: optimal_base_measure(m(COST), 1.0),
    "weights": lambda b, m: wasserstein_projection(m([HALVES]), COST, HALVES, 1.0),
    "base": lambda b, m: wasserstein_projection([HALVES], COST, m(HALVES), 1.0),
    "candidates": lambda b, m: barycenter_rounds(None, 2, 1, n_features=2, candidates=m(PLACES)),
}
BY_TYPE = [BESIDE_ROWS, NAMED, LABELS_OF, DATES, MASKED, DATES]
# What the user does with a column of periods or intervals, none of which is declared.
DAYS = SCHEMA | {"day": ("2020-01-01", "2020-12-31")}
PERIODS = {
    "labels": lambda book, odd: of_tables(book()).fit(TABLE.assign(city=odd)),
    "numbers": lambda book, odd: of_tables(book()).fit(TABLE.assign(age=odd)),
    "dates": lambda book, odd: of_tables(book(), schema=DAYS).fit(TABLE.assign(day=odd)),
    "any": lambda book, odd: of_tables(book(), schema="auto").fit(TABLE.assign(city=odd)),
    "attribute": lambda book, odd: private_repair(book()).fit(PEOPLE.assign(sex=odd)),
}


# Searches of which all candidates fail, whatever the values.
WORDS, THREE = np.where(LABELS, "yes", "no"), pd.Series(pd.Categorical.from_codes(LABELS, [*"xyz"]))
CITIES = pd.DataFrame(RECORDS, columns=list("abc")).assign(city=np.resize(["Oslo", "Rome"], 200))


def searched(X, y, estimator=None, fit=(), **options):
    model = LogisticRegression() if estimator is None else estimator
    names = {"C", "alpha", "var_smoothing", "ridge__alpha"} & model.get_params().keys()
    grid = {"estimator": model, "param_distributions": dict.fromkeys(names, [0.1, 1.0])}
    options = {"cv": 2, "refit": False} | grid | options
    return lambda book: search(book(), **options).fit(X, y, **dict(fit))


FAILING = {
    "pos_label=1 is not": searched(RECORDS, WORDS, scoring="f1"),
    "multi_class must be": searched(RECORDS, THREE, scoring="roc_auc"),
    "could not convert": searched(CITIES, LABELS),
    "Expected 2D array": searched(LABELS, LABELS),
    "Sparse": searched(sparse.csr_array(RECORDS), LABELS, GaussianNB()),
    "'groups' parameter": searched(RECORDS, LABELS, cv=GroupKFold(2)),
    "none of .*predict_proba": searched(RECORDS, LABELS, LinearSVC(), scoring="neg_brier_score",
        score_range=(-1, 0)),
    "mix of binary and continuous": searched(RECORDS, LABELS, Ridge(), scoring="accuracy"),
    "unexpected keyword": searched(RECORDS, LABELS, fit={"weight": np.ones(200)}),
}  # fmt: skip
# Searches of which only values decide whether they work.
WORKING = {
    "the label 1": searched(RECORDS, LABELS.astype(float), scoring="f1"),
    "three words": searched(RECORDS, np.resize(list("xyz"), 200), scoring="average_precision"),
    "a named label": searched(RECORDS, WORDS, scoring=make_scorer(f1_score, pos_label="yes")),
    "weights of labels": searched(RECORDS, 2 * LABELS - 1,
        param_distributions={"class_weight": [None, {-1: 1, 1: 5}]}),
    "parts for ten labels": searched(RECORDS @ np.ones((3, 12)), np.resize(range(10), 200),
        make_pipeline(LinearDiscriminantAnalysis(), GaussianNB()),
        param_distributions={"lineardiscriminantanalysis__n_components": [2, 7]}),
    "text": searched(CITIES["city"], LABELS, make_pipeline(CountVectorizer(min_df=5), Ridge())),
    "declared categories": searched(CITIES[["city"]], LABELS,
        make_pipeline(OneHotEncoder(categories=[["Oslo", "Rome"]]), Ridge())),
    "declared categories of text columns": searched(CITIES, LABELS, make_pipeline(
        make_column_transformer((OneHotEncoder(categories=[["Oslo", "Rome"]]),
            make_column_selector(dtype_exclude="number")), remainder="passthrough"), Ridge())),
    "large": searched(1e3 * RECORDS, LABELS, make_pipeline(VarianceThreshold(1e3), Ridge())),
    "small": searched(RECORDS / 9, LABELS, make_pipeline(FunctionTransformer(np.arcsin), Ridge())),
    "own code": searched(CITIES[["city"]], LABELS,
        make_pipeline(FunctionTransformer(lambda X: X.map(["Oslo", "Rome"].index)), Ridge())),
    "a schema with labels": searched(TABLE, None, DPSinkhornGenerator(None, schema=SCHEMA),
        param_distributions={"target": ["city", None]}, score_range=(-1, 0)),
    "categories of a repair": searched(CITIES.assign(sex=np.resize(["f", "m"], 200)), LABELS,
        make_pipeline(FairBarycenterPreprocessor("sex", method="support", n_jobs=1,
            categories={"city": ["Oslo", "Rome"]}), OneHotEncoder(), Ridge())),
    "objects": searched(CITIES[["a"]].astype(object), THREE),
    "groups": searched(RECORDS, LABELS, cv=GroupKFold(2), fit={"groups": np.resize(range(9), 200)}),
    "lists": searched(RECORDS.tolist(), WORDS.tolist(), scoring="f1"),
}  # fmt: skip
# Rules that no row keeps, and others that few rows keep, or that name too many columns.
RULED = SCHEMA | {"wage": (0.0, 100.0), "born": ("2000-01-01", "2004-01-01")}
IMPOSSIBLE = [
    ["age > 100"], ["age > 50", "age < 40"], ["wage > 200"],
    ["(city == 'Oslo') | (age > 90)", "city != 'Oslo'"], ["born > '2005-01-01'"],
    # pandas does not compare dates with text that way.
    ["born == '2000-02-29'"],
]  # fmt: skip
POSSIBLE = [
    ["age == 18"], ["wage >= 100"], ["(wage > 50) & (wage < 50.0001)"], ["born > '2003-12-30'"],
    ["(city == 'Oslo') & (age == 30)"], ["wage > 99.999", "age > 78"], ["age > 100 - wage / 9"],
]  # fmt: skip
# What is told of values that are not private, and what looks like it.
TITLES = np.where(SEX == "m", "Mr", np.resize(["Mrs", "Miss"], 60))
TITLED = pd.concat([PEOPLE[["age", "sex"]].assign(title=TITLES)] * 40)
SPELT = np.where(np.arange(60) == 7, "F ", SEX)
TOLD = {
    "half of cost_matrix is 0: .* add its .T": lambda: sampler(
        None, cost_matrix=np.triu(np.ones((3, 3)), 1)
    ).fit(VISITS),
    "column 'sex' of X tells the group": lambda: metrics.group_auc(NUMBERS_AND_SEX, SEX),
    "column 2 of X tells": lambda: metrics.group_auc(np.c_[NUMBERS, SEX == "f"], SEX),
    "column 'code' of X tells the group": lambda: repair().fit(
        PEOPLE.assign(code=SEX.map({"f": "1", "m": "2"}))
    ),
    "about 100 % of the rows .* such as title=Miss; title=Mr; title=Mrs": lambda: repair(
        conditional_on="title"
    ).fit(TITLED),
    "of conditional_on that .* such as title=(Miss|Mrs?)(;|. How).*: merge": lambda: private_repair(
        None,
        epsilon=20.0,
        method="conditional",
        conditional_on="title",
        categories={"title": ["Miss", "Mr", "Mrs"]},
        bounds={"age": (18, 80)},
    ).fit(TITLED),
    "column 'wage' has numbers as text.* pandas.to_numeric": lambda: repair().fit(
        PEOPLE.assign(wage=np.where(HIRED, "1,200", "900"))
    ),
    "column 'name' has a label of its own for most rows.*: leave out": lambda: repair().fit(
        PEOPLE.assign(name=[f"p{i}" for i in range(60)])
    ),
    "column 'age' has the number -999 in several rows.* write NaN": lambda: repair().fit(
        PEOPLE.assign(age=PEOPLE["age"].where(HIRED > 0, -999))
    ),
    "column 'wage' has the number -1 in several rows.* write NaN": lambda: repair().fit(
        PEOPLE.assign(wage=np.where(HIRED, np.exp(WAGE), -1))
    ),
    "column 'hours' has the number 9999 in several rows.* write NaN": lambda: repair().fit(
        PEOPLE.assign(hours=np.where(HIRED, PEOPLE["age"] // 4, 9999))
    ),
    "most numbers of \\['income'\\] are beyond those of the fit": lambda: (
        repair().fit(PEOPLE).transform(PEOPLE.assign(income=1000 * PEOPLE["income"]))
    ),
    "divergence='sinkhorn' of metric='euclidean' is far too small": lambda: distance(
        None, epsilon=50.0, metric="euclidean", reg=0.1, divergence="sinkhorn", random_state=0
    ).fit(X, GROUP),
    r"noise hides the features \[0\], whose bounds are narrower": lambda: distance(
        None, bounds=([0, 0], [80, 1e6]), metric="euclidean", random_state=0
    ).fit(np.tile(X, (20, 1)), [*GROUP] * 20),
    "is charged to no ledger: give the estimator one": lambda: search(
        PrivacyLedger(9.0),
        estimator=DPSinkhornGenerator(1.0, schema={"a": range(9), "b": range(3)}),
        param_distributions={"target": ["a", "b"]},
        n_blocks=2,
        cv=2,
        score_range=(-1, 0),
    ).fit(pd.DataFrame(np.resize([[1, 2], [8, 0], [3, 1]], (900, 2)), columns=["a", "b"])),
    "'f' and 'F ' are two groups: make them one": lambda: metrics.ks_between_groups(
        WAGE, sensitive_features=SPELT
    ),
    "'A' and 'a' are two groups": lambda: distance(None).fit(X, np.resize(["a", "A", "b"], 40)),
}
# Declarations that types, or made-up rows, show to be meant otherwise, and what is not told.
HALF = {"schema": SCHEMA | {"wage": (0.0, 20.0)}, "computed": {"wage": "age / 2"}}
MAY_LACK = {"age": {"bounds": (18, 79), "integer": True, "missing": True}}
DOUBTFUL = {
    "'wage' is computed, and could be from 9 to 39.5, .* 6.% of possible rows.* Declare all": (
        HALF, {"schema": SCHEMA | {"wage": (0.0, 40.0)}}),
    "'wage' is computed, .* or rules if no real row is": (HALF, {"rules": ["age <= 40"]}),
    "'wage' is computed, and could be \\['missing'\\]": (
        {"schema": MAY_LACK | {"wage": (0.0, 40.0)}, "computed": {"wage": "age / 2"}},
        {"schema": MAY_LACK | {"wage": {"bounds": (0, 40), "missing": True}}}),
    "'home' is computed, and could be \\['Rome'\\]": (
        {"schema": SCHEMA | {"home": ["Oslo", "Bonn"]}, "computed": {"home": "city"}},
        {"schema": SCHEMA | {"home": ["Oslo", "Bonn", "Rome"]}}),
    r"drawn with decimals: for integers declare range\(18, 80\) for 'age', or 'integer': True": (
        {"schema": SCHEMA | {"age": (17.5, 79)}}, {"schema": SCHEMA}),
    r"declare range\(0, 10\) for 'a', range\(1, 3\) for 'b'": (
        {"schema": {"a": (0, 9), "b": (1, 2)}}, {"schema": {"a": range(10), "b": range(1, 3)}}),
    r"a list .* has no order: for 'age' declare range\(18, 80\), or {'categories'": (
        {"schema": SCHEMA | {"age": np.arange(18, 80)}},
        {"schema": SCHEMA | {"age": {"categories": list(range(18, 80))}}}),
    r"for 'age' declare range\(18, 80\)": (
        {"schema": SCHEMA | {"age": list(range(79, 17, -1))}},
        {"schema": SCHEMA | {"age": [*range(18, 79), 90]}}),
}  # fmt: skip
PLAIN = {
    "numbers of which many are 0": lambda: repair().fit(
        PEOPLE.assign(savings=np.where(HIRED, 900 + PEOPLE["age"] % 7, 0))
    ),
    "a column that groups share": lambda: repair(conditional_on="city").fit(
        pd.concat([PEOPLE] * 4)
    ),
    "levels from below 0": lambda: repair().fit(PEOPLE.assign(mood=np.resize([-1, 0, 1, 2], 60))),
    "codes as text": lambda: repair().fit(PEOPLE.assign(code=np.where(HIRED, "1", "2"))),
    "numbers as text, named": lambda: repair(categorical_features=["city"]).fit(
        NUMBERS_AND_SEX.assign(city=np.where(HIRED, "1.5", "2"))
    ),
    "a target in a pipeline": lambda: sampler(None).fit_transform(VISITS, np.array([0, 1])),
    "targets in a pipeline": lambda: fitted_allocation().score(UTILITIES, UTILITIES[:, :2]),
    "bands of a column": lambda: distance(None).fit(AGES, AGES["age"] > 0.5),
    "a target made of a column": lambda: (
        regressor().fit(NUMBERS_AND_SEX, 2 * PEOPLE["income"]).predict(NUMBERS_AND_SEX)
    ),
    "numbers as names": lambda: distance(None).fit(pd.DataFrame(X), pd.Series(GROUP, name=0)),
}
MANY = 10**6
# Public sizes that no machine has memory for.
TOO_LARGE = {
    "exact .* between 1,000,000 and 1,000,000 records": lambda book: distance(
        book(), reg=0, metric="euclidean").preview(2 * MANY, 2, group_sizes=[MANY] * 2),
    "noisy Sinkhorn": lambda book: NoisySinkhornDistance(bounds=(0, 1), reg=0.1, ledger=book()
        ).preview(2 * MANY, 2, group_sizes=[MANY] * 2),
    "covariance of 1,000,000 features": lambda book: of_vectors(book()).preview(100, MANY),
    "66 categories and cells": lambda book: of_tables(
        book(), model=TableSketch(n_components=10**12)).preview(1000),
    "1,000,000 input points": lambda book: sampler(
        book(), input_points=np.zeros((MANY, 1))).fit(np.ones((1, MANY))),
}  # fmt: skip


@pytest.fixture
def book(monkeypatch):
    """Return a function that creates ledgers. When the test ends, none that was made is charged.

    That is so for those of estimators within others, too, but not for parts that a test makes.
    """
    ledgers, create = [], PrivacyLedger.__init__

    def noted(ledger, *budget, **options):
        create(ledger, *budget, **options)
        ledgers.append(ledger)

    monkeypatch.setattr(PrivacyLedger, "__init__", noted)
    yield lambda epsilon=10.0, delta=1e-3, **options: PrivacyLedger(epsilon, delta, **options)
    assert all("part of" in entry.label for ledger in ledgers for entry in ledger.entries())


@pytest.mark.filterwarnings("ignore:accounting='paper':skdpot.privacy.NoGuaranteeWarning")
@pytest.mark.parametrize("do, wrong, remedy", ROWS)
def test_a_mistake_is_named_with_its_remedy(do, wrong, remedy, book):
    kinds = (ValueError, TypeError, AttributeError, LedgerError, LookupError, OSError)
    with pytest.raises(kinds) as caught:
        do(book)
    # With what it was raised from, as users see it.
    shown = "".join(traceback.format_exception(caught.value, limit=0))
    assert re.search(wrong, shown, re.DOTALL)
    assert re.search(remedy, shown, re.DOTALL)


@pytest.mark.parametrize("of", BESIDE_ROWS)
def test_rows_in_another_order_than_those_of_X_are_refused(of, book):
    named = "source_utilities" if of == "allocation" else ""
    with pytest.raises(ValueError, match=f"{named} has another index than X, or another order: re"):
        BESIDE_ROWS[of](book, lambda values: pd.Series(np.asarray(values))[::-1])


@pytest.mark.parametrize("mistake", ["order", "others"])
@pytest.mark.parametrize("of", NAMED)
def test_names_in_another_order_and_other_names_are_refused(of, mistake, book):
    def named(values, names, axis=0):
        labels = [f"{name}!" for name in names] if mistake == "others" else list(names)[::-1]
        return pd.DataFrame(values).squeeze().set_axis(labels, axis=axis)

    model = NAMED[of](book, named)
    with pytest.raises(ValueError, match=f"{of.partition(' ')[0]} has (the|other) names"):
        model.fit(*ROWS_OF[type(model)])


@pytest.mark.parametrize("missing", [np.nan, None, pd.NA], ids=str)
@pytest.mark.parametrize("of", LABELS_OF)
def test_missing_labels_are_refused_in_lists_and_series(of, missing, book):
    for convert in (list, pd.Series, lambda y: pd.Series(y, dtype="string")):
        with pytest.raises(ValueError, match="contains NaN or None"):
            LABELS_OF[of](book, lambda y, to=convert: to([missing, *map(str, list(y)[1:])]))


@pytest.mark.parametrize("kind", ["datetime64[us]", "timedelta64[us]"])
@pytest.mark.parametrize("of", DATES)
def test_dates_and_durations_are_no_numbers(of, kind, book):
    X = np.arange(120).reshape(40, 3).astype(kind)
    for made in (X, pd.DataFrame(X), pl.DataFrame(X)):
        with pytest.raises(TypeError, match="X holds dates or durations: make numbers of them"):
            DATES[of](book, made)


@pytest.mark.parametrize("rows, of", [(i, of) for i in range(len(BY_TYPE)) for of in BY_TYPE[i]])
def test_masked_arrays_and_lazy_frames_are_refused_by_their_types(rows, of, book):
    def masked(values, *names, **axis):
        return np.ma.masked_array(values, False)

    given = {3: masked(AGES), 5: pl.DataFrame(AGES).lazy()}.get(rows, masked)
    with pytest.raises(TypeError, match=r" is a (masked array, whose mask|Lazy.*table.collect\()"):
        made = BY_TYPE[rows][of](book, given)
        made.fit(*ROWS_OF[type(made)])


@pytest.mark.parametrize("of", DATES)
def test_columns_of_one_name_are_refused(of, book):
    with pytest.raises(ValueError, match="column 'a' of X is there twice|Expected unique"):
        DATES[of](book, pd.DataFrame(X, columns=["a", "a"]))


@pytest.mark.parametrize("of", PERIODS)
def test_periods_and_intervals_are_refused_by_their_types(of, book):
    wrong = "has periods or in|that are not num|to hold dates|and periods dates"
    for column in (pd.period_range("2020", periods=60, freq="D"), pd.cut(np.arange(60), 3)):
        with pytest.raises(ValueError, match=wrong):
            PERIODS[of](book, column)


# What the user declares otherwise than rows have it: all labels, or all numbers.
WRONG, MANY_PEOPLE = {"groups": ["F", "M"]}, pd.concat([PEOPLE] * 40)
UNMET = {
    "labels": lambda: seeded_tables(city=["oslo", "rome"]),
    "numbers": lambda: seeded_tables(age={"categories": [17.0, 81.0]}),
    "half of a public number": lambda: seeded_tables("replace_one", city=["Oslo"]),
    "conditional": lambda: private_repair(None, **WRONG).fit(MANY_PEOPLE),
    "support": lambda: private_repair(None, method="support", **WRONG).fit(MANY_PEOPLE),
    "distance": lambda: distance(None, **WRONG, **HIDDEN).fit(np.tile(X, (50, 1)), [*GROUP] * 50),
    "regressor": lambda: private_regressor(None, **WRONG).fit(*MANY_WAGES),
    "bounds": lambda: private_repair(None, bounds=IN_CENTS).fit(MANY_PEOPLE),
    # Without a seed, noise hides it in one of 150 fits.
    "bounds of cells": lambda: private_repair(
        None, method="support", bounds=IN_CENTS, random_state=0
    ).fit(MANY_PEOPLE),
    # With an epsilon of 1, noise hides it in one of 40 fits.
    "bounds of wages": lambda: private_regressor(None, epsilon=10.0, bounds=(-900, -300)).fit(
        *MANY_WAGES
    ),
}
IN_CENTS = {"age": range(18, 81), "income": (1000, 6000)}
MANY_WAGES = MANY_PEOPLE[list(NUMBERS_AND_SEX)], np.tile(WAGE, 40)
HIDDEN = {"labels": "private", "min_group_size": 1, "mechanism": "histogram"}


def seeded_tables(neighbouring="auto", **unmet):
    schema = SCHEMA | unmet
    model = of_tables(None, schema=schema, neighbouring=neighbouring, random_state=0)
    return model.fit(pd.concat([TABLE] * 40))


@pytest.mark.refuses_useless
@pytest.mark.filterwarnings("ignore:no row is changed")
@pytest.mark.parametrize("of", UNMET)
def test_a_release_that_counts_no_rows_is_told(of):
    with pytest.warns(UserWarning, match="release counts .* compare (the records|bounds) with the"):
        UNMET[of]()


# Bounds that the release shows to be wrong
# -----------------------------------------

N_SEEN = 4000
LIKE_NUMBERS = np.linspace(0, 1, N_SEEN)
LIKE_NORMAL = np.random.default_rng(1).normal(size=(N_SEEN, 2))
LIKE_AGES = np.clip(np.random.default_rng(2).normal(50, 10, N_SEEN), 18, 90)
# A fifth of the pixels is not black, as of MNIST.
LIKE_PHOTOS = np.random.default_rng(3).uniform(30, 255, (N_SEEN, 64))
LIKE_DIGITS = np.random.default_rng(3).uniform(-4, 1, (N_SEEN, 64)).clip(0)
LIKE_SCORES = np.random.default_rng(6).integers(1, 6, (12, 3)).astype(float)
SIDES_SEEN = np.resize(["a", "b"], N_SEEN)
TWO_SIDES = {"groups": DeclaredGroups(["a", "b"]), "random_state": 0}
SMALL_MODEL = TableSketch(n_components=20, n_iter=20)


def released_vectors(X, bounds, **options):
    options = {"epsilon": 2.0, "delta": 1e-5, "random_state": 0} | options
    return DPSinkhornGenerator(bounds=bounds, **options).fit(X)


def released_column(values, bounds):
    frame = pd.DataFrame({"x": values})
    return released_vectors(frame, None, schema={"x": bounds}, model=SMALL_MODEL)


def released_bands(values, bounds):
    frame = pd.DataFrame({"x": values, "side": SIDES_SEEN})
    schema = {"x": bounds, "side": ["a", "b"]}
    return released_vectors(frame, None, schema=schema, target="x", model=SMALL_MODEL)


def released_predictions(values, bounds):
    places = np.linspace(0, 1, 9)[:, None]
    model = FrozenEstimator(Ridge(alpha=0).fit(places, places.ravel()))
    fair = FairBarycenterRegressor(model, epsilon=2.0, bounds=bounds, **TWO_SIDES)
    return fair.fit(values[:, None], values, sensitive_features=SIDES_SEEN)


def released_rows(values, bounds, others=(), **options):
    drawn = np.random.default_rng(5).uniform(size=(N_SEEN, len(others)))
    frame = pd.DataFrame(drawn, columns=[*others]).assign(x=values)
    within = dict.fromkeys(others, (0, 1)) | {"x": bounds}
    fair = FairBarycenterPreprocessor(epsilon=3.0, delta=1e-5, bounds=within, **TWO_SIDES | options)
    return fair.fit(frame, sensitive_features=SIDES_SEEN)


def released_distance(X, bounds):
    grid = {"mechanism": "histogram", "random_state": 0}
    return PrivateSinkhornDistance(2.0, bounds=bounds, **grid).fit(X, SIDES_SEEN)


def released_utilities(X, bounds, costs=None, **options):
    asked = {"target_bounds": (0, 5), "source_bounds": (0, 50), "random_state": 0} | options
    return PrivateADMMTransport(10.0, utility_bounds=bounds, **asked).fit(X, source_utilities=costs)


AGES_ON_GRID = partial(released_rows, LIKE_AGES, method="support")
# What is released, good bounds, and bad ones.
BOUNDS_SEEN = {
    "column": (partial(released_column, LIKE_AGES), (0.0, 120.0), (0.0, 1e8)),
    "column in other units": (partial(released_column, LIKE_AGES), (0.0, 120.0), (0.0, 1.0)),
    "bands of a target": (partial(released_bands, LIKE_AGES), (0.0, 120.0), (0.0, 1e4)),
    "vectors": (partial(released_vectors, LIKE_NORMAL), (-5, 5), (-1e6, 1e6)),
    "images": (partial(released_vectors, LIKE_DIGITS, image_shape=(8, 8)), (0, 1), (0, 255)),
    "bright images": (partial(released_vectors, LIKE_PHOTOS, image_shape=(8, 8)), (0, 255), (0, 1)),
    "predictions": (partial(released_predictions, LIKE_NUMBERS), (0, 1), (0, 1000)),
    "rows": (partial(released_rows, LIKE_AGES), (0, 120), (0, 1e8)),
    "rows on a grid": (AGES_ON_GRID, (0, 120), (0, 120_000)),
    "one cell of few": (partial(AGES_ON_GRID, others="abc"), (0, 120), (0, 900)),
    "distance": (partial(released_distance, LIKE_NORMAL), (-5, 5), (-5000, 5000)),
    "utilities": (partial(released_utilities, LIKE_SCORES), (1, 5), (0, 1e6)),
    "utilities in other units": (
        partial(released_utilities, 1000 * LIKE_SCORES),
        (0, 6000),
        (1, 5),
    ),
    "utilities of other signs": (partial(released_utilities, -LIKE_SCORES), (-5, 1), (1, 5)),
    "costs": (
        partial(released_utilities, LIKE_SCORES, costs=-LIKE_SCORES),
        ((1, 5), (-5, 0)),
        ((1, 5), (1, 5)),
    ),
    "distance in a corner": (partial(released_distance, abs(LIKE_NORMAL)), (0, 5), (0, 5000)),
}
DRAWN_SEEN = np.random.default_rng(4)
INCOMES = DRAWN_SEEN.lognormal(10.3, 0.8, N_SEEN)
MOSTLY_ZERO = np.where(DRAWN_SEEN.uniform(size=N_SEEN) < 0.9, 0.0, DRAWN_SEEN.poisson(3, N_SEEN))
SKEWED = np.eye(8)[DRAWN_SEEN.choice(8, N_SEEN, p=[0.93] + [0.01] * 7)]
WELL_DECLARED = {
    "incomes": (released_column, INCOMES, (0.0, 1e6)),
    "incomes on a grid": (partial(released_rows, method="support"), INCOMES, (0, 1e6)),
    "predicted incomes": (released_predictions, INCOMES, (0, 1e6)),
    "a distance of incomes": (released_distance, INCOMES[:, None], (0, 1e6)),
    "zeros": (released_column, MOSTLY_ZERO, (0.0, 50.0)),
    "zeros on a grid": (partial(released_rows, method="support"), MOSTLY_ZERO, (0, 50)),
    "vectors of zeros": (released_vectors, MOSTLY_ZERO.reshape(-1, 4), (0, 50)),
    "a constant": (released_column, np.full(N_SEEN, 0.3), (0.0, 1.0)),
    "nothing but 0": (released_column, np.zeros(N_SEEN), (0.0, 1.0)),
    "equal vectors": (released_vectors, np.full((N_SEEN, 2), 0.5), (0, 1)),
    "equal utilities": (released_utilities, np.full((12, 3), 3.3), (1, 5)),
    "similar utilities": (released_utilities, 2.0 + LIKE_SCORES / 20, (1, 5)),
    "utilities that are mostly 0": (released_utilities, MOSTLY_ZERO.reshape(-1, 8), (0, 10)),
    "a few utilities": (released_utilities, np.full((3, 3), 5.0), (1, 5)),
    "one of eight": (released_vectors, SKEWED, (0, 1)),
}


@pytest.mark.refuses_useless
@pytest.mark.filterwarnings("ignore:no row is changed")
@pytest.mark.parametrize("of", BOUNDS_SEEN)
def test_bounds_that_a_release_shows_to_be_wrong_are_told(of):
    fit, good, bad = BOUNDS_SEEN[of]
    # Other warnings are errors.
    fit(good)
    with pytest.warns(UserWarning, match="in one place: .* between .* of .* from public"):
        fit(bad)


@pytest.mark.refuses_useless
@pytest.mark.filterwarnings("ignore:no row is changed")
@pytest.mark.parametrize("of", WELL_DECLARED)
def test_values_that_are_few_or_skewed_are_well_declared(of):
    fit, values, bounds = WELL_DECLARED[of]
    fit(values, bounds)


@pytest.mark.parametrize("of", ["distance", "labels of a repair", "classifier"])
def test_numbers_beside_equal_text_are_refused(of, book):
    with pytest.raises(ValueError, match="such as 1 and '1'"):
        LABELS_OF[of](book, lambda y: [1, "1"] * (len(y) // 2))


def test_codes_that_were_text_in_the_fit_are_refused_as_numbers():
    codes = PEOPLE.assign(city=np.where(PEOPLE["city"] == "Oslo", "1", "2"))
    fair = repair().fit(codes)
    with pytest.raises(ValueError, match="'city' has numbers or truth values, none of which is"):
        fair.transform(codes.astype({"city": int}))


@pytest.mark.parametrize("places", [PLACES[:, ::-1], [[2.0, 0.5], [0.5, 1.0], [0.0, 0.0]]])
def test_latitudes_beyond_the_poles_are_refused(places, book):
    with pytest.raises(ValueError, match="latitudes above pi / 2.* by numpy.radians"):
        sampler(book(), input_points=places, metric="haversine").fit(VISITS)


@pytest.mark.parametrize("of", INTEGERS)
def test_integers_are_names_where_a_frame_has_such_names(of):
    names = {"age": 2, "income": 3, "sex": 1, "city": 0}
    by_name = INTEGERS[of](PEOPLE, {name: name for name in names})
    by_number = INTEGERS[of](PEOPLE.rename(columns=names), names)
    np.testing.assert_array_equal(np.asarray(by_number), np.asarray(by_name))


def test_rows_with_other_labels_are_read_by_position():
    costs = [
        distance(None, random_state=0).fit(AGES, pd.Series(GROUP, labels)).distance_
        for labels in (range(40), range(39, -1, -1)[::-1], range(40, 80), list(GROUP))
    ]
    assert len(set(costs)) == 1


def test_group_sizes_of_a_preview_are_found_by_name():
    of_two = distance(None, groups=["a", "b"], min_group_size=[5, 35])
    by_name = of_two.preview(60, 2, group_sizes={"b": 50, "a": 10})
    assert str(by_name) == str(of_two.preview(60, 2, group_sizes=[10, 50]))
    with pytest.raises(ValueError, match="one number for each of the 2 groups"):
        of_two.preview(60, 2, group_sizes={"b": 50, "c": 10})


@pytest.mark.parametrize("rules", IMPOSSIBLE, ids=str)
def test_rules_that_no_row_keeps_are_refused(rules, book):
    with pytest.raises(ValueError, match="nothing was charged: no row .* keeps .*the schema"):
        of_tables(book(), schema=RULED, rules=rules).preview(1000)


@pytest.mark.parametrize("rules", POSSIBLE, ids=str)
def test_rules_that_few_rows_keep_are_planned(rules):
    assert of_tables(None, schema=RULED, rules=rules).preview(1000).event is not None


@pytest.mark.parametrize("told", TOLD)
def test_what_is_probably_meant_otherwise_is_told(told):
    with pytest.warns(UserWarning, match=told) as shown:
        TOLD[told]()
    assert len({str(each.message) for each in shown}) == len(shown)


@pytest.mark.parametrize("told", DOUBTFUL)
def test_what_declarations_show_is_told_before_the_charge(told, book):
    """All warnings are errors here, and what is not told raises none."""
    doubtful, remedy = DOUBTFUL[told]
    table = TABLE.assign(wage=1.0, home="Oslo").reindex(columns=list(doubtful["schema"]))
    table = np.ones((60, 2), dtype=np.int64) if "b" in table else table
    generator = of_tables(book(), **doubtful)
    for call in (lambda: generator.fit(table), lambda: generator.preview(100, table[:0])):
        with pytest.raises(UserWarning, match=told):
            call()
    assert generator.set_params(**remedy).preview(100, table[:0]).event is not None


@pytest.mark.refuses_useless
@pytest.mark.parametrize("epsilon", [None, 5.0])
def test_classes_of_which_a_release_shows_no_record_are_told(epsilon):
    options = {"epsilon": epsilon, "random_state": 0}
    with pytest.warns(UserWarning, match=r"noise hides all records of \['c'\]"):
        vectors = of_vectors(None, classes=[*"abc"], **options)
        vectors.fit(np.tile(X, (60, 1)), np.resize(["a", "b"], 2400))
    with pytest.warns(UserWarning, match=r"records of \['Bonn'\]"):
        schema = SCHEMA | {"city": ["Bonn", "Oslo", "Rome"]}
        of_tables(None, schema=schema, target="city", **options).fit(pd.concat([TABLE] * 40))


def test_a_ledger_is_replaced_by_no_other_file(tmp_path):
    path = tmp_path / "ledger.sqlite"
    fitted = of_vectors(PrivacyLedger(9.0, 1e-4, path=path)).fit(X)
    for saved in (fitted, Agreement(of_vectors(None), 2, 100, ["north", "south"])):
        with pytest.raises(ValueError, match="is a ledger, and is not replaced: name another file"):
            saved.save(path)
    assert len(PrivacyLedger.open(path).entries()) == 1


def test_a_level_that_is_set_after_the_fit_is_checked():
    groups = np.resize(["a", "b"], 40)
    fair = FairBarycenterRegressor(Ridge()).fit(X, X[:, 0], sensitive_features=groups)
    with pytest.raises(ValueError, match=r"a float in the range \[0.0, 1.0\]. Got 50"):
        fair.set_params(repair_level=50).predict(X, sensitive_features=groups)


@pytest.mark.refuses_useless
@pytest.mark.filterwarnings("error")
def test_a_warning_that_is_an_error_loses_no_release():
    book = PrivacyLedger(9.0, 1e-4)
    # By chance the noise of one class may look like records, and that of eight does not.
    vectors = of_vectors(book, classes=[*"abcdefghij"], epsilon=5.0)
    with pytest.raises(UserWarning, match="noise hides"):
        vectors.fit(np.tile(X, (60, 1)), np.resize(["a", "b"], 2400))
    assert book.entries()[0].released and len(vectors.sample(2)) == 2


@pytest.mark.filterwarnings("ignore:the repair changes no row")
@pytest.mark.parametrize("of", PLAIN)
def test_what_only_looks_like_a_mistake_is_not_told(of):
    PLAIN[of]()


@pytest.mark.parametrize("error", FAILING)
def test_searches_that_fail_whatever_the_values_are_refused(error, book):
    with pytest.raises(ValueError, match=f"candidates such as .* would fail with .*{error}"):
        FAILING[error](book)


@pytest.mark.parametrize("of", WORKING)
def test_searches_that_values_decide_are_made(of):
    ledger = PrivacyLedger(1.0)
    WORKING[of](lambda: ledger)
    assert len(ledger.entries()) == 1


def test_a_score_that_noise_hides_is_told():
    # No type says that there are three labels, of which this score is none.
    with pytest.warns(UserWarning, match="best_score_ from the lower end.* may be random"):
        searched(RECORDS, np.arange(200) % 3, scoring="roc_auc", random_state=0)(lambda: None)


@pytest.mark.parametrize("what", TOO_LARGE)
def test_what_no_machine_has_memory_for_is_refused(what, book):
    with pytest.raises(ValueError, match=f"nothing was charged: .*{what}.* GiB that there are"):
        TOO_LARGE[what](book)


def test_every_estimator_has_rows():
    names = {of.__name__ for of in MISTAKES}
    assert {*skdpot.__all__, *published.__all__} <= names
    assert len(ROWS) >= 72
