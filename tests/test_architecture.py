"""Imports between rooms, read from every module."""

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.experiment

PROJECT = Path(__file__).parents[1]
PACKAGE = "skdpot"
PRIVATE_SCIKIT_LEARN = "a private name of scikit-learn"

# A room is a subpackage, or a module beside them. What a room may import is said here, besides the
# standard library and itself; "skdpot" stands for the names in skdpot/__init__.py.
NUMERICS = {"numpy", "scipy"}
ESTIMATORS = (
    "sampling", "distance", "fairness", "generative", "allocation", "model_selection",
)  # fmt: skip
ESTIMATORS_IMPORT = NUMERICS | {
    "sklearn",
    "joblib",
    "threadpoolctl",
    "tqdm",
    "skdpot.transport",
    "skdpot.privacy",
    "skdpot._base",
    "skdpot.tables",
    "skdpot.releases",
    "skdpot._sklearn_compat",
    "skdpot.__version__",
}
MAY_IMPORT = {
    "skdpot.transport": NUMERICS | {"numba"},
    "skdpot.privacy": NUMERICS | {"diffprivlib", "dp_accounting"},
    **{f"skdpot.{room}": ESTIMATORS_IMPORT for room in ESTIMATORS},
    # A private repair draws its rows from the sketch of a generator.
    "skdpot.fairness": ESTIMATORS_IMPORT | {"skdpot.generative"},
    # It stands above the estimators, and no room imports it.
    "skdpot.published": ESTIMATORS_IMPORT
    | {f"skdpot.{room}" for room in ESTIMATORS}
    | {"dp_accounting"},
    "skdpot.releases": NUMERICS | {"skdpot.transport", "skdpot.privacy"},
    # The columns of an agreement are those of a data frame.
    "skdpot.parts": NUMERICS
    | {"skdpot.privacy", "skdpot.tables", "skdpot._base", "skdpot.__version__"}
    | {"sklearn", "pandas"},
    "skdpot.display": NUMERICS | {"matplotlib", "sklearn", "skdpot.tables"},
    "skdpot._base": NUMERICS | {"sklearn", "tqdm", "skdpot.privacy", "skdpot._sklearn_compat"},
    "skdpot.tables": NUMERICS | {"sklearn", "skdpot.privacy"},
    "skdpot._sklearn_compat": NUMERICS | {"sklearn", "threadpoolctl"},
}
# Modules with a rule of their own instead of their room's.
MAY_IMPORT_INSTEAD = {
    "skdpot.transport.exact": NUMERICS | {"ot", "skdpot.transport"},
    "skdpot.generative._torch": {"torch", "skdpot.privacy"},
    # An audit learns to tell releases apart, in parallel.
    "skdpot.privacy.audit": NUMERICS | {"sklearn", "joblib", "tqdm", "skdpot.privacy"},
    # Charges can be had as a data frame by whoever has pandas.
    "skdpot.privacy.ledger": {"pandas", "skdpot.privacy"},
    # diffprivlib has to be lent names that are private to scikit-learn.
    "skdpot.privacy.charging": NUMERICS
    | {"diffprivlib", "dp_accounting", "skdpot._sklearn_compat", "skdpot.privacy"},  # fmt: skip
}
MAY_IMPORT_INSTEAD |= {
    # Formulas of columns are of pandas.
    "skdpot.fairness._computed": ESTIMATORS_IMPORT | {"pandas", "skdpot.fairness"},
    # Tables can be frames of pandas, for whoever has it.
    "skdpot.tables._frames": NUMERICS | {"narwhals", "pandas", "skdpot.tables", "skdpot.privacy"},
    # Cells of data frames are copied by the libraries that made these.
    "skdpot.model_selection._copies": ESTIMATORS_IMPORT | {"pandas", "polars"},
}
# The front door shows every room to the user, and so may open them all.
FRONT_DOOR = {"skdpot", "skdpot.__main__", "skdpot._command"}


def lies_in(module, package):
    """Tell whether a module is a package or lies in it."""
    return module == package or module.startswith(package + ".")


def room_of(module):
    """Return the part of a module's name that rules are about."""
    depth = 2 if lies_in(module, PACKAGE) else 1
    return ".".join(module.split(".")[:depth])


def imported_names(module, source, is_package=False):
    """Return the dotted names that a module's source imports, wherever in the file it does."""
    names = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            levels_up = node.level - is_package
            parts = module.split(".")
            base = parts[: len(parts) - levels_up] if node.level else []
            origin = ".".join([*base, node.module] if node.module else base)
            names += [f"{origin}.{alias.name}" for alias in node.names]
    return names


