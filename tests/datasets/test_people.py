"""The loaders of Adult and COMPAS: made-up files of the layouts that they read, and real ones."""

import csv
import gzip
import os

import numpy as np
import pytest

from skdpot.datasets import load_adult, load_compas

ADULT = os.environ.get("SKDPOT_ADULT")
COMPAS = os.environ.get("SKDPOT_COMPAS")

TRAIN = """\
39, State-gov, 77516, Bachelors, 13, Never-married, Adm-clerical, Not-in-family, White, Male, 2174, 0, 40, United-States, <=50K
52, ?, 209642, HS-grad, 9, Married-civ-spouse, ?, Husband, Black, Male, 0, 1902, 45, ?, >50K

"""  # noqa: E501
TEST = """\
|1x3 Cross validator
25, Private, 226802, 11th, 7, Never-married, Sales, Own-child, Black, Female, 0, 0, 38, Cuba, >50K.

"""
TABLE = """\
age,workclass,fnlwgt,education,education_num,marital_status,occupation,relationship,race,sex,capital_gain,capital_loss,hours_per_week,native_country,income,split
39,State-gov,77516,Bachelors,13,Never-married,Adm-clerical,Not-in-family,White,Male,2174,0,40,United-States,<=50K,train
52,,209642,HS-grad,9,Married-civ-spouse,,Husband,Black,Male,0,1902,45,,>50K,train
25,Private,226802,11th,7,Never-married,Sales,Own-child,Black,Female,0,0,38,Cuba,>50K,test
"""

# Columns occur twice in the original, and lines may have several physical ones.
COMPAS_HEADER = (
    "id", "name", "sex", "dob", "age", "age_cat", "race", "juv_fel_count", "decile_score",
    "juv_misd_count", "juv_other_count", "priors_count", "days_b_screening_arrest",
    "c_charge_degree", "c_charge_desc", "is_recid", "decile_score", "score_text", "priors_count",
    "two_year_recid",
)  # fmt: skip
DEFENDANTS = [
    (1, "a, b", "Male", "", 31, "25 - 45", "Other", 0, 4, 0, 0, 2, -1, "F", "x\ny", 0, 9, "Low", 9,
     0),
    (2, "c", "Female", "", 24, "Less than 25", "Caucasian", 1, 6, 2, 3, 1, "", "M", "", 1, 9,
     "Medium", 9, 1),
    (3, "d", "Male", "", 60, "Greater than 45", "Caucasian", 0, 1, 0, 0, 0, 31, "M", "", 0, 9,
     "Low", 9, 0),
    (4, "e", "Male", "", 33, "25 - 45", "Asian", 0, 2, 0, 0, 0, 0, "O", "", 0, 9, "Low", 9, 0),
    (5, "f", "Male", "", 34, "25 - 45", "Asian", 0, -1, 0, 0, 0, 0, "F", "", 0, 9, "N/A", 9, 0),
    (6, "g", "Male", "", 35, "25 - 45", "Asian", 0, 3, 0, 0, 0, -30, "F", "", -1, 9, "Low", 9, 0),
    (7, "h", "Male", "", 36, "25 - 45", "Asian", 0, 3, 0, 0, 0, -30, "F", "", 1, 9, "Low", 9, 1),
]  # fmt: skip


@pytest.fixture
def adult(tmp_path):
    """Return a folder laid out as the original data set is."""
    (tmp_path / "adult.data").write_text(TRAIN)
    (tmp_path / "adult.test").write_text(TEST)
    return tmp_path


@pytest.fixture
def compas(tmp_path):
    """Return a file laid out as the original is."""
    return write_compas(tmp_path, COMPAS_HEADER, DEFENDANTS)


def write_compas(folder, header, defendants):
    path = folder / "compas-scores-two-years.csv"
    with path.open("w", newline="") as stream:
        csv.writer(stream).writerows([header, *defendants])
    return path


def compress(path):
    """Compress a file in its place."""
    compressed = path.with_name(f"{path.name}.gz")
    compressed.write_bytes(gzip.compress(path.read_bytes()))
    path.unlink()
    return compressed


