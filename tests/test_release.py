"""Parts of a released version: its number, its types, and what the archives hold."""

import ast
import configparser
import re
from importlib.metadata import requires, version
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import skdpot

PROJECT = Path(__file__).parents[1]
SETUP = configparser.ConfigParser()
SETUP.read(PROJECT / "setup.cfg")


def test_there_is_one_version():
    """setuptools reads it from the source, without importing what the package depends on."""
    assert SETUP["metadata"]["version"] == "attr: skdpot.__version__"
    statements = ast.parse((PROJECT / "skdpot" / "__init__.py").read_text()).body
    [value] = [
        node.value
        for node in statements
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__version__"
    ]
    assert ast.literal_eval(value) == skdpot.__version__ == version("skdpot")


def test_the_changelog_begins_with_this_version():
    headings = re.findall(r"^## \[(.+?)\]", (PROJECT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert headings[0] in (skdpot.__version__, "Unreleased")
    assert skdpot.__version__ in headings


def test_the_package_says_that_it_is_typed():
    assert (Path(skdpot.__path__[0]) / "py.typed").read_text() == ""
    assert "py.typed" in SETUP["options.package_data"]["skdpot"]
    assert "Typing :: Typed" in SETUP["metadata"]["classifiers"]


def test_classifiers_and_required_python_agree():
    lowest = SETUP["options"]["python_requires"].removeprefix(">=")
    assert f"Programming Language :: Python :: {lowest}" in SETUP["metadata"]["classifiers"]


@pytest.mark.parametrize("line", SETUP["options"]["install_requires"].split())
def test_what_is_required_is_required_of_those_who_install_it(line):
    wanted = Requirement(line)
    assert str(wanted) in {str(Requirement(text)) for text in requires("skdpot")}


@pytest.mark.parametrize("folder", ["doc", "examples", "tests"])
def test_the_source_archive_holds_what_the_tests_and_pages_are_made_of(folder):
    lines = (PROJECT / "MANIFEST.in").read_text().splitlines()
    assert f"graft {folder}" in lines


def test_the_source_archive_holds_the_papers_of_the_project():
    [line] = [
        line
        for line in (PROJECT / "MANIFEST.in").read_text().splitlines()
        if line.startswith("include ")
    ]
    # The README, the LICENSE and the two files of settings are always in it.
    papers = {path.name for path in PROJECT.glob("*.md")} | {"CITATION.cff"}
    assert papers - {"README.md"} <= set(line.split()[1:])
