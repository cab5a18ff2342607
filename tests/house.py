"""Measures of the package's structure, each beside its limit: `python tests/house.py`."""

import ast
import collections
import importlib
import inspect
import io
import re
import sys
import tokenize
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

PROJECT = Path(__file__).parents[1]
PACKAGE = "skdpot"
# A number of records that no other array in a fit has.
N_RECORDS = 1009
# Code lines of each room. It may have a tenth more, and the whole package may not.
ROOMS = {
    "allocation": 450,
    "display": 480,
    "distance": 850,
    # A classifier, computed columns and couplings came for lines that parts did not need.
    "fairness": 3100,
    "generative": 5000,
    "model_selection": 480,
    "parts": 700,
    "privacy": 3500,
    "published": 900,
    "releases": 1050,
    "sampling": 850,
    "tables": 1300,
    "transport": 4600,
}
WHOLE = 24_000
ESTIMATOR_ROOMS = (
    "allocation", "distance", "fairness", "generative", "model_selection", "published", "sampling",
)  # fmt: skip


@dataclass(frozen=True)
class Measure:
    """A figure, the largest that is allowed, what it is made of, and the largest that is wanted.

    Where less is wanted than the code has, the limit keeps it from growing.
    """

    name: str
    value: int
    limit: int
    places: tuple[str, ...] = ()
    wanted: int | None = None

    @property
    def met(self):
        return self.value <= self.limit


def sources():
    """Return every module's path and syntax tree."""
    files = sorted((PROJECT / PACKAGE).rglob("*.py"))
    return {file: ast.parse(file.read_text()) for file in files}


def room_of(file):
    """Return the subpackage or module of the package that a file lies in."""
    return file.relative_to(PROJECT / PACKAGE).parts[0].removesuffix(".py")


def place(file, node):
    return f"{file.relative_to(PROJECT)}:{node.lineno}"


@cache
def code_lines(file, tree):
    """Return how many lines hold code: no docstrings, comments or blanks."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    in_docstrings = set()
    for node in ast.walk(tree):
        if isinstance(node, documented) and ast.get_docstring(node, clean=False) is not None:
            text = node.body[0]
            in_docstrings.update(range(text.lineno, text.end_lineno + 1))
    empty = {
        tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT,
        tokenize.ENDMARKER, tokenize.ENCODING,
    }  # fmt: skip
    lines = set()
    for token in tokenize.generate_tokens(io.StringIO(file.read_text()).readline):
        if token.type not in empty:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines - in_docstrings)


def measure_code_lines(trees):
    """Return the size of each room, and of the whole."""
    by_room = collections.Counter()
    for file, tree in trees.items():
        by_room[room_of(file)] += code_lines(file, tree)
    rooms = [
        Measure(f"code lines of {room}", by_room[room], 11 * wanted // 10, wanted=wanted)
        for room, wanted in ROOMS.items()
    ]
    return [*rooms, Measure("code lines", sum(by_room.values()), WHOLE)]


def measure_rituals(trees):
    """Return how many functions charge a ledger: each is a ritual of its own."""
    found = []
    for file, tree in trees.items():
        for node in ast.walk(tree):
            called = node.func if isinstance(node, ast.Call) else None
            # ReleasePlan.charge_to is the ritual; nothing else charges a ledger or an accountant.
            if isinstance(called, ast.Attribute) and called.attr in ("charge", "spend"):
                found.append(place(file, node))
    outside = [where for where in found if not where.startswith("skdpot/privacy/charging.py")]
    return Measure("release rituals", 1 + len(outside), 1, tuple(outside))


def imported(tree):
    """Return the nodes and dotted names of what a module imports."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield from ((node, f"{node.module}.{alias.name}") for alias in node.names)


def is_private(part):
    return part.startswith("_") and not part.startswith("__")


