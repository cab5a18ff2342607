"""Every release has one interface, and every sensitivity one place, one proof and one name."""

import ast
import importlib
import inspect
import math
import pkgutil
import re
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import skdpot
from skdpot.privacy import sensitivity
from skdpot.privacy.events import DpEvent
from skdpot.privacy.noise import make_source
from skdpot.privacy.sensitivity import (
    ball_sum_sensitivity,
    block_score_sensitivity,
    histogram_sensitivities,
)
from skdpot.releases import (
    ChoiceRelease,
    HistogramRelease,
    MessageReleases,
    Release,
    ReleaseSeries,
    SketchReleases,
    SumRelease,
    UnitLayout,
    UtilityNoise,
    UtilityResponse,
    VectorRelease,
)

PROJECT = Path(__file__).parents[2]
PACKAGE = PROJECT / "skdpot"
THEORY = {path: path.read_text() for path in sorted((PROJECT / "doc" / "theory").glob("*.rst"))}
FUNCTIONS = [
    name
    for name, value in vars(sensitivity).items()
    if inspect.isfunction(value)
    and value.__module__ == sensitivity.__name__
    and not name.startswith("_")
]

# Every release, made of public quantities, and private values for it.
LAYOUT = UnitLayout(levels=(0, 0), blocks=())
RECORDS = np.full((20, 2), 0.25), np.zeros(20, dtype=int)
VECTOR = {"n_coordinates": 3, "largest": 100.0}
NODES = {"degrees": [2, 1]}
RELEASES = {
    VectorRelease: (
        lambda delta: VectorRelease(1.0, delta, histogram_sensitivities, counts=True, **VECTOR),
        [3, 4, 5],
    ),
    HistogramRelease: (lambda delta: HistogramRelease(LAYOUT, 1, 20, 1.0, delta), RECORDS),
    SumRelease: (
        lambda delta: SumRelease(2.0, partial(ball_sum_sensitivity, radius=5.0), "replace_one"),
        np.array([3, 4]),
    ),
    UtilityNoise: (lambda delta: UtilityNoise(1.0, low=1.0, high=5.0, **NODES), [1.0, 2.0, 3.0]),
    UtilityResponse: (
        lambda delta: UtilityResponse(1.0, low=1.0, high=5.0, **NODES),
        [1.0, 2.0, 3.0],
    ),
    ChoiceRelease: (
        lambda delta: ChoiceRelease(10, 1.0, partial(block_score_sensitivity, n_units=8)),
        [3, 5, 4],
    ),
}


def concrete(base):
    """Return all classes of the package below a base that can be made."""
    for module in pkgutil.walk_packages(skdpot.__path__, "skdpot."):
        if "._torch" not in module.name and not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    found, waiting = set(), [base]
    while waiting:
        below = waiting.pop().__subclasses__()
        waiting += below
        found |= {c for c in below if c.__module__.startswith("skdpot.")}
    return {c for c in found if not inspect.isabstract(c) and not c.__name__.startswith("_")}


def functions_called(call):
    """Return which functions of the room of sensitivities run during a call."""
    names, known = set(), {getattr(sensitivity, name).__code__: name for name in FUNCTIONS}

    def note(frame, event, _):
        if event == "call" and frame.f_code in known:
            names.add(known[frame.f_code])

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return names


def test_every_release_is_here():
    """Those of estimators are made of them, and have their sensitivities."""
    releases = concrete(Release)
    of_room = {kind for kind in releases if kind.__module__.startswith("skdpot.releases.")}
    assert of_room == set(RELEASES)
    assert {SketchReleases, MessageReleases} <= concrete(ReleaseSeries)
    for kind in releases - of_room:
        called = set(re.findall(r"(\w+)\(", inspect.getsource(kind.sensitivity)))
        assert called & {"sensitivity", *FUNCTIONS}, kind


@pytest.mark.parametrize("delta", [0.0, 1e-5])
@pytest.mark.parametrize("kind", RELEASES, ids=lambda kind: kind.__name__)
def test_a_release_has_an_event_a_sensitivity_and_a_run(kind, delta):
    make, values = RELEASES[kind]
    release = make(delta)
    assert isinstance(release.event, DpEvent)
    assert functions_called(lambda: release.sensitivity("replace_one"))
    assert math.isfinite(release.sensitivity("replace_one"))
    parameters = list(inspect.signature(kind.run).parameters)
    assert parameters == ["self", "values", "source"]
    released = [repr(make(delta).run(values, make_source(seed))) for seed in (0, 0, 1)]
    assert released[0] == released[1]
    assert kind in (UtilityResponse, ChoiceRelease) or released[0] != released[2]


