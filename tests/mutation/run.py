"""Put small faults into the code, one at a time, and see whether a test finds each.

::

    python tests/mutation/run.py try --folder OUT
    python tests/mutation/run.py try --folder OUT --survivors
    python tests/mutation/run.py report --folder OUT

The first runs the tests below, or those given with ``--tests``, and writes which lines each runs,
and how long it takes, to OUT/tests.jsonl. Then it tries the faults: all of them, or a share of
every function's (``--share 0.2``), in the modules whose path has one of the words given. Each is
put into a fork of a process in which pytest has collected all tests, by giving the functions that
are already there other code, so that nothing is imported again; there the tests that run the
fault's line are run, fastest first, until one fails. Results go to OUT/faults.jsonl, and what is
there is not tried again. With ``--survivors`` those that no test found are, and no others, after
tests were added. The last prints a table of the results, and the faults that were not found.

Tests that take more than a few seconds, or need torch, are left out. Compiled kernels run as plain
Python. CPU time is limited, not wall time, so that it does not matter what else the machine does.
"""

import argparse
import ast
import contextlib
import functools
import gc
import importlib
import inspect
import json
import os
import random
import resource
import select
import signal
import sys
import tempfile
import time
import types
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

os.environ |= {"NUMBA_DISABLE_JIT": "1", "OMP_NUM_THREADS": "1"}

import pytest
from coverage import Coverage
from faults import Fault, find_faults

PROJECT = Path(__file__).parents[2]
KERNELS = [f"skdpot/transport/{name}.py" for name in ("polytope", "projection", "base_measure")]
# What is most important comes first.
MODULES = [
    *(
        f"skdpot/privacy/{name}.py"
        for name in (
            "noise choices sensitivity charging ledger records filters accounting events"
        ).split()
    ),
    "skdpot/releases",
    *KERNELS,
    "skdpot/privacy",
]
TESTS = [
    "tests/privacy",
    "tests/releases",
    "skdpot/privacy",
    "skdpot/releases",
    *(
        f"tests/transport/test_{name}.py"
        for name in ("base_measure", "polytope", "projection", "sphere")
    ),
    *KERNELS,
    "tests/sampling",
    "tests/test_ritual.py",
]
LEFT_OUT = ["tests/privacy/test_planted_bugs.py", "tests/sampling/test_dask.py"]

# CPU seconds: of a test, and by default of all tests that one fault is given.
LONGEST_TEST = 0.5
LONGEST_FAULT = 2.0
# A test that takes so much longer with a fault than without has found it.
PATIENCE = 5.0
WALL_SECONDS = 900.0
MEMORY = 2 << 30


class Forks:
    """A pytest plugin that hands the collected tests to a function instead of running them.

    Parameters
    ----------
    work : callable
        Is given this object once the tests are collected.
    """

    def __init__(self, work: Callable[["Forks"], None]) -> None:
        self._work = work
        self._failure: str | None = None
        self.items: dict[str, pytest.Item] = {}

    def pytest_collection(self) -> None:
        """Let hypothesis draw what tests/conftest.py lets it, however slow the machine is."""
        from hypothesis import Phase, settings

        options = {"deadline": None, "phases": [Phase.explicit, Phase.generate]}
        settings.register_profile("mutation", settings.default, **options)
        settings.load_profile("mutation")

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Hand over the tests."""
        reporter = session.config.pluginmanager.getplugin("terminalreporter")
        session.config.pluginmanager.unregister(reporter)
        self.items = {item.nodeid: item for item in session.items}
        # So that forks share the memory that is there, whatever they collect.
        gc.collect()
        gc.freeze()
        self._work(self)
        return True

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Remember what failed."""
        if report.failed and self._failure is None:
            self._failure = str(getattr(report.longrepr, "reprcrash", None) or report.longrepr)

    def text(self, test: str) -> int:
        """Return a number that changes with the text of a test."""
        function = getattr(self.items[test], "function", None)
        return zlib.crc32(inspect.getsource(function).encode()) if function else 0

    def failure(self, test: str, seconds: float) -> str | None:
        """Return why a test fails, if it does; a signal comes if it takes more CPU time."""
        item, self._failure = self.items[test], None
        signal.setitimer(signal.ITIMER_PROF, seconds)
        item.ihook.pytest_runtest_protocol(item=item, nextitem=None)
        signal.setitimer(signal.ITIMER_PROF, 0)
        return self._failure


