"""Records of people in groups that may be treated unfairly, read from files on disk."""

import csv
import gzip
from pathlib import Path

import numpy as np
from sklearn.utils import Bunch

# The fields of a line of adult.data and adult.test, which have no header.
_ADULT_FIELDS = (
    "age", "workclass", "fnlwgt", "education", "education_num", "marital_status", "occupation",
    "relationship", "race", "sex", "capital_gain", "capital_loss", "hours_per_week",
    "native_country", "income",
)  # fmt: skip
_ADULT_NUMBERS = (
    "age", "fnlwgt", "education_num", "capital_gain", "capital_loss", "hours_per_week",
)  # fmt: skip
_ADULT_CATEGORIES = (
    "workclass", "education", "marital_status", "occupation", "relationship", "race", "sex",
    "native_country",
)  # fmt: skip
_INCOMES = ("<=50K", ">50K")
_WHERE_TO_GET_ADULT = (
    "Download the Adult data set from https://archive.ics.uci.edu/dataset/2/adult and give the "
    "folder that holds adult.data and adult.test."
)

_COMPAS_NUMBERS = (
    "age", "juv_fel_count", "juv_misd_count", "juv_other_count", "priors_count", "decile_score",
    "days_b_screening_arrest", "is_recid",
)  # fmt: skip
_COMPAS_CATEGORIES = ("sex", "race", "age_cat", "c_charge_degree", "score_text")
_WHERE_TO_GET_COMPAS = (
    "Download compas-scores-two-years.csv from https://github.com/propublica/compas-analysis and "
    "give its path."
)
_MISSING = ("", "?", "N/A")


def load_adult(path):
    r"""Load the Adult data set, records of the census of the United States, from disk.

    The data set holds age, education, working hours and more of 48,842 people, and whether they
    earned more than 50,000 dollars in the year 1994. It does not come with this package: download
    it from https://archive.ics.uci.edu/dataset/2/adult. The result is the content of the files,
    without noise.

    Parameters
    ----------
    path : str or path-like
        Folder that holds the original files ``adult.data`` and ``adult.test``; or one of these; or
        a table with a header, separated by commas. Files may be compressed (``.gz``).

    Returns
    -------
    data : :class:`~sklearn.utils.Bunch`
        Dictionary-like object, with the following attributes.

        data : ndarray of shape (n_records, 6)
            The columns that hold numbers; NaN where one is missing.
        feature_names : list of str
            Their names: age, fnlwgt, education_num, capital_gain, capital_loss, hours_per_week.
        categories : dict of str to ndarray of shape (n_records,)
            The columns that hold words: workclass, education, marital_status, occupation,
            relationship, race, sex, native_country. A word that is missing is empty.
        target : ndarray of shape (n_records,)
            1 for an income above 50,000 dollars, else 0.
        target_names : list of str
            What 0 and 1 stand for.
        is_test : ndarray of shape (n_records,), dtype=bool
            Whether the authors of the data set have set a record apart: it is in ``adult.test``, or
            its column ``split`` says test.

    Raises
    ------
    FileNotFoundError
        If the files are not there; the message says where to get them.
    ValueError
        If they are there and hold something else.

    See Also
    --------
    load_compas : Records of defendants.

    References
    ----------
    B. Becker and R. Kohavi, "Adult", UCI Machine Learning Repository, 1996.
    :doi:`10.24432/C5XW20`

    Examples
    --------
    A made-up file with two people:

    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from skdpot.datasets import load_adult
    >>> lines = [
    ...     "39, ?, 1, Masters, 14, Divorced, ?, Unmarried, Other, Male, 0, 0, 40, ?, <=50K",
    ...     "52, Private, 1, HS-grad, 9, Widowed, Sales, Wife, Black, Female, 9, 0, 45, ?, >50K",
    ... ]
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder, "adult.data")
    ...     _ = path.write_text("\n".join(lines))
    ...     data = load_adult(path)
    >>> data.data[:, [0, 2, 5]]
    array([[39., 14., 40.],
           [52.,  9., 45.]])
    >>> data.categories["sex"], data.target
    (array(['Male', 'Female'], dtype='<U6'), array([0, 1]))
    """
    path = Path(path)
    files = [path]
    if path.is_dir():
        files = [_find_in(path, name) for name in ("adult.data", "adult.test")]
    names = (*_ADULT_NUMBERS, *_ADULT_CATEGORIES, "income")
    tables = [_read_columns(file, names, _WHERE_TO_GET_ADULT, _ADULT_FIELDS) for file in files]
    columns = {name: np.concatenate([table[name] for table in tables]) for name in tables[0]}
    labels = np.char.rstrip(columns["income"], ".")
    if not np.isin(labels, _INCOMES).all():
        raise ValueError(
            f"the incomes in {str(path)!r} must be {_INCOMES[0]} or {_INCOMES[1]}. "
            f"{_WHERE_TO_GET_ADULT}"
        )
    # Labels of adult.test end with a full stop.
    is_test = np.char.endswith(columns["income"], ".") | (columns["split"] == "test")
    return Bunch(
        **_as_arrays(columns, _ADULT_NUMBERS, _ADULT_CATEGORIES, path),
        target=(labels == _INCOMES[1]).astype(np.int64),
        target_names=list(_INCOMES),
        is_test=is_test,
    )


