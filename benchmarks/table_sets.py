"""Public tables for the comparison of private synthesizers, and what is publicly known of each.

Nothing is downloaded. `load_set` reads a table whose file is in a folder, or makes one that is
simulated. What is known of a table, its columns' bounds, categories and bins, is written
down here from public descriptions, not learned from the records. Methods that need bins get these.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd

from examples.datasets import load_adult

_TEST_SHARE = 0.2
_XOR_COLUMNS, _XOR_ROWS, _XOR_FLIPS = 15, 50_000, 0.05


@dataclass(frozen=True)
class Numbers:
    """A column of numbers from `low` to `high`; a bin begins at each of the edges.

    Whole numbers are declared as such; values may be missing. Amounts, which spread over several
    magnitudes as their bins do, have the scale "log".
    """

    low: float
    high: float
    edges: tuple
    is_whole: bool = True
    missing: bool = False
    scale: str = "linear"

    @property
    def n_bins(self) -> int:
        return len(self.edges) + self.missing

    @property
    def declared(self) -> dict:
        return {
            "bounds": (self.low, self.high),
            "integer": self.is_whole,
            "missing": self.missing,
            "scale": self.scale,
        }

    def codes(self, values: pd.Series) -> np.ndarray:
        """Return the bin of each value."""
        numbers = values.astype(float).to_numpy()
        bins = np.searchsorted(self.edges, numbers, side="right") - 1
        return np.where(np.isnan(numbers), len(self.edges), np.maximum(bins, 0))

    def values(self, codes: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Return a number, uniform in its bin, for each code."""
        ends = [*self.edges, self.high + self.is_whole]
        known = np.minimum(codes, len(self.edges) - 1)
        low, high = np.array(ends)[known], np.array(ends)[known + 1]
        drawn = low + rng.random(len(codes)) * (high - low)
        drawn = np.floor(drawn) if self.is_whole else drawn
        return np.where(codes < len(self.edges), drawn, np.nan)


