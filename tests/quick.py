"""Cases of which the quick tests try some, and the long tests all."""

import pytest


def first_quick(cases, count=1):
    """Return the parameters of a test, of which those after the first ones are long tests.

    Where all cases go the same way, and a case takes seconds, one of them shows most faults. A
    tuple has the values of several parameters.
    """
    cases = [case if isinstance(case, tuple) else (case,) for case in cases]
    quick = [pytest.param(*case) for case in cases[:count]]
    return quick + [pytest.param(*case, marks=pytest.mark.experiment) for case in cases[count:]]