def in_a_fork(work: Callable[[Callable[[Any], None]], None]) -> Any:
    """Return what a function sends from a fork of this process; None if it was ended before.

    The function is given another one to call with what is to be returned; that ends the fork.
    """
    with tempfile.NamedTemporaryFile() as answer:

        def send(value: Any) -> None:
            Path(answer.name).write_text(json.dumps(value))
            os._exit(0)

        process = os.fork()
        if not process:
            with contextlib.suppress(BaseException):
                os.setpgrp()
                resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
                work(send)
            os._exit(1)
        ended = os.pidfd_open(process)
        select.select([ended], [], [], WALL_SECONDS)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process, signal.SIGKILL)
        os.waitpid(process, 0)
        os.close(ended)
        return json.loads(Path(answer.name).read_text() or "null")


def measure(forks: Forks, longest: float, tests: list[str], send: Callable[[Any], None]) -> None:
    """Send of each test which lines of the package it runs, and how much CPU time it takes.

    Where one takes too long, its number is all that is sent: locks may be held then.
    """
    coverage = Coverage(data_file=None, include=[f"{PROJECT}/skdpot/*"], config_file=False)
    entries: list[dict[str, Any]] = []
    signal.signal(signal.SIGPROF, lambda *_: send(len(entries)))
    coverage.start()
    for test in tests:
        coverage.switch_context(test)
        start = time.process_time()
        failure = forks.failure(test, longest)
        seconds = round(time.process_time() - start, 4)
        entries.append({"test": test, "seconds": seconds, "failure": failure})
    coverage.stop()
    data = coverage.get_data()
    for entry in entries:
        data.set_query_context(entry["test"])
        entry["lines"] = {
            str(Path(name).relative_to(PROJECT)): sorted(data.lines(name) or ())
            for name in data.measured_files()
        }
    send(entries)


def run_baseline(forks: Forks, folder: Path, cases: int, longest: float) -> None:
    """Measure the tests that were not measured yet; of each function so many cases at most."""
    log = folder / "tests.jsonl"
    known = {(entry["test"], entry.get("text")) for entry in read(log)}
    by_function, by_file = defaultdict(list), defaultdict(list)
    for test in forks.items:
        by_function[test.partition("[")[0]].append(test)
    for function, tests in by_function.items():
        chosen = random.Random(function).sample(tests, min(cases, len(tests)))
        new = [test for test in tests if test in chosen and (test, forks.text(test)) not in known]
        by_file[function.partition("::")[0]] += new
    for tests in by_file.values():
        # In small parts, so that little is lost where this is stopped, or a test takes too long.
        size = 40
        while tests:
            found = in_a_fork(functools.partial(measure, forks, longest, tests[:size]))
            if isinstance(found, list):
                for entry in found:
                    append(log, entry | {"text": forks.text(entry["test"])})
                del tests[: len(found)]
            elif found is None and size > 1:
                size = 1
            else:
                slow = tests.pop(found or 0)
                entry = {"test": slow, "text": forks.text(slow), "seconds": None}
                append(log, entry | {"failure": "too long", "lines": {}})


def run_faults(forks: Forks, folder: Path, arguments: argparse.Namespace) -> None:
    """Try faults, and write down what became of each."""
    seconds, tests_of = read_baseline(folder, set(forks.items))
    log = folder / "faults.jsonl"
    results = {entry["fault"]: entry for entry in read(log)}
    finders: dict[str, list[str]] = defaultdict(list)
    share = 1.0 if arguments.survivors else arguments.share
    for module, name, fault in chosen_faults(arguments.modules or [], share):
        known = name in results
        if known != arguments.survivors or (known and results[name]["status"] == "killed"):
            continue
        where = f"{module}:{fault.function}"
        tests = {test for line in fault.lines for test in tests_of[module, line]}
        if fault.at_import:
            # What a test only reads, and does not run.
            tests |= {test for test in seconds if belongs(test, module)}
        tests = in_order(tests, seconds, finders[where], module, arguments.seconds)
        entry = {"fault": name, "module": module, "line": fault.line, "function": fault.function}
        entry |= {"words": fault.words, "tests": len(tests)}
        start = time.monotonic()
        entry |= outcome(forks, module, fault, {test: seconds[test] for test in tests})
        append(log, entry | {"seconds": round(time.monotonic() - start, 2)})
        if entry["status"] == "killed" and entry["by"] not in finders[where]:
            finders[where].insert(0, entry["by"])