def touches_private_scikit_learn(source):
    """Tell whether an attribute chain such as `sklearn.utils._tags` occurs in a source."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute):
            chain = ast.unparse(node).split(".")
            if chain[0] == "sklearn" and is_private(chain):
                return True
    return False


def is_private(parts):
    return any(part.startswith("_") and not part.endswith("__") for part in parts)


def allowed_imports(module):
    """Return what a module may import, by the rule that is nearest to it."""
    for place, allowed in MAY_IMPORT_INSTEAD.items():
        if lies_in(module, place):
            return allowed | {place}
    room = room_of(module)
    assert room in MAY_IMPORT, f"there is no rule yet for {room}: give it one in {__file__}"
    return MAY_IMPORT[room] | {room}


def violations(module, source, is_package=False):
    """Return what a module imports and may not."""
    names = imported_names(module, source, is_package)
    found = []
    if room_of(module) != "skdpot._sklearn_compat":
        found += [
            PRIVATE_SCIKIT_LEARN
            for name in names
            if lies_in(name, "sklearn") and is_private(name.split("."))
        ]
        if touches_private_scikit_learn(source):
            found.append(PRIVATE_SCIKIT_LEARN)
    if module in FRONT_DOOR:
        return found + [name for name in names if lies_in(name, "torch")]
    allowed = allowed_imports(module)
    for name in names:
        standard = room_of(name) in sys.stdlib_module_names
        if not standard and not any(lies_in(name, place) for place in allowed):
            found.append(name)
    return found


def modules():
    """Return the dotted name and the file of every module of the package."""
    files = sorted((PROJECT / PACKAGE).rglob("*.py"))
    names = [".".join(file.relative_to(PROJECT).with_suffix("").parts) for file in files]
    return [
        pytest.param(name.removesuffix(".__init__"), file, id=name)
        for name, file in zip(names, files, strict=True)
    ]


@pytest.mark.parametrize("module, file", modules())
def test_module_imports_only_what_its_room_may(module, file):
    assert violations(module, file.read_text(), file.name == "__init__.py") == []


@pytest.mark.parametrize(
    "module, source, found",
    [
        ("skdpot.transport.sinkhorn", "import sklearn", ["sklearn"]),
        ("skdpot.transport.sinkhorn", "from ..privacy import audit", ["skdpot.privacy.audit"]),
        ("skdpot.transport.sinkhorn", "def f():\n    import joblib", ["joblib"]),
        ("skdpot.sampling._sphere", "import skdpot.fairness", ["skdpot.fairness"]),
        ("skdpot.generative._generator", "import torch", ["torch"]),
        ("skdpot.__main__", "import torch", ["torch"]),
        ("skdpot._base", "from sklearn.base import _fit_context", [PRIVATE_SCIKIT_LEARN]),
        ("skdpot._base", "import sklearn\nsklearn.tree._tree.x", [PRIVATE_SCIKIT_LEARN] * 2),
        ("skdpot._sklearn_compat", "from sklearn.base import _fit_context", []),
        ("skdpot.transport.sinkhorn", "from . import polytope\nimport scipy.sparse", []),
        ("skdpot.sampling._sphere", "from ..transport import sphere", []),
        ("skdpot.generative._generator", "from skdpot.generative import _torch", []),
    ],
)
def test_rules_find_what_they_should(module, source, found):
    assert sorted(set(violations(module, source))) == sorted(set(found))


def test_relative_imports_of_a_package_count_from_the_package_itself():
    source = "from . import polytope\nfrom ..privacy import audit"
    assert violations("skdpot.transport", source, is_package=True) == ["skdpot.privacy.audit"]


def test_a_room_without_a_rule_is_reported():
    with pytest.raises(AssertionError, match="no rule yet for skdpot.attic"):
        violations("skdpot.attic.trunk", "import math")


# Packages that import their names once they are asked for.
LAZY = ("skdpot",)
# (pandas, which scikit-learn imports, imports pyarrow where that is.)
OPTIONAL = {
    "dask", "diffprivlib", "distributed", "flwr", "matplotlib", "ot", "polars", "torch",
}  # fmt: skip


def names_for_type_checkers(package):
    """Return, of what a package imports for type checkers only, the module of every name."""
    statements = ast.parse(Path(package.__file__).read_text()).body
    [block] = [
        node
        for node in statements
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    ]
    return {
        alias.name: node.module
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


def modules_after(statement):
    """Return which modules a fresh interpreter has imported for a statement."""
    script = f"""
import sys
before = set(sys.modules)
{statement}
after = set(sys.modules) - before
if "numba" in after:
    from numba.core.dispatcher import Dispatcher
    compiled = [
        f"{{name}}.{{key}}"
        for name in after
        if name.split(".")[0] == "skdpot"
        for key, value in vars(sys.modules[name]).items()
        if isinstance(value, Dispatcher) and value.signatures
    ]
    assert not compiled, compiled
print(*sorted(after), sep="\\n")
"""
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=PROJECT, capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_importing_the_package_imports_nothing_else():
    imported = modules_after("import skdpot")
    assert [name for name in imported if lies_in(name, PACKAGE)] == [PACKAGE]
    foreign = {name.split(".")[0] for name in imported} - {PACKAGE}
    assert foreign <= sys.stdlib_module_names


@pytest.mark.parametrize("room", [*ESTIMATORS, "privacy", "transport"])
def test_an_import_does_not_pay_for_other_rooms(room):
    """What is optional is not imported either, and no kernel is compiled."""
    names = [
        name
        for name, module in names_for_type_checkers(importlib.import_module(PACKAGE)).items()
        if module == f"{PACKAGE}.{room}"
    ]
    imported = modules_after(f"from skdpot import {', '.join(names)}")
    assert not OPTIONAL & set(imported)
    rooms = {room_of(name) for name in imported if lies_in(name, PACKAGE)}
    others = {*ESTIMATORS, "display"} - {room}
    assert not rooms & {f"{PACKAGE}.{other}" for other in others}
    if room == "privacy":
        assert "numba" not in imported


@pytest.mark.parametrize("name", LAZY)
def test_what_is_imported_late_is_what_type_checkers_see(name):
    package = importlib.import_module(name)
    promised = names_for_type_checkers(package)
    assert promised.keys() >= set(package.__all__)
    for promise, module in promised.items():
        assert getattr(package, promise) is getattr(importlib.import_module(module), promise)


@pytest.mark.parametrize("name", [*LAZY, "skdpot.privacy"])
def test_a_name_that_is_not_there_is_said_as_python_does(name):
    with pytest.raises(AttributeError, match=f"module '{name}' has no attribute 'sampel'"):
        getattr(importlib.import_module(name), "sampel")  # noqa: B009


def test_rooms_are_attributes_of_the_package():
    modules_after("import skdpot; assert skdpot.sampling.KLProjectionSampler; skdpot.display")
