"""The agreement of owners: what each of them releases, as public text."""

import hashlib
import importlib
import json
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from skdpot import tables
from skdpot.privacy.checks import check_count, draft_of

_FORMAT = "skdpot agreement 1"
# Settings of a computer, which owners do not agree about.
_OF_ONE_COMPUTER = ("ledger", "n_jobs", "random_state", "verbose")


class Agreement:
    """What all owners agree on before anybody releases anything; public.

    Several owners hold rows of one table, and may not show them to each other. Each makes a *part*:
    a private release of her own rows, in a file that she could publish. Anybody adds the parts up
    and fits the estimator to their sum.

    Parameters
    ----------
    estimator : FairBarycenterPreprocessor, PrivateSinkhornDistance or DPSinkhornGenerator
        The estimator that is to be fitted, with its epsilon. Its public parameters are written
        into the agreement. A distance needs ``mechanism="histogram"`` and `groups`, and protects
        the group of each record, as with ``labels="private"``. A repair is one by a support. A
        generator is one of vectors, or of a table whose columns have few declared values.
    columns : int, list of str, or table
        The columns of X: their number, their names, or a table with these columns, of which no
        value is read.
    n_records : int
        Number of records of all owners together, or a public guess: the grid is chosen for it.
    owners : sequence of str
        Names of all owners, two or more.

    Attributes
    ----------
    digest : str
        SHA-256 of the agreement. Owners who have the same digest have the same agreement.

    Raises
    ------
    TypeError
        If there are no parts of such an estimator.
    ValueError
        If a declaration is missing, or a parameter cannot be written as text.

    See Also
    --------
    make_part : The release of one owner.
    add_parts : The estimator that is fitted to all parts.

    Examples
    --------
    >>> from skdpot import FairBarycenterPreprocessor
    >>> from skdpot.parts import Agreement
    >>> repair = FairBarycenterPreprocessor(
    ...     "sex", epsilon=2.0, bounds=(0, 100), groups=["f", "m"], method="support"
    ... )
    >>> agreement = Agreement(repair, ["sex", "age"], 3000, ["north", "south"])
    >>> agreement.owners
    ('north', 'south')
    >>> Agreement.from_text(agreement.text).digest == agreement.digest
    True
    """

    def __init__(self, estimator: Any, columns: Any, n_records: int, owners: Sequence[str]) -> None:
        make = getattr(estimator, "_for_parts", None)
        if make is None:
            raise TypeError(
                f"{type(estimator).__name__} has no parts. A FairBarycenterPreprocessor, a "
                "PrivateSinkhornDistance and a DPSinkhornGenerator have some."
            )
        self.owners = () if isinstance(owners, str) else tuple(owners)
        texts = {one for one in self.owners if isinstance(one, str) and one}
        if len(texts) < max(len(self.owners), 2):
            raise ValueError("owners must be the names of two or more owners, different texts.")
        self.n_records = check_count("n_records", n_records)
        if len(getattr(columns, "shape", ())) == 2:
            columns = list(getattr(columns, "columns", ())) or columns.shape[1]
        names = list(range(columns) if isinstance(columns, int) else columns)
        self.columns = columns if isinstance(columns, int) else names
        if isinstance(columns, str) or len(set(names)) < len(names):
            raise ValueError("columns must be their number, or a list of different names.")
        told = {
            "format": _FORMAT,
            "estimator": _as_json(make()),
            "columns": _as_json(self.columns),
            "n_records": self.n_records,
            "owners": list(self.owners),
        }
        self.text = json.dumps(told, sort_keys=True, allow_nan=False, indent=1)
        # What cannot be released is refused here, and not at the first owner.
        self._planned()

    @property
    def digest(self) -> str:
        """Return the SHA-256 of the text."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    def _planned(self) -> tuple[Any, Any]:
        """Return a new estimator as it was agreed on, and the plan of the release of each owner."""
        estimator = _from_json(json.loads(self.text)["estimator"])
        plan = estimator._plan_of_parts(self.n_records, self._empty_table(), len(self.owners))
        return estimator, replace(plan, n_records=self.n_records)

    def _empty_table(self) -> Any:
        """Return a table with the agreed columns and no row: a data frame if they have names."""
        if isinstance(self.columns, int):
            return np.empty((0, self.columns))
        import pandas as pd

        # Columns of objects may hold anything, as declared.
        return pd.DataFrame({name: np.empty(0, dtype=object) for name in self.columns})

    def _arranged(self, X: Any) -> Any:
        """Return rows with the agreed columns, which names put in order; or raise."""
        table = tables.Table(X)
        names, is_named = table.names, table.container != "array"
        if isinstance(self.columns, list) and is_named and set(names) == set(self.columns):
            return tables.take_columns(table.X, [names.index(name) for name in self.columns])
        if isinstance(self.columns, list) or len(names) != self.columns:
            found = names if is_named else f"an array of {len(names)} columns"
            raise ValueError(f"the agreement is about the columns {self.columns}; got {found}.")
        return table.X

    @classmethod
    def from_text(cls, text: str) -> "Agreement":
        """Return the agreement of a text.

        Parameters
        ----------
        text : str
            The attribute ``text`` of an agreement.

        Returns
        -------
        Agreement
            The same agreement.

        Raises
        ------
        ValueError
            If it is not the text of an agreement.
        """
        try:
            told = json.loads(text)
            if told["format"] != _FORMAT:
                raise ValueError
            fields = [_from_json(told[name]) for name in ("estimator", "columns")]
            fields += [told["n_records"], told["owners"]]
        except (KeyError, TypeError, ValueError, AttributeError, ImportError) as error:
            raise ValueError(
                "this is no agreement: it must be the text of skdpot.parts.Agreement."
            ) from error
        agreement = cls(*fields)
        # One that was changed by hand may say more, or the same in another way.
        if agreement.text != text.strip():
            raise ValueError("the text of the agreement was changed: it is not as it was written.")
        return agreement

    def save(self, path: str | os.PathLike) -> None:
        """Write the agreement to a file.

        Parameters
        ----------
        path : str or Path
            The file, of JSON.
        """
        with draft_of(Path(path)) as draft:
            draft.write_text(self.text + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: str | os.PathLike) -> "Agreement":
        """Return an agreement that was saved.

        Parameters
        ----------
        path : str or Path
            The file.

        Returns
        -------
        Agreement
            The same agreement.
        """
        # A file of something else need not be text.
        return cls.from_text(Path(path).read_text(encoding="utf-8", errors="replace"))

    def __repr__(self) -> str:
        return f"<Agreement {self.digest[:16]} of {len(self.owners)} owners>"


def _as_json(value: Any) -> Any:
    """Return a parameter as values of JSON, or raise ValueError."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, range):
        return {"range": [value.start, value.stop, value.step]}
    if isinstance(value, list | tuple | np.ndarray):
        kind = "tuple" if isinstance(value, tuple) else "list"
        return {kind: [_as_json(one) for one in value]}
    if isinstance(value, dict):
        return {"dict": [[_as_json(key), _as_json(one)] for key, one in value.items()]}
    room, name = type(value).__module__.split("._")[0], type(value).__name__
    if isinstance(value, BaseEstimator) and room.split(".")[0] == "skdpot":
        parameters = value.get_params(deep=False).items()
        kept = {key: _as_json(one) for key, one in parameters if key not in _OF_ONE_COMPUTER}
        return {"object": f"{room}.{name}", "parameters": kept}
    raise ValueError(
        f"a parameter of type {type(value).__name__} cannot be written into an agreement: use "
        "numbers, texts, lists, dicts, ranges and objects of skdpot."
    )


def _from_json(told: Any) -> Any:
    """Return the parameter that values of JSON stand for."""
    if not isinstance(told, dict):
        return told
    if "object" in told:
        room, _, name = told["object"].rpartition(".")
        if room.split(".")[0] != "skdpot" or "._" in room:
            raise ValueError
        home = importlib.import_module(room)
        made = getattr(home, name)
        if name not in home.__all__ or not issubclass(made, BaseEstimator):
            raise ValueError
        return made(**{key: _from_json(one) for key, one in told["parameters"].items()})
    [(kind, values)] = told.items()
    if kind == "range":
        return range(*values)
    if kind == "dict":
        return {_from_json(key): _from_json(one) for key, one in values}
    found = [_from_json(one) for one in values]
    return tuple(found) if kind == "tuple" else found