def assert_same(one, other):
    np.testing.assert_equal(dict(one), dict(other))


# ---------------------------------------------------------------------------------- Adult


def test_original_adult(adult):
    data = load_adult(adult)
    assert data.feature_names == [
        "age", "fnlwgt", "education_num", "capital_gain", "capital_loss", "hours_per_week",
    ]  # fmt: skip
    np.testing.assert_array_equal(
        data.data,
        [[39, 77516, 13, 2174, 0, 40], [52, 209642, 9, 0, 1902, 45], [25, 226802, 7, 0, 0, 38]],
    )
    assert data.data.dtype == np.float64
    assert data.target.tolist() == [0, 1, 1]
    assert data.target_names == ["<=50K", ">50K"]
    assert data.is_test.tolist() == [False, False, True]
    assert data.categories["sex"].tolist() == ["Male", "Male", "Female"]
    assert data.categories["workclass"].tolist() == ["State-gov", "", "Private"]
    assert data.categories["native_country"].tolist() == ["United-States", "", "Cuba"]
    assert len(data.categories) == 8


def test_adult_as_a_table(adult, tmp_path):
    (tmp_path / "adult.csv").write_text(TABLE)
    table = load_adult(tmp_path / "adult.csv")
    assert_same(table, load_adult(str(adult)))
    (tmp_path / "hyphens.csv").write_text(TABLE.replace("education_num", "education-num", 1))
    assert_same(table, load_adult(tmp_path / "hyphens.csv"))
    assert_same(table, load_adult(compress(tmp_path / "adult.csv")))


def test_compressed_and_single_files_of_adult(adult):
    whole = load_adult(adult)
    compress(adult / "adult.test")
    assert_same(load_adult(adult), whole)
    train, test = load_adult(adult / "adult.data"), load_adult(adult / "adult.test.gz")
    np.testing.assert_array_equal(np.vstack([train.data, test.data]), whole.data)
    assert test.is_test.all() and not train.is_test.any()


def test_a_number_that_is_missing(adult):
    (adult / "adult.data").write_text(TRAIN.replace("39,", "?,"))
    assert np.isnan(load_adult(adult).data[0, 0])


@pytest.mark.parametrize("name", ["adult.data", "adult.test"])
def test_missing_file_of_adult_is_named_with_where_to_get_it(adult, name):
    (adult / name).unlink()
    with pytest.raises(FileNotFoundError, match=rf"no {name} in .*archive.ics.uci.edu"):
        load_adult(adult)
    with pytest.raises(FileNotFoundError, match=rf"no file .*{name}.*archive.ics.uci.edu"):
        load_adult(adult / name)


@pytest.mark.parametrize(
    "change, message",
    [
        (("39,", "young,"), "age must be a number"),
        (("<=50K", "little"), r"incomes in .* must be <=50K or >50K"),
        ((", Male", ""), "has 14 fields in record 1, but there must be 15.*uci.edu"),
        ((TRAIN, "\n"), "holds no records.*uci.edu"),
        ((TRAIN, "|1x3 Cross validator\n"), "holds no records"),
        ((TRAIN, "age,sex\n1,2\n"), r"lacks the columns \['fnlwgt'"),
    ],
)
def test_bad_adult(adult, change, message):
    (adult / "adult.data").write_text(TRAIN.replace(*change))
    with pytest.raises(ValueError, match=message):
        load_adult(adult)


# --------------------------------------------------------------------------------- COMPAS


def test_original_compas(compas):
    data = load_compas(compas)
    assert data.feature_names[:5] == [
        "age", "juv_fel_count", "juv_misd_count", "juv_other_count", "priors_count",
    ]  # fmt: skip
    np.testing.assert_array_equal(
        data.data[:2], [[31, 0, 0, 0, 2, 4, -1, 0], [24, 1, 2, 3, 1, 6, np.nan, 1]]
    )
    assert data.data.shape == (7, 8)
    assert data.target.tolist() == [0, 1, 0, 0, 0, 0, 1]
    assert data.categories["race"].tolist()[:3] == ["Other", "Caucasian", "Caucasian"]
    assert data.categories["score_text"][4] == ""
    assert set(data.categories) == {"sex", "race", "age_cat", "c_charge_degree", "score_text"}