def measure_private_imports(trees):
    """Return imports of another room's private modules or names."""
    found = []
    for file, tree in trees.items():
        for node, name in imported(tree):
            package, room, *rest = [*name.split("."), "", ""][: name.count(".") + 1] + [""]
            foreign = package == PACKAGE and room and room != room_of(file)
            if foreign and any(is_private(part) for part in rest):
                found.append(f"{place(file, node)} {name}")
    return Measure("imports of another room's private modules", len(found), 0, tuple(found))


def measure_sensitivities(trees):
    """Return numbers outside of `privacy` that a noise's sensitivity is made of.

    A sensitivity is given to a mechanism as the keyword ``sensitivity``, ``l1`` or ``l2``; what
    computes it is a call of `skdpot.privacy.sensitivity`, or a name or attribute that holds its
    result.
    """
    found = []
    for file, tree in trees.items():
        if room_of(file) == "privacy":
            continue
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call):
                continue
            for keyword in node.keywords:
                if keyword.arg in ("sensitivity", "l1", "l2") and has_arithmetic(keyword.value):
                    found.append(place(file, node))
    return Measure("sensitivities computed outside of privacy", len(found), 0, tuple(found))


def has_arithmetic(value):
    """Tell whether an expression is a number, or computes one by itself."""
    nodes = [] if isinstance(value, ast.Call) else list(ast.walk(value))
    numbers = [node for node in nodes if isinstance(node, ast.Constant) and node.value is not None]
    return bool(numbers) or any(isinstance(node, ast.BinOp) for node in nodes)


def measure_twins(trees):
    """Return files that share their name with one in the same room."""
    names = collections.defaultdict(list)
    for file in trees:
        if file.name != "__init__.py":
            names[room_of(file), file.stem.lstrip("_")].append(file)
    twins = [files for files in names.values() if len(files) > 1]
    places = tuple(str(file.relative_to(PROJECT)) for files in twins for file in files)
    return Measure("files that share a name within a room", len(places), 0, places)


def measure_names():
    """Return how many public classes and functions the reference lists."""
    text = (PROJECT / "doc" / "api.rst").read_text()
    entries = re.findall(r"^   (?!:)(\w+)$", text, flags=re.MULTILINE)
    return Measure("public names", len(entries), 75)


def measure_classes(trees):
    """Return how many classes there are, how many only carry fields, and names of two classes."""
    found = [
        (file, node)
        for file, tree in trees.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    ]
    carriers = [
        place(file, node)
        for file, node in found
        if not any(isinstance(n, ast.FunctionDef) and n.name != "__init__" for n in node.body)
    ]
    uses = collections.Counter(node.name for _, node in found)
    twice = tuple(place(file, node) for file, node in found if uses[node.name] > 1)
    return [
        Measure("classes", len(found), 200),
        Measure("classes that only carry fields", len(carriers), 90, tuple(carriers)),
        Measure("classes with the name of another one", len(twice), 0, twice),
    ]


def measure_constants(trees):
    """Return how many constants modules have."""
    found = []
    for file, tree in trees.items():
        for node in tree.body:
            targets = getattr(node, "targets", [getattr(node, "target", None)])
            names = [n for target in targets if target for n in ast.walk(target)]
            found += [
                place(file, node)
                for n in names
                if isinstance(n, ast.Name) and re.fullmatch(r"_?[A-Z][A-Z0-9_]*", n.id)
            ]
    return Measure("constants of modules", len(found), 300)