@dataclass(frozen=True)
class Words:
    """A column of categories; a missing value is None."""

    categories: tuple
    missing: bool = False

    @property
    def n_bins(self) -> int:
        return len(self.categories) + self.missing

    @property
    def declared(self) -> dict:
        return {"categories": list(self.categories), "missing": self.missing}

    def codes(self, values: pd.Series) -> np.ndarray:
        """Return the position of each category; a missing one is after the last."""
        found = pd.Index(self.categories).get_indexer(values)
        return np.where(found < 0, len(self.categories), found)

    def values(self, codes: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return np.array([*self.categories, None], dtype=object)[codes]


@dataclass(frozen=True, eq=False)
class TableSet:
    """Records to train with and to test with, and what is publicly known of them.

    Where the target is a number, no value of it is the positive one.
    """

    name: str
    columns: Mapping[str, Numbers | Words]
    target: str
    positive: object
    train: pd.DataFrame = field(repr=False)
    test: pd.DataFrame = field(repr=False)

    @property
    def schema(self) -> dict:
        """Return the declarations of all columns, as the generator takes them."""
        return {name: column.declared for name, column in self.columns.items()}

    @property
    def numbers(self) -> list[str]:
        return [name for name, column in self.columns.items() if isinstance(column, Numbers)]

    @property
    def is_regression(self) -> bool:
        """Tell whether the target is a number."""
        return self.target in self.numbers

    @property
    def sizes(self) -> dict[str, int]:
        """Return the number of bins of each column."""
        return {name: column.n_bins for name, column in self.columns.items()}

    def codes(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Return the bins of a table's values."""
        return pd.DataFrame(
            {name: column.codes(frame[name]) for name, column in self.columns.items()}
        )

    def values(self, codes: pd.DataFrame, seed: int) -> pd.DataFrame:
        """Return a table of values that are in these bins."""
        rng = np.random.default_rng(seed)
        return pd.DataFrame(
            {name: column.values(codes[name], rng) for name, column in self.columns.items()}
        )


_amounts = partial(Numbers, scale="log")


def _counts(low: int, high: int, missing: bool = False) -> Numbers:
    """Return a column of few whole numbers, each of which is a bin."""
    return Numbers(low, high, tuple(range(low, high + 1)), missing=missing)


def _heaps(low: int, first: int, end: int, step: int) -> tuple:
    """Return edges of bins that separate the round numbers on which values are heaped."""
    return (low, *(edge for number in range(first, end, step) for edge in (number, number + 1)))


def _split(frame: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the records to train with, and a fifth, drawn at random, to test with."""
    order = np.random.default_rng(0).permutation(len(frame))
    n_test = int(_TEST_SHARE * len(frame))
    return (
        frame.iloc[np.sort(order[n_test:])].reset_index(drop=True),
        frame.iloc[np.sort(order[:n_test])].reset_index(drop=True),
    )


def _as_declared(frame: pd.DataFrame, columns: Mapping[str, Numbers | Words]) -> pd.DataFrame:
    """Return the declared columns, in order; a missing category is None."""
    return pd.DataFrame(
        {
            name: frame[name].astype(float if column.missing or not column.is_whole else np.int64)
            if isinstance(column, Numbers)
            else pd.Series([None if pd.isna(v) else v for v in frame[name]], dtype=object)
            for name, column in columns.items()
        }
    )


# --- Adult -----------------------------------------------------------------------------------

_ADULT_NUMBERS = {
    "age": Numbers(17, 90, tuple(range(17, 91, 4))),
    "fnlwgt": Numbers(
        10_000, 1_500_000, (10_000, *range(50_000, 250_001, 25_000), 300_000, 350_000, 450_000)
    ),
    "education_num": _counts(1, 16),
    "capital_gain": _amounts(
        0, 99_999, (0, 1, *range(1_000, 6_000, 1_000), 7_000, 8_000, 10_000, 15_000, 20_000)
    ),
    "capital_loss": _amounts(
        0, 4_500, (0, 1, 1_000, 1_400, *range(1_550, 2_051, 100), 2_200, 2_500)
    ),
    "hours_per_week": Numbers(1, 99, (1, 10, 20, 25, 30, 35, 40, 41, 45, 50, 55, 60, 70)),
}


def _adult(path: Path) -> TableSet:
    data = load_adult(path)
    frame = pd.DataFrame(data.data.astype(np.int64), columns=data.feature_names)
    columns: dict[str, Numbers | Words] = dict(_ADULT_NUMBERS)
    for name, words in data.categories.items():
        frame[name] = [word or None for word in words.tolist()]
        columns[name] = Words(tuple(sorted(set(words.tolist()) - {""})), missing="" in words)
    frame["income"] = np.array(data.target_names)[data.target]
    columns["income"] = Words(tuple(data.target_names))
    frame = _as_declared(frame, columns)
    train, test = (frame[rows].reset_index(drop=True) for rows in (~data.is_test, data.is_test))
    return TableSet("adult", columns, "income", ">50K", train, test)


# --- Bank marketing ---------------------------------------------------------------------------

_YES_NO = Words(("no", "yes"))
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_BANK = {
    "age": Numbers(18, 95, (18, *range(25, 66, 5), 70, 80)),
    "job": Words(
        (
            *("admin.", "blue-collar", "entrepreneur", "housemaid", "management", "retired"),
            *("self-employed", "services", "student", "technician", "unemployed", "unknown"),
        )
    ),
    "marital": Words(("divorced", "married", "single")),
    "education": Words(("primary", "secondary", "tertiary", "unknown")),
    "default": _YES_NO,
    "balance": _amounts(
        -10_000,
        110_000,
        (
            *(-10_000, -500, -1, 0, 1, 100, 250, 500, 750, 1_000, 1_500, 2_000, 3_000, 5_000),
            *(10_000, 20_000, 50_000),
        ),
    ),
    "housing": _YES_NO,
    "loan": _YES_NO,
    "contact": Words(("cellular", "telephone", "unknown")),
    "day": _counts(1, 31),
    "month": Words(_MONTHS),
    "duration": _amounts(
        0, 5_000, (0, 30, 60, 90, 120, 150, 180, 240, 300, 400, 500, 600, 800, 1_000, 1_500, 2_500)
    ),
    "campaign": _amounts(1, 63, (1, 2, 3, 4, 5, 6, 8, 11, 16, 31)),
    "pdays": _amounts(-1, 900, (-1, 0, 60, 90, 120, 150, 180, 210, 270, 330, 365, 500)),
    "previous": _amounts(0, 300, (0, 1, 2, 3, 4, 5, 7, 11, 21)),
    "poutcome": Words(("failure", "other", "success", "unknown")),
    "y": _YES_NO,
}


def _bank(path: Path) -> TableSet:
    frame = pd.read_csv(path, sep=None, engine="python")
    return TableSet("bank", _BANK, "y", "yes", *_split(_as_declared(frame, _BANK)))


# --- Default of credit cards ------------------------------------------------------------------

_BILLS = (
    *(-400_000, -1_000, -1, 0, 1, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 30_000, 50_000),
    *(75_000, 100_000, 150_000, 200_000, 300_000, 500_000),
)
_PAYMENTS = (
    *(0, 1, 500, 1_000, 1_500, 2_000, 3_000, 4_000, 5_000, 7_500, 10_000, 20_000, 50_000),
    *(100_000, 300_000),
)
_CREDIT: dict[str, Numbers | Words] = {
    # Limits are given in tens of thousands.
    "LIMIT_BAL": Numbers(1, 100, (1, 2, 3, 5, 7, 10, 13, 16, 20, 24, 30, 36, 45, 60)),
    "SEX": Words((1, 2)),
    "EDUCATION": Words((0, 1, 2, 3, 4, 5, 6)),
    "MARRIAGE": Words((0, 1, 2, 3)),
    "AGE": Numbers(21, 79, (21, *range(24, 61, 3), 65)),
    **{f"PAY_{month}": _counts(-2, 8) for month in (0, 2, 3, 4, 5, 6)},
    **{f"BILL_AMT{month}": _amounts(-400_000, 2_000_000, _BILLS) for month in range(1, 7)},
    **{f"PAY_AMT{month}": _amounts(0, 2_000_000, _PAYMENTS) for month in range(1, 7)},
    "default payment": Words((0, 1)),
}


def _credit(path: Path) -> TableSet:
    frame = pd.read_csv(path)
    frame = _as_declared(frame.assign(LIMIT_BAL=frame["LIMIT_BAL"] // 10_000), _CREDIT)
    return TableSet("credit", _CREDIT, "default payment", 1, *_split(frame))


# --- Bar examinations --------------------------------------------------------------------------

_DECILES = _counts(1, 10, missing=True)
_LAW: dict[str, Numbers | Words] = {
    "decile1b": _DECILES,
    "decile3": _DECILES,
    # Scores are mostly whole, and grades have one decimal: they are given in tenths.
    "lsat": Numbers(10, 48, (10, 19.5, 23.5, *np.arange(25.5, 48, 2)), is_whole=False),
    "ugpa": Numbers(10, 40, (10, 20, *range(24, 40))),
    "zfygpa": Numbers(
        *(-7.0, 7.0, (-7.0, *np.arange(-2.5, 2.6, 0.5))), is_whole=False, missing=True
    ),
    "zgpa": Numbers(*(-7.0, 7.0, (-7.0, *np.arange(-2.5, 2.6, 0.5))), is_whole=False, missing=True),
    "fulltime": Words((1.0, 2.0), missing=True),
    "fam_inc": _counts(1, 5, missing=True),
    "gender": Words(("female", "male"), missing=True),
    "race1": Words(("asian", "black", "hisp", "other", "white"), missing=True),
    "tier": _counts(1, 6, missing=True),
    "pass_bar": Words((0, 1)),
}


def _law(path: Path) -> TableSet:
    frame = pd.read_csv(path)
    frame = _as_declared(frame.assign(ugpa=(10 * frame["ugpa"]).round()), _LAW)
    return TableSet("law", _LAW, "pass_bar", 1, *_split(frame))


# --- Houses in California -----------------------------------------------------------------------

_ROOMS = (*(100, 250, 500, 750, 1_000, 1_250, 1_500, 1_750, 2_000, 2_500, 3_000, 3_500), 4_000)
_HOMES = (*(25, 50, 100, 150, 200, 250, 300, 350, 400, 500, 600, 700, 850, 1_000, 1_500), 2_500)
_HOUSING: dict[str, Numbers | Words] = {
    # Half degrees, and quarters about Los Angeles and San Francisco.
    "longitude": Numbers(
        *(-124.5, -114.0),
        (-124.5, *np.arange(-123, -121.5, 0.25), *np.arange(-121.5, -119, 0.5))
        + (*np.arange(-119, -116.75, 0.25), -116.5, -116, -115),
        is_whole=False,
    ),
    "latitude": Numbers(
        *(32.5, 42.0),
        (32.5, 32.75, 33, *np.arange(33.5, 34.5, 0.125), *np.arange(34.5, 37, 0.5))
        + (*np.arange(37, 38.75, 0.25), 39, 39.5, 40, 41),
        is_whole=False,
    ),
    "housing_median_age": Numbers(1, 52, (1, 5, *range(10, 50, 4), 50, 52)),
    "total_rooms": _amounts(1, 40_000, (1, *_ROOMS, 5_000, 6_500, 8_000, 12_000, 20_000)),
    "total_bedrooms": _amounts(1, 6_500, (1, *_HOMES, 4_000), missing=True),
    "population": _amounts(1, 36_000, (1, *_ROOMS, 5_000, 6_500, 10_000, 20_000)),
    "households": _amounts(1, 6_100, (1, *_HOMES, 4_000)),
    # Tens of thousands of dollars; ends of incomes, and of values, are coded.
    "median_income": Numbers(
        0.4999, 15.0001, (0.4999, *np.arange(1, 7, 0.5), 7, 8, 9, 10, 12, 15), is_whole=False
    ),
    "median_house_value": Numbers(
        14_999,
        500_001,
        (14_999, *range(50_000, 300_000, 20_000), *range(310_000, 500_000, 40_000)) + (500_001,),
    ),
    "ocean_proximity": Words(("<1H OCEAN", "INLAND", "ISLAND", "NEAR BAY", "NEAR OCEAN")),
}


def _housing(path: Path) -> TableSet:
    frame = _as_declared(pd.read_csv(path), _HOUSING)
    return TableSet("housing", _HOUSING, "median_house_value", None, *_split(frame))


# --- Diamonds -----------------------------------------------------------------------------------

_PRICES = (
    *(300, 400, 500, 600, 700, 800, 900, 1_000, 1_250, 1_500, 1_750, 2_000, 2_500, 3_000, 3_500),
    *(4_000, 4_500, 5_000, 6_000, 7_000, 8_000, 10_000, 12_000, 14_000, 16_000),
)
_LENGTHS = (0, *range(375, 550, 25), 570, 590, *range(610, 710, 25), 750, 800, 850)
# Weights and lengths are given in hundredths, and shares in tenths of per cents; lengths of several
# centimetres are errors.
_DIAMONDS: dict[str, Numbers | Words] = {
    "carat": _amounts(
        20,
        501,
        (20, 25, 30, 31, 33, 36, 40, 45, 50, 55, 60, 70, 72, 75, 80, 90, 95, 100, 102, 105, 110)
        + (120, 130, 150, 155, 170, 200, 220),
    ),
    "cut": Words(("Fair", "Good", "Very Good", "Premium", "Ideal")),
    "color": Words(tuple("DEFGHIJ")),
    "clarity": Words(("I1", "SI2", "SI1", "VS2", "VS1", "VVS2", "VVS1", "IF")),
    "depth": Numbers(430, 790, (430, 570, *range(580, 600, 10), *range(600, 645, 5), 650, 670)),
    "table": Numbers(430, 950, _heaps(430, 520, 670, 10)),
    "price": _amounts(300, 19_000, _PRICES),
    "x": Numbers(0, 1_100, _LENGTHS),
    "y": Numbers(0, 1_100, _LENGTHS),
    "z": Numbers(0, 700, (0, *range(230, 350, 15), *range(350, 450, 20), 460, 500, 550)),
}


def _diamonds(path: Path) -> TableSet:
    frame = pd.read_csv(path)
    units = {"carat": 100, "depth": 10, "table": 10, "x": 100, "y": 100, "z": 100}
    for name, unit in units.items():
        column = _DIAMONDS[name]
        frame[name] = (unit * frame[name]).round().clip(column.low, column.high)
    return TableSet("diamonds", _DIAMONDS, "price", None, *_split(_as_declared(frame, _DIAMONDS)))


# --- Diseases of the heart ----------------------------------------------------------------------

_CARDIO: dict[str, Numbers | Words] = {
    "age": Numbers(29, 65, (29, *range(38, 65, 2))),
    "gender": Words((1, 2)),
    "height": Numbers(120, 220, (120, *range(145, 186, 5), 190)),
    "weight": Numbers(30, 200, (30, *range(50, 101, 5), 110, 120, 140), is_whole=False),
    "ap_hi": Numbers(60, 240, _heaps(60, 100, 171, 10)),
    "ap_lo": Numbers(30, 160, _heaps(30, 60, 111, 10)),
    **{name: Words((1, 2, 3)) for name in ("cholesterol", "gluc")},
    **{name: Words((0, 1)) for name in ("smoke", "alco", "active", "cardio")},
}


def _cardio(path: Path) -> TableSet:
    frame = pd.read_csv(path)
    # Heights, weights and pressures that nobody has are errors.
    for name in ("height", "weight", "ap_hi", "ap_lo"):
        frame[name] = frame[name].clip(_CARDIO[name].low, _CARDIO[name].high)
    return TableSet("cardio", _CARDIO, "cardio", 1, *_split(_as_declared(frame, _CARDIO)))


# --- Parities ---------------------------------------------------------------------------------


def _parity(order: int) -> TableSet:
    """Return bits of which a few, in hidden places, have a parity that is the target's.

    The target is wrong for some records. No fewer columns than all of the hidden ones tell
    anything of it.
    """
    rng = np.random.default_rng(order)
    bits = rng.integers(0, 2, (_XOR_ROWS, _XOR_COLUMNS))
    hidden = rng.choice(_XOR_COLUMNS, order, replace=False)
    parity = bits[:, hidden].sum(axis=1) % 2
    target = np.where(rng.random(_XOR_ROWS) < _XOR_FLIPS, 1 - parity, parity)
    frame = pd.DataFrame(bits, columns=[f"b{j}" for j in range(_XOR_COLUMNS)]).assign(y=target)
    columns = dict.fromkeys(frame, Words((0, 1)))
    return TableSet(f"xor{order}", columns, "y", 1, *_split(_as_declared(frame, columns)))


# --- Tables of a dictionary ---------------------------------------------------------------------

_DICTIONARIES = Path(__file__).with_name("table_dictionaries.txt")
_LETTERS = "abcdefghijklmnopqrstuvwxyz"


def _column(told: str) -> Numbers | Words:
    """Return the column that a line of the dictionary tells of."""
    kind, *words = told.replace(",", " ").split()
    missing = "missing" in words
    if kind == "letters":
        names = [*_LETTERS, *(first + last for first in _LETTERS for last in _LETTERS)]
        return Words(tuple(names[: int(words[0])]))
    if kind == "codes":
        return Words(tuple(map(str, range(int(words[0]), int(words[1]) + 1))))
    if kind == "count":
        return _counts(int(words[0]), int(words[1]), missing)
    if kind == "number":
        return _range(words)
    categories = [word.strip() for word in told.split(",")]
    missing = categories[0] == "missing"
    return Words(tuple(categories[missing:]), missing)


def _range(words: list[str]) -> Numbers:
    """Return numbers whose usual values have bins of one width, on a logarithmic scale or not.

    On either side of the usual values is another bin, unless these reach to the bound.
    """
    n_bins = int(words[words.index("by") + 1])
    bounds = [float(word) for word in words[: words.index("by")] if not word.isalpha()]
    low, high, (first, last) = bounds[0], bounds[-1], bounds[1:-1] or bounds
    is_log, is_whole = "log" in words, "real" not in words
    n_edges = n_bins + (last == high) - (is_log or first > low)
    if is_log:
        edges = low + np.geomspace(max(first - low, 1), last - low, n_edges)
    else:
        edges = np.linspace(first, last, n_edges)
    rounded = np.ceil(edges).astype(int) if is_whole else edges
    kind = int if is_whole else float
    return Numbers(
        *(kind(low), kind(high)),
        (kind(low), *sorted({kind(edge) for edge in rounded if low < edge < high})),
        is_whole,
        "missing" in words,
        "log" if is_log else "linear",
    )


def _dictionaries() -> dict[str, dict[str, str]]:
    """Return what each table's lines tell of: its columns, and what it is."""
    found: dict[str, dict[str, str]] = {}
    text = _DICTIONARIES.read_text().replace("\n    ", " ")
    for line in text.splitlines():
        if line.startswith("["):
            told = found.setdefault(line.strip("[]"), {})
        elif line and not line.startswith("#"):
            name, value = line.split(" | " if " | " in line else " = ", 1)
            told |= dict.fromkeys(name.split("; "), value)
    return found


def _declared(name: str, told: Mapping[str, str], path: Path) -> TableSet:
    """Read a table whose columns its dictionary declares; "X*" are all that begin with X."""
    frame = pd.read_csv(path, dtype=str, keep_default_na=False)
    stars = {key[:-1]: value for key, value in told.items() if key.endswith("*")}
    columns, kept = {}, {}
    for label in frame:
        star = next((value for start, value in stars.items() if label.startswith(start)), None)
        line = told.get(label, star)
        if line is None:
            continue
        columns[label] = column = _column(line)
        words = frame[label].str.strip()
        if isinstance(column, Numbers):
            numbers = pd.to_numeric(words, errors="coerce")
            # What cannot be, as a negative number of months, stands for a missing value.
            if column.missing:
                numbers = numbers.where(numbers >= column.low)
            kept[label] = numbers.clip(column.low, column.high)
        else:
            kept[label] = words.where(words.isin(column.categories), None)
    frame = pd.DataFrame(kept)
    target, _, positive = told["target"].partition(" = ")
    frame = frame[frame[target].notna()] if target in columns else frame
    return TableSet(name, columns, target, positive or None, *_split(_as_declared(frame, columns)))


@dataclass(frozen=True)
class Source:
    """Where a table comes from, and how it is read."""

    file: str
    origin: str
    read: Callable[[Path], TableSet]


SOURCES = {
    "adult": Source("adult.csv.gz", "Adult of UCI, in one file that `load_adult` reads", _adult),
    "bank": Source(
        "bank-full.csv",
        "Bank Marketing of UCI, 45,211 records; "
        "https://github.com/radi-cho/GatedTabTransformer at commit 96b36ca3bffc, in data",
        _bank,
    ),
    "credit": Source(
        "credit-card-clients.csv",
        "Default of Credit Card Clients of UCI, 30,000 records; "
        "https://github.com/tailequy/fairness_dataset at commit abb5a18b822b, in experiments/data",
        _credit,
    ),
    "law": Source(
        "bar_pass_prediction.csv",
        "the bar passage study of Wightman, 1998, 22,407 records; "
        "https://github.com/TheRohanVerma/CMPUT622_FairSMOTE_vs_FairClassBal at commit "
        "a895803f7e2a, in data",
        _law,
    ),
    "housing": Source(
        "housing.csv",
        "districts of California in the census of 1990, 20,640 records; "
        "https://github.com/ageron/handson-ml2 at commit 1e2115277b50, in datasets/housing",
        _housing,
    ),
    "diamonds": Source(
        "diamonds.csv",
        "Diamonds of ggplot2, 53,940 records; "
        "https://github.com/Jangrae/csv at commit c12ba9423bfd",
        _diamonds,
    ),
    "cardio": Source(
        "cardio_train.csv",
        "Cardiovascular Disease, 70,000 records, ages in years; "
        "https://github.com/HasalaDissanayake/TestModelCardio at commit 40eddfcf6685",
        _cardio,
    ),
}
_KNOWN = _dictionaries()
SOURCES |= {
    name: Source(told["file"], told["origin"], partial(_declared, name, told))
    for name, told in _KNOWN.items()
}
SIMULATED = {f"xor{order}": partial(_parity, order) for order in (3, 5)}
TITLES = {
    "adult": "Adult census",
    "bank": "Bank marketing",
    "credit": "Default of credit cards",
    "law": "Bar examinations",
    "cardio": "Diseases of the heart",
    "housing": "Houses in California",
    "diamonds": "Diamonds",
    "xor3": "Parity of 3 among 15 bits",
    "xor5": "Parity of 5 among 15 bits",
    **{name: told["title"] for name, told in _KNOWN.items()},
}
NAMES = tuple(TITLES)


def load_set(name: str, folders: Iterable[Path]) -> TableSet | None:
    """Return a table that is simulated, or whose file is in one of the folders; otherwise None."""
    if name in SIMULATED:
        return SIMULATED[name]()
    paths = [Path(folder, SOURCES[name].file) for folder in folders]
    path = next((path for path in paths if path.exists()), None)
    return None if path is None else SOURCES[name].read(path)
