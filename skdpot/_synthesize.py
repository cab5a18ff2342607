"""Commands on files: synthetic tables, templates of schemas, and parts of several owners."""

import argparse
import json
import os
import sys
import warnings
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from skdpot.privacy import PrivacyLedger
from skdpot.tables import (
    NOMINAL,
    Column,
    TableSchema,
    read_header,
    read_schema,
    read_table_file,
    suffix_of,
    write_table_file,
)

_DONE, _FAILED, _INTERRUPTED = 0, 1, 130
_HOW_TO_DECLARE = (
    'It declares what each column may hold, from public knowledge: {"age": {"bounds": [18, 99], '
    '"integer": true}, "wage": {"bounds": [0, 100000]}, "region": ["north", "south"], "grade": '
    '{"levels": ["low", "high"], "missing": true}}'
)
_NOT_PRIVATE = (
    "--seed makes the run reproducible. Whoever guesses the seed can take the noise away: this is "
    "NOT private."
)


def main(arguments: Sequence[str]) -> int:
    """Run the command line, which begins with the name of the command; return the exit status.

    A command line that is wrong ends the process with 2.
    """
    options = _parser().parse_args(arguments)
    with warnings.catch_warnings():
        warnings.showwarning = lambda message, *_: _say(f"warning: {message}")
        try:
            return options.do(options)
        except (ArithmeticError, ImportError, MemoryError, OSError, RuntimeError, TypeError,
                ValueError) as error:  # fmt: skip
            _say(f"error: {error}", *getattr(error, "__notes__", ()))
            return _FAILED
        except KeyboardInterrupt as error:
            _say("interrupted.", *getattr(error, "__notes__", ()))
            return _INTERRUPTED


def _synthesize(options: argparse.Namespace) -> int:
    _check_together(options)
    from skdpot.generative import DPSinkhornGenerator

    if options.seed is not None:
        _say(f"warning: {_NOT_PRIVATE}")
    schema = _read_json(options.schema, options.data)
    declared = read_schema(schema, options.target)
    if not options.preview:
        _check_places(options)
    generator = DPSinkhornGenerator(
        epsilon=options.epsilon, delta=options.delta, schema=schema, target=options.target,
        neighbouring=options.neighbouring, ledger=_open_ledger(options),
        random_state=options.seed, verbose=1,
    )  # fmt: skip
    n_records = options.records or options.rows or options.people
    preview = generator.preview(n_records, groups=options.groups)
    guessed = f"{n_records} {'records' if options.groups is None else 'people'}"
    print(f"{preview}\nErrors are those of {guessed} (--records).", flush=True)
    if preview.refusal is not None:
        raise ValueError(
            f"{preview.refusal} If the table has more than {guessed}, say so: --records."
        )
    if options.preview:
        return _DONE
    table, groups = _read_table(options.data, declared, options.groups, options.leave_out_others)
    generator.fit(table, groups=groups)
    if options.save is not None:
        generator.save(options.save)
    names = [column.name for column in declared.declared]
    if options.people is None:
        made, said = generator.sample(options.rows), f"{options.rows} synthetic records"
        if options.groups is not None:
            said += ", each of another person (--people makes whole people)"
    else:
        made = generator.sample(n_users=options.people)
        said = f"{options.people} synthetic people with {len(made)} records"
        names = [options.groups, *names]
    # Nobody shall take a part of a table for all of it.
    draft = options.out.with_name(f".unfinished-{options.out.name}")
    write_table_file(draft, made.set_axis(names, axis=1))
    os.replace(draft, options.out)
    if options.report is not None:
        generator.quality().save(options.report)
    print(f"{said}: {options.out}\n{generator.privacy_guarantee_}")
    return _DONE


def _template(options: argparse.Namespace) -> int:
    from skdpot.generative import schema_template

    schema_template(read_header(options.data), options.out)
    print(f"Schema to be filled in: {options.out}. No value of the table was looked at.")
    if suffix_of(options.data) == ".csv":
        print("The first line is taken for the names of the columns.")
        print('Types of a CSV file are not known. Where a column has no categories, write instead '
              '{"bounds": [low, high]} for numbers, also with "integer": true for whole ones, and '
              '{"bounds": ["2020-01-01", "2024-12-31"]} for dates.')  # fmt: skip
    print('Categories in an order have "levels" instead of "categories", and identifiers have '
          '{"identifier": true}. Free text cannot be learned: delete it here, and pass '
          "--leave-out-others.")  # fmt: skip
    return _DONE


def _part(options: argparse.Namespace) -> int:
    from skdpot.parts import Agreement, make_part

    agreement = Agreement.load(options.agreement)
    frame = _frame_of(options.data)
    labels = None if options.labels is None else frame.pop(options.labels)
    ledger: Any = _open_ledger(options)
    make_part(agreement, options.owner, frame, labels, ledger=ledger, path=options.out,
              again=options.again)  # fmt: skip
    print(f"part of {options.owner} for agreement {agreement.digest[:16]}: {options.out}")
    return _DONE