def measure_files(trees):
    """Return how many files the package has, and for how many lines there are eight comments."""
    lines = sum(code_lines(file, tree) for file, tree in trees.items())
    comments = sum(
        line.lstrip().startswith("#") for file in trees for line in file.read_text().splitlines()
    )
    return [
        Measure("files", len(trees), 110),
        Measure("code lines for eight comments", 8 * lines // comments, 100),
    ]


def measure_tests():
    """Return the code lines of tests, and the share of files that import private names."""
    files = {file: ast.parse(file.read_text()) for file in (PROJECT / "tests").rglob("*.py")}
    lines = sum(code_lines(file, tree) for file, tree in files.items())
    of_tests = [file for file in files if file.name.startswith("test_")]
    private = [
        file
        for file in of_tests
        if any(
            name.startswith(f"{PACKAGE}.") and any(map(is_private, name.split(".")))
            for _, name in imported(files[file])
        )
    ]
    share = round(100 * len(private) / len(of_tests))
    places = tuple(str(file.relative_to(PROJECT)) for file in private)
    return [
        Measure("code lines of tests", lines, 32_000),
        Measure("percent of test files that import private names", share, 15, places),
    ]


def measure_documents():
    """Return the lines of the documentation, and the minutes that the longest guide page takes."""
    pages = [*(PROJECT / "doc").glob("*.rst"), *(PROJECT / "doc").glob("*/*.rst")]
    pages = [page for page in pages if page.parent.name not in ("api", "auto_examples")]
    front = [PROJECT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")]
    lines = sum(len(page.read_text().splitlines()) for page in [*pages, *front])
    words = {p.name: len(p.read_text().split()) for p in pages if p.parent.name == "user_guide"}
    longest = max(words, key=words.get)
    return [
        Measure("lines of documentation", lines, 7_500),
        # Of prose and code, 220 words are read in a minute.
        Measure("minutes of the longest guide page", words[longest] // 220, 10, (longest,)),
    ]


def ours_in(call):
    """Return the functions of the package that a call runs, as files and names."""
    seen = set()

    def watch(frame, event, _):
        code = frame.f_code
        ours = code.co_filename.startswith(str(PROJECT / PACKAGE))
        if event == "call" and ours and not code.co_name.startswith("<"):
            seen.add((code.co_filename, code.co_qualname))

    sys.setprofile(watch)
    try:
        call()
    finally:
        sys.setprofile(None)
    return seen


def measure_charge():
    """Return the functions that a charge runs."""
    from skdpot.privacy import GaussianDpEvent, PrivacyLedger

    ledger = PrivacyLedger(10.0, 1e-5)
    event = GaussianDpEvent(10.0)
    charge = {name for _, name in ours_in(lambda: ledger.charge(event, unit="record", label="it"))}
    return Measure("functions that a charge runs", len(charge), 40, tuple(sorted(charge)))


def measure_files_of_fits():
    """Return the files that fits run; a first one also runs those that compile kernels."""
    fits_of = {name: {file for file, _ in ours_in(fit)} for name, fit in fits().items()}
    return [
        Measure(f"files that a fit runs: {name}", len(files), 25) for name, files in fits_of.items()
    ]


def estimators():
    """Return the public estimators of the package."""
    found = {}
    for room in ESTIMATOR_ROOMS:
        try:
            module = importlib.import_module(f"{PACKAGE}.{room}")
        except ModuleNotFoundError:
            continue
        for name in module.__all__:
            value = getattr(module, name)
            if inspect.isclass(value) and hasattr(value, "get_params"):
                found[name] = value
    return found


def measure_parameters():
    counts = {
        name: len(inspect.signature(estimator.__init__).parameters) - 1
        for name, estimator in estimators().items()
    }
    places = tuple(f"{name} {count}" for name, count in sorted(counts.items()))
    return Measure("constructor parameters of an estimator", max(counts.values()), 20, places)


def holds_records(value, depth=1):
    """Tell whether a value has one row for each record, or holds what has."""
    shape = getattr(value, "shape", ())
    if isinstance(shape, tuple) and len(shape) == 2 and shape[0] == N_RECORDS:
        return True
    if depth and isinstance(value, tuple | list) and len(value) < 20:
        return any(holds_records(entry, depth - 1) for entry in value)
    if depth and hasattr(value, "__dataclass_fields__"):
        return any(holds_records(entry, depth - 1) for entry in vars(value).values())
    return False


def is_decorator(code):
    """Tell whether code is of a closure that takes any arguments."""
    takes_any = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS
    return "<locals>" in code.co_qualname and code.co_flags & takes_any == takes_any


def functions_from(fit):
    """Return the functions of the package that are handed the records during a call.

    Kernels and mechanisms (``transport``, ``privacy``) are where a record arrives, and not on its
    way.
    """
    seen = {}

    def watch(frame, event, _):
        module = frame.f_globals.get("__name__", "")
        if event != "call" or not module.startswith(f"{PACKAGE}."):
            return
        if module.split(".")[1] in ("transport", "privacy"):
            return
        code = frame.f_code
        if code.co_filename == "<string>" or is_decorator(code):
            # What dataclasses generate, and what hands on all it is given, are no steps.
            return
        names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount + 2]
        if any(holds_records(frame.f_locals.get(name)) for name in names if name != "self"):
            seen.setdefault(f"{module}.{code.co_qualname}", len(seen))

    sys.setprofile(watch)
    try:
        fit()
    finally:
        sys.setprofile(None)
    return [name for name in seen if "<" not in name.rsplit(".", 1)[-1]]


def fits():
    """Return a fit of every estimator, on records that are made up."""
    import skdpot
    from skdpot.fairness import ConditionalRepair

    rng = np.random.default_rng(0)
    group = np.where(rng.random(N_RECORDS) < 0.5, "a", "b")
    numbers = rng.random((N_RECORDS, 3)) ** np.where(group == "b", 3, 1)[:, None]
    sampler = skdpot.WassersteinProjectionSampler(base_measure="uniform").fit(numbers)
    distance = skdpot.PrivateSinkhornDistance(bounds=(0, 1))
    repair = skdpot.FairBarycenterPreprocessor(epsilon=5.0, bounds=(0, 1), groups=["a", "b"])
    # Rows that are drawn of what was released are fewer, and not taken for records. Where a map is
    # tried, which it is unless tol is 0, they are as many.
    conditional = skdpot.FairBarycenterPreprocessor(
        method=ConditionalRepair(max_rows=500, tol=0.0), epsilon=5.0, delta=1e-6, bounds=(0, 1),
        groups=["a", "b"],
    )  # fmt: skip
    return {
        "sampler": lambda: sampler.transform(numbers),
        "distance": lambda: distance.fit(numbers, group),
        "sketch": lambda: skdpot.DPSinkhornGenerator(bounds=(0, 1)).fit(numbers),
        "preprocessor": lambda: repair.fit(numbers, sensitive_features=group),
        "conditional repair": lambda: conditional.fit(numbers, sensitive_features=group),
        "regressor": lambda: skdpot.FairBarycenterRegressor(
            random_state=0
        ).fit(numbers, numbers[:, 0], sensitive_features=group),
    }  # fmt: skip


def measure_walks():
    found = []
    for name, fit in fits().items():
        functions = functions_from(fit)
        title = f"functions that records pass from fit to their release: {name}"
        found.append(Measure(title, len(functions), 14, tuple(functions)))
    return found


def measures():
    """Return all measures."""
    trees = sources()
    return [
        measure_rituals(trees),
        *measure_walks(),
        *measure_code_lines(trees),
        measure_sensitivities(trees),
        measure_private_imports(trees),
        measure_twins(trees),
        measure_parameters(),
        measure_names(),
        *measure_files(trees),
        *measure_classes(trees),
        measure_constants(trees),
        measure_charge(),
        *measure_files_of_fits(),
        *measure_tests(),
        *measure_documents(),
    ]


def main():
    """Print the measures; return 1 if a limit is exceeded."""
    found = measures()
    width = max(len(measure.name) for measure in found)
    for measure in found:
        verdict = "" if measure.met else "  EXCEEDED"
        if measure.wanted is not None and measure.value > measure.wanted:
            verdict += f"  (wanted: at most {measure.wanted})"
        print(f"{measure.name:<{width}}  {measure.value:>6}  at most {measure.limit:>6}{verdict}")
        if not measure.met or "-v" in sys.argv:
            for where in measure.places:
                print(f"    {where}")
    return int(not all(measure.met for measure in found))


if __name__ == "__main__":
    sys.path.insert(0, str(PROJECT))
    sys.exit(main())
