"""The documentation of whatever is public: that it is whole, and in numpydoc's form."""

import csv
import inspect
import re
from dataclasses import fields
from pathlib import Path

import pytest
from numpydoc.docscrape import NumpyDocString
from numpydoc.validate import validate

import skdpot
import skdpot.display
import skdpot.fairness.metrics
import skdpot.parts
import skdpot.privacy
import skdpot.published
import skdpot.transport.barycenter

DOC = Path(__file__).parents[1] / "doc"

ROOMS = (
    skdpot,
    skdpot.display,
    skdpot.distance,
    skdpot.fairness,
    skdpot.fairness.metrics,
    skdpot.parts,
    skdpot.generative,
    skdpot.published,
    skdpot.privacy,
    skdpot.published,
    skdpot.transport.barycenter,
)

# What numpydoc's validation asks for beyond the form of scikit-learn's own docstrings.
NOT_ASKED = {
    "GL01",  # the text begins on the line of the opening quotes
    "ES01",  # a one-line summary may say it all
    "RT02",  # a returned value has a name
    "SA01",  # not everything has something beside it to see
    "SA04",  # what it is is said where it is documented
}
NOT_ASKED_WITHOUT_EXAMPLE = NOT_ASKED | {"EX01"}  # methods, whose class has it, and errors
NOT_ASKED_OF_RESULTS = NOT_ASKED_WITHOUT_EXAMPLE | {"PR01"}  # a function makes them and has it


def public_objects():
    """Return the dotted name of every public class and function, and what is not asked of it."""
    found = {}
    for room in ROOMS:
        for name in room.__all__:
            value = getattr(room, name)
            if not value.__module__.startswith("skdpot."):
                continue
            found[f"{room.__name__}.{name}"] = not_asked_of(value)
            if inspect.isclass(value):
                found |= {
                    f"{room.__name__}.{name}.{method}": NOT_ASKED_WITHOUT_EXAMPLE
                    for method in methods(value)
                }
    found |= {"skdpot.privacy.audit.audit": NOT_ASKED}
    return found.items()


def not_asked_of(value):
    """Return what is not asked of a public class or function."""
    if value in results():
        return NOT_ASKED_OF_RESULTS
    if getattr(value, "_is_protocol", False):
        return NOT_ASKED | {"PR01"}  # nothing is made with it
    raised = inspect.isclass(value) and issubclass(value, Exception)
    return NOT_ASKED_WITHOUT_EXAMPLE if raised else NOT_ASKED


def results():
    """Return the classes of what functions return: they have attributes, and no parameters."""
    return [skdpot.transport.barycenter.BarycenterResult]


def methods(cls):
    """Return the names of the public methods that the package itself gives a class."""
    return [
        name
        for name, value in inspect.getmembers(cls, inspect.isfunction)
        if not name.startswith("_") and value.__module__.startswith("skdpot.")
    ]


def releasing_estimators():
    """Return the names of the public estimators that release something: they take a ledger."""
    return [
        name
        for name in skdpot.__all__
        if hasattr(getattr(skdpot, name), "preview")
        and "ledger" in inspect.signature(getattr(skdpot, name)).parameters
    ]


@pytest.mark.parametrize("name, not_asked", public_objects())
def test_docstring_is_whole(name, not_asked):
    errors = [f"{code}: {text}" for code, text in validate(name)["errors"] if code not in not_asked]
    assert not errors, "\n".join([f"the docstring of {name}:", *errors])


@pytest.mark.parametrize("result", results())
def test_attributes_of_results_are_documented(result):
    documented = [a.name for a in NumpyDocString(inspect.getdoc(result))["Attributes"]]
    assert documented == [field.name for field in fields(result)]


def mechanisms():
    """Return the names of the public mechanisms."""
    return [name for name in skdpot.privacy.__all__ if name.endswith("Mechanism")]


def rows_of_releases():
    """Return the cells of the theory page's table of all releases, by what releases."""
    lines = (DOC / "theory" / "releases.csv").read_text().splitlines()
    return {name: rest for name, *rest in csv.reader(lines, strict=True)}


@pytest.mark.parametrize("name", [*releasing_estimators(), *mechanisms()])
def test_every_release_is_on_the_theory_page(name):
    """With its relation, its sensitivity, its noise, what computes it, its proof, and its event."""
    relation, sensitivity, noise, computed, proof, event = rows_of_releases()[name]
    assert relation and sensitivity and noise and computed and event
    assert proof.startswith(":ref:")


def source_files():
    """Return the paths of the package's files that cite an anchor of the documentation."""
    files = (DOC.parent / "skdpot").rglob("*.py")
    return sorted(path for path in files if ":ref:`" in path.read_text())


@pytest.mark.parametrize("path", source_files(), ids=lambda path: path.stem)
def test_anchors_that_the_code_cites_exist(path):
    """Also those of private functions, which no build of the documentation reads."""
    pages = "\n".join(page.read_text() for page in DOC.rglob("*.rst"))
    labels = set(re.findall(r"^\.\. _([\w-]+):$", pages, re.MULTILINE))
    cited = re.findall(r":ref:`(?:[^`<]*<)?([\w-]+)>?`", path.read_text())
    examples = {anchor for anchor in cited if anchor.startswith("sphx_glr")}
    assert set(cited) - examples <= labels