def load_compas(path, *, filtered=False):
    r"""Load ProPublica's records of defendants and their COMPAS scores from disk.

    The data set holds age, criminal history, COMPAS scores and later arrests of 7,214 defendants
    in Broward County, Florida. It does not come with this package: download
    ``compas-scores-two-years.csv`` from https://github.com/propublica/compas-analysis. Names,
    dates of birth and case numbers are not read. All other values of the file are returned without
    noise.

    Parameters
    ----------
    path : str or path-like
        The file, which may be compressed (``.gz``), and may lack columns that are not read.
    filtered : bool, default=False
        Whether to keep only those of the records that ProPublica's own analysis kept: with a
        charge within 30 days of the screening, no ordinary traffic offence, a score, and known
        whether there was a later arrest.

    Returns
    -------
    data : :class:`~sklearn.utils.Bunch`
        Dictionary-like object, with the following attributes.

        data : ndarray of shape (n_records, 8)
            The columns that hold numbers; NaN where one is missing.
        feature_names : list of str
            Their names: age, juv_fel_count, juv_misd_count, juv_other_count, priors_count,
            decile_score, days_b_screening_arrest, is_recid.
        categories : dict of str to ndarray of shape (n_records,)
            The columns that hold words: sex, race, age_cat, c_charge_degree, score_text. A word
            that is missing is empty.
        target : ndarray of shape (n_records,)
            1 for an arrest within two years, else 0.

    Raises
    ------
    FileNotFoundError
        If there is no such file; the message says where to get it.
    ValueError
        If the file exists but has another format.

    See Also
    --------
    load_adult : Records of a census.

    References
    ----------
    J. Angwin, J. Larson, S. Mattu and L. Kirchner, "Machine Bias", ProPublica, 2016.

    Examples
    --------
    A made-up file with two defendants:

    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from skdpot.datasets import load_compas
    >>> lines = [
    ...     "sex,age,age_cat,race,juv_fel_count,decile_score,juv_misd_count,juv_other_count,"
    ...     "priors_count,days_b_screening_arrest,c_charge_degree,is_recid,score_text,"
    ...     "two_year_recid",
    ...     "Male,31,25 - 45,Other,0,4,0,0,2,-1,F,0,Low,0",
    ...     "Female,24,Less than 25,Caucasian,0,6,1,0,1,,M,1,Medium,1",
    ... ]
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder, "compas-scores-two-years.csv")
    ...     _ = path.write_text("\n".join(lines))
    ...     data = load_compas(path)
    >>> data.data[:, [0, 4, 6]]
    array([[31.,  2., -1.],
           [24.,  1., nan]])
    >>> data.categories["race"], data.target
    (array(['Other', 'Caucasian'], dtype='<U9'), array([0, 1]))
    """
    path = Path(path)
    names = (*_COMPAS_NUMBERS, *_COMPAS_CATEGORIES, "two_year_recid")
    columns = _read_columns(path, names, _WHERE_TO_GET_COMPAS)
    if not np.isin(columns["two_year_recid"], ("0", "1")).all():
        raise ValueError(f"two_year_recid must be 0 or 1 in all rows of {str(path)!r}.")
    if filtered:
        found = _as_arrays(columns, _COMPAS_NUMBERS, _COMPAS_CATEGORIES, path)
        days, later_arrest = found["data"][:, [-2, -1]].T
        kept = (np.abs(days) <= 30) & (later_arrest != -1)
        kept &= columns["c_charge_degree"] != "O"
        kept &= found["categories"]["score_text"] != ""
        columns = {name: column[kept] for name, column in columns.items()}
    return Bunch(
        **_as_arrays(columns, _COMPAS_NUMBERS, _COMPAS_CATEGORIES, path),
        target=(columns["two_year_recid"] == "1").astype(np.int64),
    )


