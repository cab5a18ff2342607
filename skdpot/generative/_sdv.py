"""The generator of private tables with the interface of SDV's single-table synthesizers."""

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, Self

from skdpot.generative._files import read_generator, write_generator
from skdpot.generative._generator import DPSinkhornGenerator
from skdpot.generative._saving import plain
from skdpot.privacy.quotes import without_quotes
from skdpot.tables import container_of

# Keys of a column's metadata that SDV does not fill with private values.
_PUBLIC_KEYS = ("sdtype", "pii", "computer_representation", "datetime_format", "regex_format")
_KEYS_IN_FILE = {"columns", "primary_key", "name"}
_NUMERICAL, _DATETIME, _BOOLEAN = "numerical", "datetime", "boolean"
_LABELLED = ("categorical", "ordinal")
_ABOUT_RANGES = (
    "Ranges and values in metadata are not used, since SDV detects them in the private table: if "
    "they were written from public knowledge, set ranges_are_public=True."
)


class SdvSynthesizer:
    """Private synthetic tables for programs that use SDV's single-table synthesizers.

    It has the methods of SDV's synthesizers, but does not need SDV. Tables are frames, or
    dictionaries {name: frame} as in SDV 2; samples have the form of the fitted table. It wraps a
    :class:`~skdpot.DPSinkhornGenerator`, whose guarantee holds. Columns that the metadata call
    identifiers, or personal (email, phone_number, ...), are never read; their synthetic values are
    invented. Text in the ``datetime_format`` of the metadata is read as dates, and samples have
    dates. SDV's constraints are `rules`.

    Parameters
    ----------
    metadata : sdv Metadata or dict
        Metadata of one table, or the result of their ``to_dict()``. The names and types of columns
        are then public.
    epsilon : float
        Privacy parameter of a fit.
    schema : dict, default=None
        Public. Declarations by column, as in :class:`~skdpot.DPSinkhornGenerator`, for facts that
        metadata lack: bounds of numbers and dates, and categories. They take precedence over the
        metadata.
    ranges_are_public : bool, default=False
        Whether bounds and values in the metadata are public knowledge and may be used. Those that
        SDV *detects* are values of the private table, so they are not public.
    **options : dict
        Further parameters of :class:`~skdpot.DPSinkhornGenerator`, such as ``delta``, ``target``
        and ``ledger``.

    Attributes
    ----------
    generator : DPSinkhornGenerator
        The generator, with its guarantee, ``preview`` and ``quality()``.

    Raises
    ------
    ValueError
        If the metadata do not describe one table, or columns are not declared. The error names all
        of them.

    See Also
    --------
    skdpot.DPSinkhornGenerator : The generator itself, as an estimator.

    Examples
    --------
    >>> import pandas as pd
    >>> from skdpot.generative import SdvSynthesizer
    >>> metadata = {
    ...     "columns": {"id": {"sdtype": "id"}, "age": {"sdtype": "numerical"},
    ...                 "member": {"sdtype": "boolean"}},
    ...     "primary_key": "id",
    ... }
    >>> table = pd.DataFrame({"id": range(900), "age": [30, 50, 70] * 300, "member": [True] * 900})
    >>> synthesizer = SdvSynthesizer(metadata, epsilon=1.0, schema={"age": range(18, 100)})
    >>> synthesizer.fit(table)
    >>> synthesizer.sample(num_rows=5).columns.tolist()
    ['id', 'age', 'member']
    """

    def __init__(
        self, metadata, epsilon, *, schema=None, ranges_are_public=False, **options
    ) -> None:
        self._metadata = metadata
        self._described = _read_metadata(metadata)
        self._name: str | None = None
        declared = _declarations(self._described, dict(schema or {}), ranges_are_public)
        self._parameters = {
            "epsilon": epsilon, "schema": schema, "ranges_are_public": ranges_are_public, **options
        }  # fmt: skip
        self.generator = DPSinkhornGenerator(epsilon, schema=declared, **options)

    def fit(self, data) -> None:
        """Fit to a private table. A ledger is charged first.

        Parameters
        ----------
        data : DataFrame or dict of str to DataFrame
            The table; a dictionary has one.

        Raises
        ------
        ValueError
            If it is not the declared table. Nothing is charged in this case.
        """
        table, name = data, None
        if isinstance(data, Mapping):
            if len(data) != 1:
                raise ValueError(f"data must have one table, and has {len(data)}.")
            [(name, table)] = data.items()
        self.generator.fit(_with_dates(table, self._described["columns"]))
        self._name = name

    def sample(
        self, num_rows, main_table_name=None, max_tries_per_batch=100, batch_size=None
    ) -> Any:
        """Return synthetic rows, at no cost.

        Parameters
        ----------
        num_rows : int
            How many.
        main_table_name, max_tries_per_batch, batch_size : object, default=None
            Parameters of SDV, without effect here.

        Returns
        -------
        DataFrame or dict of str to DataFrame
            In the form of the table that was fitted.
        """
        return self._as_given(self.generator.sample(num_rows))

    def sample_from_conditions(self, conditions, max_tries_per_batch=100, batch_size=None) -> Any:
        """Return synthetic rows that satisfy conditions exactly, at no cost.

        Parameters
        ----------
        conditions : list of sdv.sampling.Condition
            Each has values by column and a number of rows.
        max_tries_per_batch, batch_size : object, default=None
            Parameters of SDV, without effect here.

        Returns
        -------
        DataFrame or dict of str to DataFrame
            The rows of all conditions, one after another.
        """
        import pandas

        drawn = [
            self.generator.sample(one.get_num_rows(), given=dict(one.get_column_values()))
            for one in conditions
        ]
        rows = pandas.concat(drawn, ignore_index=True)
        # Each draw numbers its identifiers from 1, so all rows get new ones.
        for name, declared in self.generator.schema.items():
            if isinstance(declared, dict) and "identifier" in declared:
                rows[name] = self.generator.sample(len(rows))[name]
        return self._as_given(rows)

    def get_parameters(self) -> dict[str, Any]:
        """Return the parameters, without the metadata.

        Returns
        -------
        dict
            By name.
        """
        return dict(self._parameters)

    def get_metadata(self) -> Any:
        """Return the metadata.

        Returns
        -------
        object
            The metadata as given; for a loaded synthesizer, those of the file.
        """
        return self._metadata

    def save(self, filepath) -> None:
        """Write the fitted synthesizer to a file, without private data.

        Ranges and values in the metadata may be private, so they are left out. The file can also
        be loaded by :meth:`DPSinkhornGenerator.load <skdpot.DPSinkhornGenerator.load>`.

        Parameters
        ----------
        filepath : str or path-like
            The file; one that exists is replaced.
        """
        header, arrays = self.generator._content()
        header["sdv"] = self._public_metadata() | {"name": self._name}
        write_generator(filepath, plain(header), arrays)

    @classmethod
    def load(cls, filepath) -> Self:
        """Return the fitted synthesizer that was saved in a file; no code in it is executed.

        Parameters
        ----------
        filepath : str or path-like
            The file.

        Returns
        -------
        SdvSynthesizer
            Fitted; it has no ledger.
        """
        described = read_generator(filepath)[0].get("sdv")
        if not isinstance(described, dict) or described.keys() != _KEYS_IN_FILE:
            raise ValueError("the file does not hold an SdvSynthesizer.")
        name = described.pop("name")
        generator = DPSinkhornGenerator.load(filepath)
        loaded = cls(described, generator.epsilon, schema=generator.schema)
        loaded.generator, loaded._name = generator, name
        return loaded

    def __getstate__(self) -> dict[str, Any]:
        # Ranges and values that SDV detected are private.
        public = self._public_metadata()
        return vars(self) | {"_metadata": public, "_described": public}

    def _public_metadata(self) -> dict[str, Any]:
        columns = {
            name: {key: value for key, value in column.items() if key in _PUBLIC_KEYS}
            for name, column in self._described["columns"].items()
        }
        return {"columns": columns, "primary_key": self._described["primary_key"]}

    def _as_given(self, table: Any) -> Any:
        return table if self._name is None else {self._name: table}