def read_baseline(folder: Path, known: set[str]) -> tuple[dict[str, float], Any]:
    """Return how long tests take, and which run each line; of those that pass in time."""
    seconds, tests_of = {}, defaultdict(list)
    for entry in {entry["test"]: entry for entry in read(folder / "tests.jsonl")}.values():
        if entry["test"] not in known or entry["failure"] is not None:
            continue
        seconds[entry["test"]] = entry["seconds"]
        for module, lines in entry["lines"].items():
            for line in lines:
                tests_of[module, line].append(entry["test"])
    return seconds, tests_of


def in_order(
    tests: set[str], seconds: dict[str, float], finders: list[str], module: str, limit: float
) -> list[str]:
    """Return a few tests: those that found others here, those of the module, the fastest."""

    def rank(test: str) -> tuple[bool, bool, float, str]:
        return test not in finders[:5], not belongs(test, module), seconds[test], test

    chosen, total = [], 0.0
    for test in sorted(tests, key=rank):
        total += seconds[test]
        if total <= limit:
            chosen.append(test)
    return chosen


def belongs(test: str, module: str) -> bool:
    """Tell whether a test is in a file that is named after a module."""
    return Path(module).stem in test.partition("::")[0]


def chosen_faults(words: list[str], share: float) -> Iterator[tuple[str, str, Fault]]:
    """Yield modules, names of faults, and faults: at least two of every function."""
    done = set()
    for path in MODULES:
        found = [PROJECT / path] if path.endswith(".py") else sorted((PROJECT / path).rglob("*.py"))
        for file in found:
            module = str(file.relative_to(PROJECT))
            if module in done or not (not words or any(word in module for word in words)):
                continue
            done.add(module)
            source = file.read_text()
            for number in sample(find_faults(source), share):
                # A tree of its own, in which nothing else is changed.
                fault = find_faults(source)[number]
                yield module, f"{module}:{fault.function}:{number}:{fault.words}", fault


def sample(faults: list[Fault], share: float) -> list[int]:
    """Return the numbers of a share of every function's faults; always the same ones."""
    by_function = defaultdict(list)
    for number, fault in enumerate(faults):
        by_function[fault.function].append(number)
    chosen: list[int] = []
    for function, numbers in by_function.items():
        count = min(len(numbers), max(2, round(share * len(numbers))))
        chosen += random.Random(function).sample(numbers, count)
    return sorted(chosen)


def outcome(forks: Forks, module: str, fault: Fault, seconds: dict[str, float]) -> dict[str, Any]:
    """Return what became of a fault, and which test found it."""
    if not seconds:
        return {"status": "no test"}
    with tempfile.NamedTemporaryFile("w+") as current:

        def work(send: Callable[[Any], None]) -> None:
            try:
                install(fault, importlib.import_module(module_name(module)))
            except Exception as error:
                send({"status": "killed", "by": "import", "why": repr(error)[:200]})
            for test in seconds:
                Path(current.name).write_text(test)
                failure = forks.failure(test, max(2.0, PATIENCE * seconds[test]))
                if failure is not None:
                    send({"status": "killed", "by": test, "why": failure[:200]})
            send({"status": "survived"})

        return in_a_fork(work) or {
            "status": "killed",
            "by": Path(current.name).read_text(),
            "why": "the process was ended: time, memory, or a crash",
        }


def module_name(path: str) -> str:
    """Return the dotted name of a module."""
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def install(fault: Fault, module: types.ModuleType) -> None:
    """Put a fault into a module that is in use."""
    fault.put()
    scratch = dict(vars(module))
    execute(fault.top, module, scratch)
    if isinstance(fault.top, ast.FunctionDef | ast.ClassDef):
        graft(vars(module)[fault.top.name], scratch[fault.top.name])
    else:
        install_values(fault, module)


def execute(statement: ast.stmt, module: types.ModuleType, names: dict[str, Any]) -> None:
    """Run one statement of a module."""
    exec(compile(ast.Module([statement], []), module.__file__ or "", "exec"), names)


def graft(old: Any, new: Any) -> None:
    """Give a function, or all functions of a class, the code and defaults of another."""
    if isinstance(old, type):
        for name, value in vars(new).items():
            if name in vars(old) and is_code(value):
                graft(vars(old)[name], value)
            elif name in vars(old) and isinstance(value, int | float | tuple):
                setattr(old, name, value)
    elif isinstance(old, property):
        for part in ("fget", "fset"):
            if getattr(old, part):
                graft(getattr(old, part), getattr(new, part))
    elif isinstance(old, classmethod | staticmethod):
        graft(old.__func__, new.__func__)
    elif isinstance(old, functools.cached_property):
        graft(old.func, new.func)
    else:
        old, new = inspect.unwrap(old), inspect.unwrap(new)
        if len(old.__code__.co_freevars) == len(new.__code__.co_freevars):
            old.__code__ = new.__code__
            old.__defaults__, old.__kwdefaults__ = new.__defaults__, new.__kwdefaults__