def _find_in(folder, name):
    """Return a file of a folder, plain or compressed."""
    for candidate in (folder / name, folder / f"{name}.gz"):
        if candidate.is_file():
            return candidate
    raise FileNotFoundError(f"There is no {name} in {str(folder)!r}. {_WHERE_TO_GET_ADULT}")


def _read_columns(file, names, where_to_get_it, fields=()):
    """Return columns of text by name, the first of equal names, and "split" if there is one.

    `fields` are the columns of a file without a header.
    """
    if not file.is_file():
        raise FileNotFoundError(f"There is no file {str(file)!r}. {where_to_get_it}")
    opener = gzip.open if file.suffix == ".gz" else open
    try:
        with opener(file, "rt", encoding="utf-8-sig", newline="") as stream:
            rows = [[field.strip() for field in row] for row in csv.reader(stream)]
    except (ValueError, OSError, EOFError, csv.Error) as error:
        raise ValueError(
            f"{str(file)!r} is not a comma-separated table: {error}. {where_to_get_it}"
        ) from error
    # The original test file of Adult begins with a line that holds no record.
    rows = [row for row in rows if any(row) and not row[0].startswith("|")]
    header = [name.replace("-", "_") for name in rows[0]] if rows else []
    if fields and "age" not in header:
        header, records = list(fields), rows
    else:
        records = rows[1:]
    missing = [name for name in names if name not in header]
    wrong = [k for k, row in enumerate(records) if len(row) != len(header)]
    fault = None
    if not records:
        fault = "holds no records"
    elif missing:
        fault = f"lacks the columns {missing}"
    elif wrong:
        n_fields = len(records[wrong[0]])
        fault = f"has {n_fields} fields in record {wrong[0] + 1}, but there must be {len(header)}"
    if fault is not None:
        raise ValueError(f"{str(file)!r} {fault}. {where_to_get_it}")
    columns = {name: np.array([row[header.index(name)] for row in records]) for name in names}
    splits = [row[header.index("split")] if "split" in header else "" for row in records]
    return columns | {"split": np.array(splits)}


def _as_arrays(columns, numbers, categories, path):
    """Return the numerical columns as one array, and the columns of text by name."""
    data = [_as_numbers(columns[name], name, path) for name in numbers]
    words = {
        name: np.where(np.isin(columns[name], _MISSING), "", columns[name]) for name in categories
    }
    return {"data": np.column_stack(data), "feature_names": list(numbers), "categories": words}


def _as_numbers(column, name, path):
    try:
        return np.where(np.isin(column, _MISSING), "nan", column).astype(np.float64)
    except ValueError as error:
        raise ValueError(f"{name} must be a number in all rows of {str(path)!r}: {error}") from None
