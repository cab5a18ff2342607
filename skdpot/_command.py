"""Commands of ``python -m skdpot``: a demo, and releases of files without any Python."""

import argparse
import json
import os
import sys
import tempfile
import time
import warnings
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from skdpot import __version__
from skdpot.privacy import PrivacyLedger, Receipt
from skdpot.privacy.checks import check_memory, draft_of

_STATUS = (
    "Exit status: 0 if all is done; 1 if it failed and nothing was charged; 2 if the command line "
    "is wrong; 3 if it failed after a charge, and says what is kept; 130 if it was interrupted."
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command that the first argument names, and return the exit status."""
    options = _parser().parse_args(arguments)
    # Only private values tell whether it is needed.
    is_open = getattr(options, "decimal", "") is None and options.sep == ";"
    hint = ["numbers are read with a decimal point; for such as 12,5 add --decimal ,"] * is_open
    options.decimal = getattr(options, "decimal", None) or "."
    _say(*hint)
    with warnings.catch_warnings():
        # A warning's line of code says nothing to somebody in a shell.
        warnings.showwarning = lambda message, *_: _say(f"warning: {message}", *hint)
        try:
            options.do(options)
        except Exception as error:
            # The options of a command line stand for arguments of Python.
            text = str(error).replace("again=True", "--again").replace("pass sep=", "pass --sep ")
            text = text.replace("pass a smaller delta", "give a smaller --delta")
            text = text.replace("pass labels", "name their column by --labels")
            text = text.replace("pass another encoding", "name it by --encoding")
            # They say that the ledger was charged.
            notes = getattr(error, "__notes__", ())
            _say(f"error: {text or type(error).__name__}", *notes, *(hint if notes else ()))
            return 3 if notes else 1
        except KeyboardInterrupt as error:
            _say("interrupted.", *getattr(error, "__notes__", ()))
            # What shells return for an interrupted command.
            return 130
    return 0


def _demo(options: argparse.Namespace) -> None:
    """Release a distance and synthetic rows of simulated customers, and show what was spent."""
    from skdpot import DPSinkhornGenerator, PrivateSinkhornDistance

    rng = np.random.default_rng(0)
    # Enough records that the demo's numbers are clear of noise.
    year = np.repeat([2024, 2025], 3000)
    age = np.clip(np.round(rng.normal(np.where(year == 2024, 40, 46), 9)), 18, 90)
    table = np.column_stack([age, age > 60])
    ledger = PrivacyLedger(epsilon=3.0, delta=1e-5)
    drift = PrivateSinkhornDistance(1.0, bounds=(18, 90), metric="euclidean", ledger=ledger)
    drift.fit(age[:, None], year)
    schema = {"age": range(18, 91), "is retired": [0, 1]}
    people = DPSinkhornGenerator(2.0, schema=schema, ledger=ledger).fit(table)
    print(
        f"Ages of {len(age):,} simulated customers rose by about 6 years from 2024 to 2025.\n"
        f"Released distance between the years, epsilon = 1: {drift.distance_:.2f} years\n"
        f"Released rows, epsilon = 2: {', '.join(schema)}\n{people.sample(5).astype(int)}\n"
        f"The ledger has charged epsilon = {ledger.spent()[0]:.2f} of {ledger.epsilon:g}, before "
        "each release."
    )


def _show_ledger(options: argparse.Namespace) -> None:
    told: Any
    key = options.key and options.key.read_bytes()
    if options.out is not None and options.what != "backup":
        options.error("--out is that of a backup")
    ledger = PrivacyLedger.open(options.ledger, after=options.after, key=key)
    if options.what == "backup":
        copy = options.out or options.ledger.with_name(f"{options.ledger.name}.backup")
        _check_new(copy)
        ledger.backup(copy)
        told, said = {"backup": str(copy)}, f"Backup: {copy}"
    elif options.what == "receipt":
        told = asdict(ledger.receipt())
        said = json.dumps(told)
    else:
        report = ledger.report()
        told, said = report.as_dict(), str(report)
        if options.what == "charges":
            told, said = told["charges"], "\n".join(map(_line, report.entries))
    print(json.dumps(told, indent=1) if options.json else said)


def _line(entry: Any) -> str:
    cost = "priced by its noise" if entry.pair is None else _pair(entry.pair)
    state = "" if entry.released else "  charged, not released"
    return f"{entry.number}  {entry.time}  per {entry.unit}  {entry.label}  {cost}{state}"


def _warm(options: argparse.Namespace) -> None:
    """Compile all kernels, or load their machine code, by small runs on simulated data."""
    from skdpot import FairBarycenterPreprocessor, PrivateADMMTransport, transport
    from skdpot.fairness import FreeSupport
    from skdpot.published import PrivateMessageADMM
    from skdpot.transport.barycenter import candidate_barycenter
    from skdpot.transport.kernels import compiled_at_once

    # Small arrays: kernels are compiled for types, whatever their sizes.
    rng, start = np.random.default_rng(0), time.perf_counter()
    n_points = 40
    base, weights = np.full(n_points, 0.5 / n_points), np.ones((1, n_points))
    points, masses = rng.random((n_points, 2)), rng.dirichlet(np.ones(n_points))
    equal, cost = np.full(n_points, 1 / n_points), np.abs(points[:, :1] - points[:, 1])
    groups = np.repeat(["a", "b"], n_points // 2)
    worth, bounds = rng.random((6, 4)), {"target_bounds": (0, 5), "source_bounds": (0, 5)}
    with compiled_at_once():
        for solver in ("exact", "entropic"):
            projector = transport.Projector(cost, base, 1.0, solver=solver)
            projector.project(transport.normalise_rows(weights))
        transport.clip_to_polytope(transport.kl_projection(weights, base, 1.0), base, 1.0)
        transport.exact_transport(cost, masses, equal)
        of_points = transport.PointCosts(points, points, squared=True, high=2.0)
        for costs in (transport.MatrixCosts(cost), of_points):
            transport.entropic_transport(costs, masses, equal, reg=0.1, tol=1e-3)
        candidate_barycenter([cost[:20], cost[20:]], [0.5, 0.5], 5, candidates=points)
        fair = FairBarycenterPreprocessor(method=FreeSupport())
        fair.fit(points, sensitive_features=groups)
        PrivateADMMTransport(epsilon=None, **bounds).fit(worth)
        for utility in ("linear", "quadratic", "log"):
            PrivateMessageADMM(10.0, utility=utility, utility_bounds=(0, 1), **bounds).fit(worth)
    print(f"All kernels are compiled and cached ({time.perf_counter() - start:.1f} s).")


def _synthesize(options: argparse.Namespace) -> None:
    from skdpot import DPSinkhornGenerator, tables
    from skdpot.tables import suffix_of, write_table_file

    if not options.preview and (options.rows is None or options.out is None):
        options.error("--rows and --out are required, but with --preview")
    # The number of rows of the table is private: errors are shown for a public guess.
    n_records = options.records or options.rows
    if n_records is None:
        options.error("--preview needs --records: a public guess of the rows of the table")
    header = None
    if options.schema == "auto":
        # No type of a file is used: each column may have numbers or text.
        header = tables.read_header(options.data, options.sep, options.encoding).astype(object)
        columns = [tables.Column(name, tables.NUMERIC) for name in header]
        declared = tables.TableSchema(tuple(columns))
    else:
        declared = tables.read_schema(options.schema, options.target)
    if options.na and header is None and not any(column.missing for column in declared.declared):
        raise ValueError('--na says what is missing, and no column declares "missing": true.')
    if not options.preview:
        # At least: a number or a reference, and what draws it.
        n_cells = 50.0 * options.rows * len(declared.columns)
        check_memory(n_cells, f"a table of {options.rows:,} rows", "Draw fewer --rows.")
        for path in (options.data, options.out):
            suffix_of(path)
        if not options.data.is_file():
            raise ValueError(f"there is no file {str(options.data)!r}.")
        kept = options.save or options.out.with_name(f"{options.out.name}.npz")
        _check_new(options.out, kept, options.report, beside=options.ledger)
        if options.report is not None and options.report.suffix not in (".txt", ".html", ".json"):
            raise ValueError(f"{options.report} must end with .txt, .html or .json.")
    own = {"delta": options.delta, "target": options.target, "ledger": _open_ledger(options, None)}
    generator = DPSinkhornGenerator(options.epsilon, schema=options.schema, **own)
    preview = generator.preview(n_records, header, groups=options.groups)
    units = "records" if options.groups is None else "people"
    guessed = f"{n_records} {units}"
    # Shown before the table is read, and whatever is in it.
    print(f"{preview}\nErrors are those of {guessed} (--records).", flush=True)
    if preview.refusal is not None:
        raise ValueError(f"{preview.refusal} If the table has more than {guessed}: --records.")
    if options.preview:
        return
    table, groups = _read_table(options, declared)
    ledger = generator.ledger = _open_ledger(options, options.ledger)
    generator.fit(table, groups=groups)
    # The budget is spent: whatever happens now, the release is kept, and rows can be drawn from it.
    said = "The budget is spent, and the release could not be saved."
    try:
        place = _kept(generator, kept)
        load = f"DPSinkhornGenerator.load({str(place)!r}).sample({options.rows})"
        said = f"The budget is spent. The release is in {place}: {load} draws rows at no cost."
        names = [column.name for column in declared.declared]
        if options.groups is None:
            made, about = generator.sample(options.rows), f"{options.rows} synthetic records"
        else:
            made = generator.sample(n_users=options.rows)
            about = f"{options.rows} synthetic people with {len(made)} records"
            names = [options.groups, *names]
        # Nobody shall take a part of a table for all of it.
        with draft_of(options.out) as draft:
            write_table_file(draft, made.set_axis(names, axis=1))
        if options.report is not None:
            generator.quality().save(options.report)
        print(f"{about}: {options.out}\nFitted release: {place}\n{generator.privacy_guarantee_}")
        print(f"The release counts about {max(round(generator.n_records_), 1):,} {units}. If there "
              "are many more, they have values that are not as declared.")  # fmt: skip
        if ledger is None:
            print("No ledger was charged: --ledger FILE keeps count of what is spent.")
        else:
            print(
                f"Charged: {_pair((options.epsilon, options.delta))}. Spent in all: "
                f"{_pair(ledger.spent())}. Left: {_pair(ledger.remaining())}.\nReceipt, to be kept "
                f"away from the ledger: {json.dumps(asdict(ledger.receipt()))}"
            )
        if place != kept:
            raise OSError(f"{kept} could not be written.")
    except BaseException as error:
        error.add_note(said)
        raise


def _kept(generator: Any, path: Path) -> Path:
    """Save a fitted generator, in another folder if it cannot be saved here; return where."""
    try:
        generator.save(path)
    except OSError:
        path = Path(tempfile.mkdtemp(prefix="skdpot-")) / path.name
        generator.save(path)
    return path


def _pair(pair: tuple[float, float]) -> str:
    return f"epsilon {pair[0]:.6g} and delta {pair[1]:.3g}"


def _template(options: argparse.Namespace) -> None:
    from skdpot.generative import schema_template
    from skdpot.tables import read_header, suffix_of

    _check_new(options.out)
    # Only names and types: a value in the schema would be published with it.
    schema_template(read_header(options.data, options.sep, options.encoding), options.out)
    print(f"Schema to be filled in: {options.out}. No value of the table was looked at.")
    if suffix_of(options.data) == ".csv":
        print("The first line is taken for the names of the columns.")
        print('Types of a CSV file are not known. Where a column has no categories, write instead '
              '{"bounds": [low, high]} for numbers, also with "integer": true for whole ones, and '
              '{"bounds": ["2020-01-01", "2024-12-31"]} for dates.')  # fmt: skip
    print('Categories in an order have "levels" instead of "categories". Identifiers and free text '
          "cannot be learned: delete them here.")  # fmt: skip


def _part(options: argparse.Namespace) -> None:
    from skdpot.parts import Agreement, make_part
    from skdpot.tables import number_in_file, read_table_file

    _check_new(options.out, beside=options.ledger)
    agreement = Agreement.load(options.agreement)
    # Before the ledger is created: a mistyped name shall leave no file.
    if options.owner not in agreement.owners:
        raise ValueError(f"{options.owner!r} is no owner; they are {list(agreement.owners)}.")
    frame = read_table_file(options.data, (), **_reading(options))
    # Types are found value by value: one value must not change the type of a column.
    frame = frame.map(partial(number_in_file, decimal=options.decimal, missing=options.na))
    if options.labels is not None and options.labels not in frame:
        raise ValueError(f"--labels {options.labels!r} is not a column; they are {list(frame)}.")
    # The group of each row is not a column of what is released.
    labels = None if options.labels is None else frame.pop(options.labels)
    if not options.ledger.exists():
        agreement._planned()[1].charge_to(_open_ledger(options, None))
    ledger: Any = _open_ledger(options, options.ledger)
    path, again = options.out, options.again
    make_part(agreement, options.owner, frame, labels, ledger=ledger, path=path, again=again)
    print(f"part of {options.owner} for agreement {agreement.digest[:16]}: {options.out}")


def _combine(options: argparse.Namespace) -> None:
    from skdpot.parts import add_parts

    _check_new(options.out)
    fitted = add_parts(options.parts, path=options.out)
    print(f"sum of {len(options.parts)} parts: {options.out}\n{fitted.privacy_guarantee_}")


def _reading(options: argparse.Namespace) -> dict[str, Any]:
    return {name: getattr(options, name) for name in ("sep", "decimal", "encoding", "na")}


def _read_table(options: argparse.Namespace, declared: Any) -> tuple[Any, Any]:
    """Return the declared columns of a private file, and the person of each row if declared."""
    from skdpot.tables import NOMINAL, Column, read_table_file

    groups = options.groups
    person = [] if groups is None else [Column(groups, NOMINAL, missing=True)]
    table = read_table_file(options.data, [*declared.columns, *person], **_reading(options))
    if groups is not None and (groups not in table or groups in declared.names):
        raise ValueError(f"--groups {groups!r} must be a column of the table, not of the schema.")
    people = None if groups is None else table.pop(groups)
    others = [name for name in table.columns if name not in declared.names]
    # A first line that has all names of the schema consists of names, and not of private values.
    if others and set(declared.names) <= set(table.columns):
        _say(f"the schema does not declare the columns {others}: they are left out.")
    return table.drop(columns=others), people


def _open_ledger(options: argparse.Namespace, new: Path | None) -> PrivacyLedger | None:
    """Return the ledger of a command line, or a new one with its budget; or raise.

    Without a path the new one is in a temporary file: nothing is left behind by what is refused.
    """
    path, key = options.ledger, options.key and options.key.read_bytes()
    if path is None:
        if options.budget or key or options.neighbouring:
            raise ValueError("--budget, --key and --neighbouring are of a ledger: add --ledger.")
        return None
    if path.exists():
        if given := [f"--{each}" for each in ("budget", "neighbouring") if getattr(options, each)]:
            raise ValueError(f"{path} exists, and has its own: leave out {' and '.join(given)}.")
        return PrivacyLedger.open(path, key=key)
    if options.budget is None:
        raise ValueError(
            f"there is no ledger {str(path)!r}. To create it, say what may be spent in all: "
            f"--budget EPSILON DELTA, such as --budget 3 1e-5."
        )
    relation = options.neighbouring or options.relation
    return PrivacyLedger(*options.budget, path=new, key=key, neighbouring=relation)


def _check_new(*paths: Path | None, beside: Path | None = None) -> None:
    """Raise if a result could not be written, or would replace a file; nothing is charged yet."""
    named = [path.resolve() for path in (*paths, beside) if path is not None]
    if len(set(named)) < len(named):
        raise ValueError("two of the files have the same name: name another one.")
    for path in filter(None, paths):
        # So no result replaces what is read, a ledger, or an earlier release.
        if path.exists():
            kept = " DPSinkhornGenerator.load draws from what it keeps." * (path.suffix == ".npz")
            raise ValueError(f"{path} exists, and is not replaced: name another file.{kept}")
        # SQLite would take the last two for its own, and lose charges.
        if path.name.endswith((".key", "-wal", "-shm")):
            raise ValueError(f"{path} has the name of a ledger's file: name another one.")
        if not os.access(path.parent, os.W_OK):
            raise ValueError(f"{path} cannot be written.")


def _say(*lines: str) -> None:
    for line in lines:
        print(f"skdpot: {line}", file=sys.stderr)


def _positive(text: str, kind: type = float, what: str = "number above 0") -> Any:
    with suppress(ValueError):
        if 0 < kind(text) < float("inf"):
            return kind(text)
    raise argparse.ArgumentTypeError(f"{text!r} is not a {what}.")


def receipt(text: str) -> Receipt:
    """Return a receipt from its JSON; argparse calls a wrong one by the name of this function."""
    return Receipt(**json.loads(text))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m skdpot", epilog=_STATUS)
    parser.add_argument("--version", action="version", version=f"skdpot {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(do: Any, name: str, about: str, **defaults: Any) -> Any:
        # `error` ends the process with the usage of this command.
        made = commands.add_parser(name, help=about, description=about, epilog=_STATUS)
        made.set_defaults(do=do, error=made.error, **defaults)
        return made.add_argument

    file: dict[str, Any] = {"type": Path, "metavar": "FILE"}
    count = partial(_positive, kind=int, what="number of rows")
    # Laplace noise needs no delta.
    amount = {"type": lambda text: 0.0 if text in ("0", "0.0") else _positive(text)}
    budget: dict[str, Any] = {**amount, "nargs": 2, "metavar": ("EPSILON", "DELTA")}
    budget["help"] = "create the ledger, with this budget"
    key: dict[str, Any] = {**file, "help": "file with the key of the ledger, if it has one"}
    command(_demo, "demo", "release a number and rows of simulated data, in seconds")
    command(_warm, "warm", "compile and cache all kernels, so that first calls need not wait")

    def add_reading(add: Any) -> None:
        add("--sep", type=lambda text: text.replace("\\t", "\t"), default=",", metavar="CHARACTER",
            help="separates the fields of a .csv file (default: a comma)")  # fmt: skip
        add("--decimal", choices=(".", ","), help="its decimal point (default: a point)")
        add("--encoding", default="utf-8-sig", help="its encoding (default: UTF-8)")
        add("--na", action="append", default=[], metavar="TEXT",
            help="a further text that stands for a missing value; may be repeated")  # fmt: skip

    add = command(_show_ledger, "ledger", "show or copy what a ledger has recorded")
    add("what", choices=("report", "charges", "receipt", "backup"), nargs="?", default="report",
        help="the report, the charges, the receipt of the last one, or a copy")  # fmt: skip
    add("ledger", **file)
    add("--key", **key)
    add("--json", action="store_true", help="print JSON")
    add("--out", **file, help="the copy, which must not exist (default: FILE.backup)")
    add("--after", type=receipt, metavar="RECEIPT",
        help="the newest receipt: a ledger that lacks its charge is refused")  # fmt: skip

    add = command(_template, "template", "write a schema of a table to be filled in from public "
                  "knowledge; no value is read, and the first line of a .csv file must contain the "
                  "names of the columns")  # fmt: skip
    add("data", type=Path, help="the private table: .csv or .parquet")
    add_reading(add)
    add("--out", type=Path, required=True, metavar="JSON", help="must not exist")

    add = command(_part, "part", "release an owner's part of sums of several owners, charged to "
                  "her ledger; the file may be published", neighbouring=None,
                  relation="replace_one")  # fmt: skip
    add("data", type=Path, help="her private rows: .csv or .parquet")
    add_reading(add)
    add("--agreement", type=Path, required=True, metavar="JSON",
        help="the file of the agreement, the same for all owners")  # fmt: skip
    add("--owner", required=True, metavar="NAME", help="her name in the agreement")
    add("--labels", metavar="COLUMN", help="column of each row's group, if not in the agreement")
    add("--ledger", **file, required=True, help="her own ledger")
    add("--key", **key)
    add("--budget", **budget)
    add("--again", action="store_true", help="release another part after one: charged")
    add("--out", **file, required=True, help="the part")

    add = command(_combine, "combine", "add up the parts of all owners; "
                  "skdpot.parts.add_parts([FILE]) is the fitted estimator")  # fmt: skip
    add("parts", type=Path, nargs="+", help="the parts, one of each owner")
    add("--out", **file, required=True, help="the sum, .npz")

    add = command(_synthesize, "synthesize", "make a synthetic table from a private one, with "
                  "differential privacy for every row; first shows the price and the expected "
                  "errors", relation="add_remove")  # fmt: skip
    add("data", type=Path, help="the private table: .csv or .csv.gz, or .parquet with pyarrow")
    add_reading(add)
    add("--schema", required=True, metavar="JSON",
        help="possible values of the columns, public; other columns are left out. 'auto' finds "
        "them with noise, for a tenth of the budget")  # fmt: skip
    add("--epsilon", type=_positive, required=True, help="privacy budget to spend; no default")
    add("--delta", type=_positive, default=1e-5, help="far below 1 / rows (default: %(default)s)")
    add("--rows", type=count, metavar="N",
        help="number of rows to draw: a round number. With --groups, of people, each with all of "
        "their rows")  # fmt: skip
    add("--out", **file, help="the synthetic table: .csv or .parquet")
    add("--groups", metavar="COLUMN",
        help="column with the person of each row; then people are protected")  # fmt: skip
    add("--target", metavar="COLUMN", help="column that models will predict")
    add("--ledger", **file, help="ledger to charge")
    add("--key", **key)
    add("--budget", **budget)
    add("--neighbouring", choices=("add_remove", "replace_one"),
        help="relation of a new ledger; samplers and distances need replace_one, which may double "
        "the noise here (default: add_remove)")  # fmt: skip
    add("--save", **file, help="the fitted generator; you may publish it, too (default: OUT.npz)")
    add("--report", **file,
        help="write a quality report on the synthetic table: .txt, .html or .json")  # fmt: skip
    add("--preview", action="store_true", help="only show price and expected errors")
    add("--records", type=count, metavar="N",
        help="public guess of the number of rows (with --groups, of people), for the expected "
        "errors (default: --rows)")  # fmt: skip
    return parser