def is_code(value: Any) -> bool:
    """Tell whether something of a class is made of functions."""
    kinds = (property, classmethod, staticmethod, functools.cached_property, types.FunctionType)
    return isinstance(value, kinds) or hasattr(value, "__wrapped__")


def install_values(fault: Fault, module: types.ModuleType) -> None:
    """Compute the values of a module again from the fault on, and hand them to who has them."""
    changed: set[str] = set()
    for statement in fault.tree.body[fault.tree.body.index(fault.top) :]:
        is_value = isinstance(statement, ast.Assign | ast.AnnAssign)
        read_names = {node.id for node in ast.walk(statement) if isinstance(node, ast.Name)}
        if statement is not fault.top and not (is_value and read_names & changed):
            continue
        before = dict(vars(module))
        execute(statement, module, vars(module))
        for name, value in vars(module).items():
            if name in before and before[name] is not value:
                changed.add(name)
                replace_value(name, before[name], value)


def replace_value(name: str, old: Any, new: Any) -> None:
    """Change what modules of the package and tests have, under a name or in other objects."""
    if isinstance(old, types.FunctionType) and isinstance(new, types.FunctionType):
        graft(old, new)
    elif is_dataclass(old) and type(old) is type(new):
        for field in fields(old):
            object.__setattr__(old, field.name, getattr(new, field.name))
    for other, module in list(sys.modules.items()):
        if other.startswith(("skdpot", "tests")) and vars(module).get(name) is old:
            setattr(module, name, new)


def report(folder: Path) -> None:
    """Print a table of the results, and the faults that were not found."""
    results = {entry["fault"]: entry for entry in read(folder / "faults.jsonl")}
    by_module = defaultdict(list)
    for entry in results.values():
        by_module[entry["module"]].append(entry)
    print("| module | faults | tried | found | not found |\n|---|---|---|---|---|")
    for module, entries in by_module.items():
        total = len(find_faults((PROJECT / module).read_text()))
        missed = sum(entry["status"] != "killed" for entry in entries)
        print(f"| {module} | {total} | {len(entries)} | {len(entries) - missed} | {missed} |")
    for module, entries in by_module.items():
        print(f"\n## {module}\n")
        for entry in entries:
            if entry["status"] != "killed":
                print(
                    f"- {entry['line']} `{entry['function']}`: `{entry['words']}` "
                    f"({entry['status']}, {entry['tests']} tests)"
                )


def read(path: Path) -> list[dict[str, Any]]:
    """Return the entries of a file of JSON lines."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def append(path: Path, entry: dict[str, Any]) -> None:
    """Add an entry to a file of JSON lines."""
    with path.open("a") as file:
        file.write(json.dumps(entry) + "\n")


def main() -> None:
    """Do what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("action", choices=["try", "report"])
    parser.add_argument("--modules", nargs="*", help="words of their paths; default all")
    parser.add_argument("--folder", type=Path, required=True, help="where results are kept")
    parser.add_argument("--share", type=float, default=1.0, help="of every function's faults")
    parser.add_argument(
        "--seconds", type=float, default=LONGEST_FAULT, help="CPU time of a fault's tests"
    )
    parser.add_argument("--cases", type=int, default=5, help="of a parametrized test")
    parser.add_argument("--longest", type=float, default=LONGEST_TEST, help="CPU time of a test")
    parser.add_argument("--survivors", action="store_true", help="try those once more")
    parser.add_argument("--tests", nargs="*", default=TESTS, help="where the tests are")
    arguments = parser.parse_args()
    folder = arguments.folder.resolve()
    if arguments.action == "report":
        report(folder)
        return
    folder.mkdir(parents=True, exist_ok=True)
    os.chdir(PROJECT)

    def work(forks: Forks) -> None:
        run_baseline(forks, folder, arguments.cases, arguments.longest)
        run_faults(forks, folder, arguments)

    with tempfile.TemporaryDirectory() as scratch:
        options = [f"--basetemp={scratch}/base", "-q"]
        options += [
            "--tb=native",
            "-p",
            "no:cacheprovider",
            "-m",
            "not benchmark",
            *(f"--ignore={path}" for path in LEFT_OUT),
        ]
        pytest.main(options + arguments.tests, plugins=[Forks(work)])


if __name__ == "__main__":
    main()