def _combine(options: argparse.Namespace) -> int:
    from skdpot.parts import add_parts

    fitted = add_parts(options.parts, path=options.out)
    print(f"sum of {len(options.parts)} parts: {options.out}\n{fitted.privacy_guarantee_}")
    return _DONE


def _frame_of(path: Path) -> Any:
    """Return a private file as a data frame; texts that are numbers are read as numbers."""
    import pandas as pd

    if suffix_of(path) == ".parquet":
        return pd.read_parquet(path)
    # Types are found value by value: one value must not change the type of a column.
    return pd.read_csv(path, dtype=object).map(_number_or_text)


def _number_or_text(text: Any) -> Any:
    for kind in (int, float):
        with suppress(ValueError, TypeError, OverflowError):
            return kind(text)
    return text


def _read_table(
    path: Path, declared: TableSchema, groups: str | None, may_have_others: bool
) -> tuple[Any, Any]:
    """Return the declared columns of a private file, and the person of each row if declared."""
    person = [] if groups is None else [Column(groups, NOMINAL, missing=True)]
    table = read_table_file(path, [*declared.columns, *person])
    names = [column.name for column in declared.declared]
    if groups is not None and groups not in table:
        raise ValueError(f"the table lacks the columns {[groups]}, which names people.")
    others = [name for name in table.columns if name not in (*names, groups)]
    # A first line that has all names of the schema consists of names, and not of private values.
    if others and not may_have_others and set(declared.names) <= set(table.columns):
        raise ValueError(
            f"the table has columns that the schema does not declare: {others}. Declare them, or "
            "leave them out with --leave-out-others."
        )
    people = None if groups is None else table.pop(groups)
    table = table.drop(columns=others)
    for name in set(names) - set(declared.names) - set(table.columns):
        # What is not learned, such as identifiers, need not be there.
        table[name] = None
    return table, people


def _open_ledger(options: argparse.Namespace) -> PrivacyLedger | None:
    """Return the ledger of a command line, created if a budget is given; or raise."""
    path = options.ledger
    if path is None:
        if options.budget is not None:
            raise ValueError("--budget is that of a ledger: name its file with --ledger.")
        return None
    if path.exists():
        if options.budget is not None:
            raise ValueError(f"{path} exists and has a budget: leave out --budget.")
        return PrivacyLedger.open(path)
    if options.budget is None:
        raise ValueError(
            f"there is no ledger {str(path)!r}. To create it, say what may be spent in all: "
            f"--budget EPSILON DELTA, such as --budget 3 1e-5."
        )
    relation = "add_remove" if options.neighbouring == "auto" else options.neighbouring
    place = None if options.preview else path
    return PrivacyLedger(*options.budget, path=place, neighbouring=relation)


def _read_json(path: Path, data: Path) -> Any:
    """Return the schema in a file, or raise."""
    if not path.exists():
        raise ValueError(
            f"there is no schema {str(path)!r}. {_HOW_TO_DECLARE}. "
            f"`python -m skdpot template {data} "
            f"--out {path}` writes one to be filled in."
        )
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        # It names the line, and quotes no more than a character of a public file.
        raise ValueError(f"{path} is not JSON: {error}. {_HOW_TO_DECLARE}.") from None


def _check_places(options: argparse.Namespace) -> None:
    """Raise if a result could not be written, before anything is charged."""
    for path in (options.data, options.out):
        suffix_of(path)
    if not options.data.is_file():
        raise ValueError(f"there is no file {str(options.data)!r}.")
    if options.report is not None and options.report.suffix not in (".txt", ".html", ".json"):
        raise ValueError(f"{options.report} must end with .txt, .html or .json.")
    for path in filter(None, (options.out, options.save, options.report)):
        if path.resolve() in (options.data.resolve(), options.schema.resolve()):
            raise ValueError(f"{path} is what is read; it is not replaced.")
        if path.exists() and not options.force:
            raise ValueError(f"{path} exists: --force replaces it.")
        if path.is_dir() or not os.access(path.parent, os.W_OK):
            raise ValueError(f"{path} cannot be written.")


