"""Charges of a call, and the sentence on them that an interrupted call ends with."""

from collections.abc import Callable, Iterable
from contextvars import ContextVar
from typing import NamedTuple


class Draft(NamedTuple):
    """A charge that was begun.

    Attributes
    ----------
    words : str
        What is charged, for which release; public.
    is_charged : callable
        Asks the ledger whether the charge was made, or was given up before.
    """

    words: str
    is_charged: Callable[[], bool]


# Of the call that is under way; None while there is none that tells of its charges.
drafts_of_call: ContextVar[list[Draft] | None] = ContextVar("drafts of a call", default=None)


def note_draft(words: str, is_charged: Callable[[], bool]) -> None:
    """Note a charge that is about to be made."""
    drafts = drafts_of_call.get()
    if drafts is not None:
        drafts.append(Draft(words, is_charged))


def tell_of_charges(error: BaseException, drafts: Iterable[Draft], has_kept: bool) -> None:
    """Add to an error what had been charged when it was raised.

    Parameters
    ----------
    error : BaseException
        What ended a call. A refusal that charged nothing says what is wrong, and no more.
    drafts : iterable of Draft
        Charges that the call began.
    has_kept : bool
        Whether the estimator is another one than before the call.
    """
    try:
        charged = [draft.words for draft in drafts if draft.is_charged()]
    except Exception:
        error.add_note("Whether the ledger was charged cannot be found out: see its entries.")
        return
    if charged:
        became = (
            "What was released is kept in the fitted attributes."
            if has_kept
            else "What was released is lost, and another call is charged again."
        )
        error.add_note(
            f"The ledger was charged before this, and stays charged: {'; '.join(charged)}. {became}"
        )
    elif not isinstance(error, Exception):
        error.add_note("Nothing was charged.")
