"""Cases of which the quick tests try some, and the long tests all."""

import pytest


def first_quick(cases, count=1):
    """Return the parameters of a test, of which those after the first ones are long tests.

    Where all cases go the same way, and a case takes seconds, one of them shows most faults.
    """
    cases = list(cases)
    return cases[:count] + [pytest.param(c, marks=pytest.mark.experiment) for c in cases[count:]]