def test_filter_of_propublica(compas):
    data, whole = load_compas(compas, filtered=True), load_compas(compas)
    np.testing.assert_array_equal(data.data, whole.data[[0, 6]])
    assert data.target.tolist() == [0, 1]
    assert data.categories["age_cat"].tolist() == ["25 - 45", "25 - 45"]


def test_compas_without_what_identifies_people(compas, tmp_path):
    whole = load_compas(compas)
    kept = [index for index, name in enumerate(COMPAS_HEADER) if name not in {"name", "dob"}]
    rows = [[row[index] for index in kept] for row in [COMPAS_HEADER, *DEFENDANTS]]
    path = compress(write_compas(tmp_path, rows[0], rows[1:]))
    assert_same(load_compas(str(path)), whole)


def test_missing_compas_says_where_to_get_it(tmp_path):
    for path in (tmp_path, tmp_path / "nowhere.csv"):
        with pytest.raises(FileNotFoundError, match=r"no file .*propublica/compas-analysis"):
            load_compas(path)


def test_bad_compas(tmp_path):
    path = write_compas(tmp_path, COMPAS_HEADER[:-1], [row[:-1] for row in DEFENDANTS])
    with pytest.raises(ValueError, match=r"lacks the columns \['two_year_recid'\].*propublica"):
        load_compas(path)
    path = write_compas(tmp_path, COMPAS_HEADER, [(*DEFENDANTS[0][:-1], 2)])
    with pytest.raises(ValueError, match="two_year_recid must be 0 or 1"):
        load_compas(path)
    with pytest.raises(ValueError, match="holds no records"):
        load_compas(write_compas(tmp_path, COMPAS_HEADER, []))


# Names of their own, since the bytes of an archive tell when it was made.
@pytest.mark.parametrize(
    "content", [b"no archive", gzip.compress(TABLE.encode())[:-20]], ids=["no archive", "cut"]
)
def test_damaged_archives(tmp_path, content):
    (tmp_path / "file.gz").write_bytes(content)
    for load in (load_adult, load_compas):
        with pytest.raises(ValueError, match="is not a comma-separated table"):
            load(tmp_path / "file.gz")


def test_bytes_that_are_no_text(tmp_path):
    (tmp_path / "file.csv").write_bytes(b"\xff\xfe\x00,\n")
    with pytest.raises(ValueError, match="is not a comma-separated table"):
        load_adult(tmp_path / "file.csv")


# ----------------------------------------------------------------------------- real files


@pytest.mark.skipif(
    ADULT is None,
    reason="set SKDPOT_ADULT to Adult's folder or table, which has to be downloaded from "
    "https://archive.ics.uci.edu/dataset/2/adult",
)
def test_real_adult():
    data = load_adult(ADULT)
    assert data.data.shape == (48_842, 6)
    assert np.isfinite(data.data).all()
    assert np.bincount(data.target).tolist() == [37_155, 11_687]
    assert data.is_test.sum() == 16_281
    assert (data.categories["sex"] == "Female").sum() == 16_192
    missing = {name: int((words == "").sum()) for name, words in data.categories.items()}
    assert {name: count for name, count in missing.items() if count} == {
        "workclass": 2_799, "occupation": 2_809, "native_country": 857,
    }  # fmt: skip


@pytest.mark.skipif(
    COMPAS is None,
    reason="set SKDPOT_COMPAS to compas-scores-two-years.csv, which has to be downloaded from "
    "https://github.com/propublica/compas-analysis",
)
def test_real_compas():
    data = load_compas(COMPAS)
    assert data.data.shape == (7_214, 8)
    assert np.bincount(data.target).tolist() == [3_963, 3_251]
    assert (data.categories["race"] == "African-American").sum() == 3_696
    scores = data.data[:, data.feature_names.index("decile_score")]
    assert set(scores) == set(range(1, 11))
    assert np.isnan(data.data).sum(axis=0).tolist() == [0, 0, 0, 0, 0, 0, 307, 0]
    assert len(load_compas(COMPAS, filtered=True).target) == 6_172