@pytest.mark.parametrize("kind", RELEASES, ids=lambda kind: kind.__name__)
def test_relations_of_a_release_agree(kind):
    """A record that is replaced is one less and one more."""
    release = RELEASES[kind][0](1e-5)
    replaced = release.sensitivity("replace_one")
    try:
        added = release.sensitivity("add_remove")
    except ValueError as error:
        assert "choose 'replace_one'" in str(error)
    else:
        assert added <= replaced <= 2 * added * (1 + 1e-9)
    with pytest.raises(ValueError, match="neighbouring must be"):
        release.sensitivity("swap")


# Arguments of every function that takes a relation.
EXAMPLES = {
    "ball_sum_sensitivity": {"radius": 3.0},
    "block_score_sensitivity": {"n_units": 7},
    "cell_count_sensitivity": {"n_tables": 5},
    "clipped_sum_sensitivity": {"clip_norm": 3.0, "count_weight": 0.5},
    "cost_vector_sensitivities": {"cost_range": 2.0, "sizes": [10, 20, 30]},
    "counted_sum_sensitivity": {"radius": 3.0, "count_weight": 2.0},
    "histogram_sensitivities": {},
    "message_sensitivity": {"eta": 2.0, "utility_range": 1.0, "cap": 3.0, "degree": 4},
    "product_sum_sensitivity": {"radius": 3.0, "diagonal": 29, "beside": 41},
    "repeated_count_sensitivity": {"n_values": 9},
    "share_sum_sensitivity": {"radius": 3.0, "count_weight": 2.0, "whole": 8.0},
    "utility_sensitivity": {"width": 4.0, "degree": [2, 3], "protect": "node"},
}  # fmt: skip


def test_every_function_with_a_relation_has_an_example():
    takes = {
        name
        for name in FUNCTIONS
        if "relation" in inspect.signature(getattr(sensitivity, name)).parameters
    }
    assert takes == set(EXAMPLES)


@pytest.mark.parametrize("name", EXAMPLES)
def test_relations_of_a_function_agree(name):
    bound = partial(getattr(sensitivity, name), **EXAMPLES[name])
    replaced = np.asarray(bound(relation="replace_one"))
    assert (replaced > 0).all()
    try:
        added = np.asarray(bound(relation="add_remove"))
    except ValueError as error:
        assert "choose 'replace_one'" in str(error)
    else:
        assert (added <= replaced).all() and (replaced <= 2 * added * (1 + 1e-9)).all()
    with pytest.raises(ValueError, match="neighbouring must be"):
        bound(relation="swap")


# Proofs
# ------

LABEL = re.compile(r"^\.\. _([\w-]+):\n", re.MULTILINE)


def section_of(anchor):
    """Return the text from a label to the next one that stands before a heading, or None."""
    for text in THEORY.values():
        found = re.search(rf"^\.\. _{re.escape(anchor)}:\n(?:\.\. _[\w-]+:\n)*", text, re.MULTILINE)
        if found:
            rest = text[found.end() :]
            following = LABEL.search(rest)
            return rest[: following.start()] if following else rest
    return None


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_links_its_proof_and_the_proof_names_the_function(name):
    doc = inspect.getdoc(getattr(sensitivity, name))
    [line] = re.findall(r"^Proof: ([^.]*)\.$", doc, re.MULTILINE)
    anchors = re.findall(r":ref:`([\w-]+)`", line)
    assert anchors
    for anchor in anchors:
        assert anchor.startswith("proof-")
        section = section_of(anchor)
        assert section is not None, f"the theory has no label {anchor}"
        assert re.search(rf"sensitivity\s*\.{name}`", section), f"{anchor} does not name {name}"


@pytest.mark.parametrize("path", THEORY, ids=lambda path: path.stem)
def test_the_theory_names_functions_that_there_are(path):
    text = THEORY[path]
    named = re.findall(r"privacy\.sensitivity\s*\.(\w+)`", text)
    named += re.findall(r"``(\w+_sensitivit(?:y|ies))``", text)
    assert set(named) <= set(FUNCTIONS)


