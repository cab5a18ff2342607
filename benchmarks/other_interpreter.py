"""A peer in a Python interpreter of its own, with other versions of what both depend on."""

import os
import subprocess
from pathlib import Path


class OtherInterpreter:
    """Runs one function of a program, again and again, in another interpreter.

    The program defines ``work(path)``, which reads a table and returns another one as the path of
    a file. What it imports is imported once, before the first call.
    """

    LOOP = """
import sys, time
answers, sys.stdout = sys.stdout, sys.stderr
for line in sys.stdin:
    print(work(line.strip()), time.process_time(), sep="\\t", file=answers, flush=True)
"""

    def __init__(self, python: str, program: str) -> None:
        self._python = python
        self._process = subprocess.Popen(
            [python, "-W", "ignore", "-c", program + self.LOOP],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        )  # fmt: skip
        # Of the processor, as the program said when it last answered.
        self.seconds = 0.0

    def version(self, package: str) -> str:
        """Return the version of a package that the other interpreter has."""
        asked = f"from importlib.metadata import version; print(version({package!r}))"
        told = subprocess.run([self._python, "-c", asked], capture_output=True, text=True)
        return told.stdout.strip()

    def __call__(self, path: Path) -> Path:
        self._process.stdin.write(f"{path}\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError("the program in the other interpreter came to an end.")
        made, seconds = answer.rstrip().split("\t")
        self.seconds = float(seconds)
        return Path(made)

    def close(self) -> None:
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()