def _say(*lines: str) -> None:
    for line in lines:
        print(f"skdpot: {line}", file=sys.stderr)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m skdpot")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    part = commands.add_parser(
        "part",
        help="release an owner's part of sums of several owners",
        description="Release an owner's part, charged to her ledger. The file may be published.",
    )
    part.set_defaults(do=_part, neighbouring="replace_one", preview=False)
    part.add_argument("data", type=Path, help="her private rows: .csv or .parquet")
    part.add_argument("--agreement", type=Path, required=True, metavar="JSON",
        help="the file of the agreement, the same for all owners")  # fmt: skip
    part.add_argument("--owner", required=True, metavar="NAME", help="her name in the agreement")
    part.add_argument("--labels", metavar="COLUMN",
        help="column with the group of each row, if it is no column of the agreement")  # fmt: skip
    part.add_argument("--ledger", type=Path, required=True, metavar="FILE", help="her own ledger")
    part.add_argument("--budget", type=_positive, nargs=2, metavar=("EPSILON", "DELTA"),
        help="create the ledger, with this budget")  # fmt: skip
    part.add_argument("--again", action="store_true",
        help="release another part after one was released: charged")  # fmt: skip
    part.add_argument("--out", type=Path, required=True, metavar="FILE", help="the part")
    sums = commands.add_parser(
        "combine",
        help="add up the parts of all owners",
        description="Add up the parts of all owners. skdpot.parts.add_parts([FILE]) is the fitted "
        "estimator.",
    )
    sums.set_defaults(do=_combine)
    sums.add_argument("parts", type=Path, nargs="+", help="the parts, one of each owner")
    sums.add_argument("--out", type=Path, required=True, metavar="FILE", help="the sum, .npz")
    made = commands.add_parser(
        "synthesize",
        help="make a synthetic table from a private one",
        description="Make a synthetic table from a private one, with differential privacy for "
        "every row. First shows the price and the expected errors.",
    )
    made.set_defaults(do=_synthesize, error=made.error)
    add = made.add_argument
    add("data", type=Path, help="the private table: .csv, or .parquet with pyarrow")
    add(
        "--schema",
        type=Path,
        required=True,
        metavar="JSON",
        help="possible values of the columns; public",
    )
    add("--leave-out-others", action="store_true",
        help="leave out columns of the table that the schema does not declare; without this "
        "option they are refused")  # fmt: skip
    add("--epsilon", type=_positive, required=True, help="privacy budget to spend; no default")
    add("--delta", type=_positive, default=1e-5, help="far below 1 / rows (default: %(default)s)")
    add("--rows", type=_count, metavar="N",
        help="number of rows to draw: a round number. With --groups, each is from another "
        "person")  # fmt: skip
    add("--out", type=Path, metavar="FILE", help="the synthetic table: .csv or .parquet")
    add("--groups", metavar="COLUMN",
        help="column with the person of each row; then people are protected")  # fmt: skip
    add("--people", type=_count, metavar="N",
        help="with --groups, instead of --rows: number of people to draw, each with all of "
        "their rows")  # fmt: skip
    add("--target", metavar="COLUMN", help="column that models will predict")
    add("--ledger", type=Path, metavar="FILE", help="ledger to charge")
    add("--budget", type=_positive, nargs=2, metavar=("EPSILON", "DELTA"),
        help="create the ledger, with this budget")  # fmt: skip
    add("--neighbouring", default="auto", choices=("auto", "add_remove", "replace_one"),
        help="neighbouring relation (default: that of the ledger, or add_remove)")  # fmt: skip
    add("--save", type=Path, metavar="FILE",
        help="save the fitted generator; you may publish it, too")  # fmt: skip
    add("--report", type=Path, metavar="FILE",
        help="write a quality report on the synthetic table: .txt, .html or .json")  # fmt: skip
    add("--preview", action="store_true", help="only show price and expected errors")
    add("--records", type=_count, metavar="N",
        help="public guess of the number of rows (with --groups, of people), for the expected "
        "errors (default: --rows or --people)")  # fmt: skip
    add("--force", action="store_true", help="replace existing files")
    add("--seed", type=int, metavar="N", help="for tests only: the release is NOT private")
    made = commands.add_parser(
        "template",
        help="write a schema to fill in",
        description="Write a schema with the columns of a table, to be filled in from public "
        "knowledge. No value is read: the first line of a .csv file must contain the names of "
        "the columns.",
    )
    made.set_defaults(do=_template)
    made.add_argument("data", type=Path, help="the private table: .csv or .parquet")
    made.add_argument("--out", type=Path, required=True, metavar="JSON", help="must not exist")
    return parser


def _check_together(options: argparse.Namespace) -> None:
    """End the process if options of `_synthesize` contradict each other."""
    n_made = options.rows or options.people
    if options.preview and not (options.records or n_made):
        options.error("--preview needs --records: a public guess of the rows of the table")
    if not options.preview and (n_made is None or options.out is None):
        options.error("--rows (or --people) and --out are required, but with --preview")
    if options.people and (options.rows or options.groups is None):
        options.error("--people is for --groups, in the place of --rows")


def _positive(text: str) -> float:
    number = float(text)
    if not 0 < number < float("inf"):
        raise ValueError
    return number


def _count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError
    return number