def test_the_table_of_all_releases_names_functions_of_all_kinds():
    table = (PROJECT / "doc" / "theory" / "releases.csv").read_text()
    named = set(re.findall(r"``(\w+_sensitivit(?:y|ies))``", table))
    # These are no sensitivities of releases, or parts of others.
    apart = {"half_step_shift", "marginal_bounds", "message_error"}
    assert named == set(FUNCTIONS) - apart


# Nothing else computes a sensitivity
# -----------------------------------

# Where the sensitivity is among what a mechanism or a release is made of.
POSITIONS = {
    "LaplaceMechanism": 1,
    "GaussianMechanism": 2,
    "from_noise_multiplier": 1,
    "VectorRelease": 2,
    "SumRelease": 1,
    "ChoiceRelease": 2,
}
KEYWORDS = {"sensitivity", "sensitivities", "l1", "l2"}
# Claims of papers, which no noise of a sound release is scaled to.
CLAIMED = {"published_linear_sensitivity"}
# The variance of the noise is asked for there, and the sensitivity is what it was planned for.
PLANNED = {
    "_noisy_sinkhorn.py": (
        "math.sqrt(self.noise_variance) / of_a_round",
        # What Lemma 5 of the paper claims.
        "2 * cost_range / n + min(reg * math.log(n), cost_range, stability)",
    )
}


def outside_of_privacy():
    return [
        path
        for path in sorted(PACKAGE.rglob("*.py"))
        if path.relative_to(PACKAGE).parts[0] != "privacy"
    ]


ARITHMETIC = {"abs", "hypot", "max", "maximum", "min", "minimum", "nextafter", "sqrt"}


def computes(node):
    """Tell whether an expression is a number, or arithmetic, rather than what a function says."""
    if isinstance(node, ast.Call):
        inside = [part for argument in node.args for part in ast.walk(argument)]
        return name_of(node.func) in ARITHMETIC and any(
            isinstance(part, (ast.BinOp, ast.Constant)) for part in inside
        )
    return isinstance(node, (ast.Constant, ast.BinOp, ast.UnaryOp)) and not (
        isinstance(node, ast.Constant) and node.value is None
    )


def name_of(node):
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def sensitivities_computed(source):
    """Return the lines of a source that compute a sensitivity."""
    lines = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call):
            position = POSITIONS.get(name_of(node.func), math.inf)
            given = [argument for k, argument in enumerate(node.args) if k == position]
            given += [keyword.value for keyword in node.keywords if keyword.arg in KEYWORDS]
            lines += [node.lineno for value in given if computes(value)]
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = [name_of(target) for target in targets]
            if any("sensitivit" in name.lower() for name in names) and computes(node.value):
                lines.append(node.lineno)
        elif isinstance(node, ast.FunctionDef) and "sensitivit" in node.name:
            returned = [n.value for n in ast.walk(node) if isinstance(n, ast.Return)]
            if node.name not in CLAIMED and any(map(computes, returned)):
                lines.append(node.lineno)
    return lines


def test_no_module_outside_of_privacy_computes_a_sensitivity():
    found = {}
    for path in outside_of_privacy():
        source = path.read_text()
        for planned in PLANNED.get(path.name, ()):
            source = source.replace(planned, "planned")
        found[path.relative_to(PACKAGE)] = sensitivities_computed(source)
    assert {path: lines for path, lines in found.items() if lines} == {}


@pytest.mark.parametrize(
    "source",
    [
        "LaplaceMechanism(epsilon, 2.0)",
        "GaussianMechanism(epsilon, delta, math.sqrt(2) * radius)",
        "GaussianMechanism.from_noise_multiplier(sigma, 2 * bound)",
        "VectorRelease(1.0, 0.0, l1=2.0, l2=bound)",
        "release(sums, sensitivity=radius**2)",
        "max_sensitivity = 2 * radius",
        "def cost_sensitivity(n):\n    return 1.0 / n",
    ],
)
def test_a_sensitivity_that_is_computed_elsewhere_is_found(source):
    assert len(sensitivities_computed(source)) == 1