def _read_metadata(metadata: Any) -> dict[str, Any]:
    """Return the columns of one table of metadata, and its primary key, or raise."""
    described = metadata.to_dict() if hasattr(metadata, "to_dict") else metadata
    if isinstance(described, Mapping) and isinstance(described.get("tables"), Mapping):
        if len(described["tables"]) != 1:
            raise ValueError(f"metadata must be of one table, got {len(described['tables'])}.")
        [described] = described["tables"].values()
    columns = described.get("columns") if isinstance(described, Mapping) else None
    if not isinstance(columns, Mapping) or not all(
        isinstance(column, Mapping) and "sdtype" in column for column in columns.values()
    ):
        raise ValueError(
            "metadata must be an SDV Metadata object, or what its to_dict() returns: "
            '{"columns": {name: {"sdtype": ...}, ...}}.'
        )
    return {"columns": dict(columns), "primary_key": described.get("primary_key")}


def _declarations(
    table: Mapping[str, Any], schema: dict[Any, Any], ranges_are_public: bool
) -> dict[Any, Any]:
    """Return the declaration of every column, or raise and name all undeclared ones."""
    columns, declared = table["columns"], {}
    unknown = [name for name in schema if name not in columns]
    if unknown:
        raise ValueError(f"schema has columns that the metadata do not have: {unknown}.")
    undeclared: dict[Any, str] = {}
    for name, column in columns.items():
        if name in schema:
            declared[name] = schema[name]
        elif name == table["primary_key"]:
            declared[name] = {"identifier": True}
        else:
            found = _declaration(column, ranges_are_public)
            if isinstance(found, str):
                undeclared[name] = found
            declared[name] = found
    if undeclared:
        said = "; ".join(f"{name!r}: {wanted}" for name, wanted in undeclared.items())
        detected = any("range_" in key for name in undeclared for key in columns[name])
        raise ValueError(
            f"declare in schema what is publicly known of these columns: {said}. "
            f"{_ABOUT_RANGES if detected else 'It may not be learned from the private table.'}"
        )
    return declared


