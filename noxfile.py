#!/usr/bin/env -S python -m nox -f
# /// script
# dependencies = ["nox>=2025.2.9"]
# ///
"""Tasks of a contributor, each in an environment of its own: `nox -l` lists them."""

import nox

nox.needs_version = ">=2025.2.9"
nox.options.default_venv_backend = "venv"


@nox.session
def lint(session: nox.Session) -> None:
    """Check style and format."""
    session.install("-e", ".[lint]")
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")


@nox.session
def types(session: nox.Session) -> None:
    """Check types of the package."""
    session.install("-e", ".[lint]")
    session.run("mypy")


@nox.session
def tests(session: nox.Session) -> None:
    """Run the quick tests and doctests; arguments go to pytest."""
    session.install("-e", ".[test]")
    session.run("pytest", "-n", "auto", *session.posargs, env={"OMP_NUM_THREADS": "1"})


@nox.session(default=False)
def experiments(session: nox.Session) -> None:
    """Run the long tests: audits, experiments, everything at full size."""
    session.install("-e", ".[test]")
    session.run(
        "pytest", "-n", "auto", "-m", "experiment", *session.posargs, env={"OMP_NUM_THREADS": "1"}
    )


@nox.session(default=False)
def benchmarks(session: nox.Session) -> None:
    """Compare with peers; wants a quiet machine."""
    session.install("-e", ".[benchmark]")
    session.run(
        "pytest", "benchmarks", "-m", "benchmark", "-s", *session.posargs,
        env={"OMP_NUM_THREADS": "1"},
    )  # fmt: skip


@nox.session(default=False)
def docs(session: nox.Session) -> None:
    """Build the documentation; a warning is an error."""
    session.install("-e", ".[doc]")
    session.run("sphinx-build", "-W", "--keep-going", "-b", "html", "doc", "doc/_build")


@nox.session(default=False)
def house(session: nox.Session) -> None:
    """Print the measures of the package's structure, and fail where a limit is exceeded."""
    session.install("-e", ".[test]")
    session.run("python", "tests/house.py")


@nox.session(default=False, venv_backend="none")
def everything(session: nox.Session) -> None:
    """Run all that a change must pass, in fresh environments."""
    session.run("bash", ".ci/run", external=True)


if __name__ == "__main__":
    nox.main()
