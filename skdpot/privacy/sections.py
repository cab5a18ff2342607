"""Reports in titled sections, as text, in notebooks, and in files."""

import json
import os
import textwrap
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

_STYLE = (
    "body{font-family:sans-serif;max-width:60em;margin:2em auto}"
    "td,th{text-align:left;padding:.1em .8em .1em 0;vertical-align:top}"
)


class Section(NamedTuple):
    """A title, paragraphs, and a table, whose first row may name its columns."""

    title: str
    paragraphs: Sequence[str]
    table: Sequence[Sequence[str]] = ()
    has_header: bool = True


class Report(ABC):
    """A report: ``print`` it, end a notebook cell with it, or `save` it."""

    # Most characters of a line of a paragraph.
    _width = 1 << 30

    @abstractmethod
    def _sections(self) -> Iterable[Section]:
        """Return the sections; the title of the first one is that of the report."""

    @abstractmethod
    def _for_json(self) -> Any:
        """Return the report as values for JSON."""

    def __str__(self) -> str:
        lines: list[str] = []
        for section in self._sections():
            lines += [section.title, "-" * len(section.title)]
            for paragraph in section.paragraphs:
                lines += textwrap.wrap(paragraph, self._width)
            lines += [*_in_columns(section.table), ""]
        return "\n".join(lines).rstrip()

    def _repr_html_(self) -> str:
        return "".join(_as_html(section) for section in self._sections())

    def to_html(self) -> str:
        """Return the report as a page."""
        title = next(iter(self._sections())).title
        return (
            "<!DOCTYPE html>\n<html lang='en'><head><meta charset='utf-8'>"
            f"<title>{escape(title)}</title><style>{_STYLE}</style></head>"
            f"<body>{self._repr_html_()}</body></html>\n"
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the report to a file.

        Parameters
        ----------
        path : str or Path
            Ends with ".txt", ".html" or ".json".

        Raises
        ------
        ValueError
            If the path has another ending.
        """
        path = Path(path)
        if path.suffix == ".txt":
            text = f"{self}\n"
        elif path.suffix == ".html":
            text = self.to_html()
        elif path.suffix == ".json":
            text = json.dumps(self._for_json(), indent=1, allow_nan=False)
        else:
            raise ValueError(f"path must end with .txt, .html or .json, got {path.name!r}.")
        path.write_text(text, encoding="utf-8")


def _in_columns(table: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in table
    ]


def _as_html(section: Section) -> str:
    said = "".join(f"<p>{escape(paragraph)}</p>" for paragraph in section.paragraphs)
    kinds = ["th" if section.has_header else "td"] + ["td"] * len(section.table)
    header, *rows = [
        "<tr>" + "".join(f"<{kind}>{escape(cell)}</{kind}>" for cell in row) + "</tr>"
        for row, kind in zip(section.table, kinds, strict=False)
    ] or [""]
    table = f"<table><thead>{header}</thead><tbody>{''.join(rows)}</tbody></table>"
    return f"<h3>{escape(section.title)}</h3>{said}" + (table if section.table else "")