def _with_dates(table: Any, columns: Mapping[str, Any]) -> Any:
    """Return a table in which text in the format of the metadata is dates, or raise."""
    if container_of(table) != "pandas":
        return table
    import pandas

    dates = {
        name: without_quotes(
            partial(pandas.to_datetime, table[name], format=column["datetime_format"]),
            f"column {name!r} has dates that are not in the format of the metadata, "
            f"{column['datetime_format']!r}.",
        )
        for name, column in columns.items()
        if column.get("datetime_format") and name in table.columns
    }
    return table.assign(**dates)


def _declaration(column: Mapping[str, Any], ranges_are_public: bool) -> Any:
    """Return a column's declaration from its metadata, or else a text: what must be declared."""
    kind = column["sdtype"]
    missing = {"missing": True} if ranges_are_public and column.get("range_is_nullable") else {}
    if kind == _BOOLEAN:
        return {"categories": [False, True], **missing}
    if kind in _LABELLED:
        ordered = kind == "ordinal" or "order" in column
        values = column.get("order", column.get("range_values") if ranges_are_public else None)
        if not isinstance(values, Iterable) or isinstance(values, str | Mapping):
            return "levels, in order" if ordered else "a list of categories"
        return {"levels" if ordered else "categories": list(values), **missing}
    if kind in (_NUMERICAL, _DATETIME):
        bounds = [column.get(f"range_{end}") for end in ("min", "max")]
        if not ranges_are_public or None in bounds:
            what = "the first and the last date" if kind == _DATETIME else "bounds"
            return f"{what}, as (low, high)"
        stored = str(column.get("computer_representation", "")).lstrip("U")
        is_whole = stored.startswith("Int") or column.get("decimal_places") == 0
        integer = {"integer": True} if is_whole and kind == _NUMERICAL else {}
        return {"bounds": bounds, **integer, **missing}
    # All other types identify a person or a thing, so nothing is learned from them.
    return {"identifier": True if kind == "id" else f"{kind}-{{}}"}
