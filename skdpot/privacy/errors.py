"""Errors of a ledger."""

from typing import Any


class BudgetExceededError(ValueError):
    """Error: the budget does not allow a charge. Nothing is recorded and nothing is released.

    Parameters
    ----------
    message : str
        The full message.
    asked, spent, left : tuple of two float
        Pairs (epsilon, delta): of the charge, of the earlier releases, and of the remaining
        budget.
    """

    def __init__(self, message: str, asked: Any, spent: Any, left: Any) -> None:
        super().__init__(message, asked, spent, left)
        self.asked, self.spent, self.left = asked, spent, left

    def __str__(self) -> str:
        return str(self.args[0])


class LedgerError(RuntimeError):
    """The ledger's file cannot be used, and nothing may be released.

    Nothing was charged, unless the message says that a charge is recorded.
    """


class LedgerTamperedError(LedgerError):
    """The ledger's file differs from what was written to it."""
