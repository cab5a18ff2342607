"""The words of the glossary, in code, documents and examples."""

import re
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[1]
SUFFIXES = (".py", ".rst", ".md", ".txt")


def files_in(*places):
    found = []
    for place in places:
        path = PROJECT / place
        found += [path] if path.is_file() else sorted(path.rglob("*"))
    generated = (PROJECT / "doc" / "auto_examples", PROJECT / "doc" / "api")
    return [
        file
        for file in found
        if file.suffix in SUFFIXES and not any(file.is_relative_to(folder) for folder in generated)
    ]


EVERYWHERE = ("skdpot", "doc", "examples", "README.md")
FEDERATION = ("skdpot/parts", "doc/user_guide/parts.rst")
# Dask's class and Flower's app have the name.
OF_CLIENTS = tuple(
    f"examples/federation/flower_app/{name}" for name in ("pyproject.toml", "barycenter_app.py")
)
OF_CLIENTS += ("doc/user_guide/sampling.rst", "doc/user_guide/files_of_users.rst")
OF_CLIENTS += ("examples/sampling/plot_million_users.py", "examples/sampling/plot_dask_cluster.py")
OF_CLIENTS += ("skdpot/sampling/_files.py",)
# What courts apply.
OF_LAWS = ("doc/user_guide/demographic_parity.rst",)
DOCUMENTS = ("doc", "examples", "README.md", "CHANGELOG.md", "SECURITY.md", "CONTRIBUTING.md")
# A word that is not used, what is said instead, where, but for some files and phrases.
FORBIDDEN = {
    "silently": ("silently", "without a warning", DOCUMENTS, (), ()),
    "anew": ("anew", "again", DOCUMENTS, (), ()),
    "dear": ("dear(?:er|est)", "more or most expensive", DOCUMENTS, (), ()),
    "in the place of": ("in the place of", "instead of", DOCUMENTS, (), ()),
    "made-up": ("made-up", "synthetic, simulated or invented", DOCUMENTS, (), ()),
    "equal odds": ("equal odds", "equalized odds", DOCUMENTS, (), ()),
    "normal noise": (r"normal (?:noise|laws?)", "Gaussian", EVERYWHERE, (), ()),
    "client": (r"clients?", "owner", EVERYWHERE, OF_CLIENTS, ()),
    "member": (r"(?:n_)?members?", "owner", FEDERATION, (), ()),
    "law": (
        r"laws?",
        "distribution",
        EVERYWHERE,
        OF_LAWS,
        ("law of large numbers", "required by law", "labour law"),
    ),
}


@pytest.mark.parametrize("word", FORBIDDEN)
def test_the_glossary_is_kept(word):
    pattern, instead, places, excepted, phrases = FORBIDDEN[word]
    found = []
    for file in files_in(*places):
        name = str(file.relative_to(PROJECT))
        if name in excepted:
            continue
        text = file.read_text()
        for phrase in phrases:
            text = text.replace(phrase, "")
        for number, line in enumerate(text.splitlines(), 1):
            if re.search(rf"(?<![A-Za-z]){pattern}(?![A-Za-z])", line, re.IGNORECASE):
                found.append(f"{name}:{number} {line.strip()}")
    assert not found, f"say {instead}:\n" + "\n".join(found)


CLAUSES = r"(How|What|Who|Whose|Whether|Where|Which|When|Why|That|By how much)\b"


def test_modules_are_introduced_by_a_noun_phrase():
    found = []
    for file in files_in("skdpot", "tests"):
        if file.suffix == ".py":
            # To parse all files takes long.
            said = re.match(r'(?:#.*\n)*r?"""\s*(.+)', file.read_text())
            introduction = said[1] if said else "What it is not said"
            if re.match(CLAUSES, introduction):
                found.append(f"{file.relative_to(PROJECT)}: {introduction}")
    assert not found, "\n".join(found)
