"""A secret number, ledgers with room for many charges, and refusals that tell nothing."""

import traceback

import pytest

from skdpot import PrivacyLedger

SECRET = 0.61803398875


def make_ledger(epsilon=100.0, **options):
    return PrivacyLedger(epsilon, 0.5, **{"neighbouring": "add_remove"} | options)


def refuse_without_telling(release, message, error=(ValueError, TypeError)):
    """Check that a release is refused, with this message, in which nothing private is shown."""
    with pytest.raises(error, match=message) as caught:
        release()
    shown = "".join(traceback.format_exception(caught.value, limit=0))
    assert str(SECRET)[2:7] not in shown and "secret" not in shown
