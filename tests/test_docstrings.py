"""The documentation of whatever is public: that it is whole, and in numpydoc's form."""

import inspect
from pathlib import Path

import pytest
from numpydoc.validate import validate
from sklearn.base import BaseEstimator

import skdpot

DOC = Path(__file__).parents[1] / "doc"

# What numpydoc's validation asks for beyond the form of scikit-learn's own docstrings.
NOT_ASKED = {
    "GL01",  # the text begins on the line of the opening quotes
    "ES01",  # a one-line summary may say it all
    "RT02",  # a returned value has a name
    "SA01",  # not everything has something beside it to see
    "SA04",  # what it is is said where it is documented
}
NOT_ASKED_OF_METHODS = NOT_ASKED | {"EX01"}  # the class has the example


def public_objects():
    """Return the dotted name of every public class and function, and what is not asked of it."""
    found = {}
    for name in skdpot.__all__:
        found[f"skdpot.{name}"] = NOT_ASKED
        value = getattr(skdpot, name)
        if inspect.isclass(value):
            found |= {f"skdpot.{name}.{method}": NOT_ASKED_OF_METHODS for method in methods(value)}
    return found.items()


def methods(cls):
    """Return the names of the public methods that the package itself gives a class."""
    return [
        name
        for name, value in inspect.getmembers(cls, inspect.isfunction)
        if not name.startswith("_") and value.__module__.startswith("skdpot.")
    ]


def estimators():
    """Return the names of the public estimators."""
    return [
        name
        for name in skdpot.__all__
        if inspect.isclass(getattr(skdpot, name))
        and issubclass(getattr(skdpot, name), BaseEstimator)
    ]


@pytest.mark.parametrize("name, not_asked", public_objects())
def test_docstring_is_whole(name, not_asked):
    errors = [f"{code}: {text}" for code, text in validate(name)["errors"] if code not in not_asked]
    assert not errors, "\n".join([f"the docstring of {name}:", *errors])


@pytest.mark.parametrize("name", estimators())
def test_estimator_is_on_the_theory_page(name):
    assert name in (DOC / "theory.rst").read_text()
