"""The plot of a ledger: the epsilon spent after each charge."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from datetime import datetime
from typing import Any

import numpy as np

from ._style import COLOURS, GREY, axes_for, check_option, numbers

# Widest line of a charge, and the width of all charges together, in points.
_WIDEST, _WIDTH_OF_ALL = 14.0, 240.0
_OTHERS = "others"
_BY = ("charge", "time")


@dataclass(eq=False, repr=False)
class LedgerDisplay:
    """The epsilon spent after each charge to a ledger, by label, and its limit.

    Every charge is a vertical line in the colour of its label. Its height is the epsilon that it
    added by the rule of the ledger. This may be less than its own epsilon if releases compose
    tightly, and 0 if another part of the data has spent more. The plot shows labels, numbers and
    times of charges; nothing in it is private unless labels are. Create it with
    :meth:`from_ledger`.

    Parameters
    ----------
    spent : array-like of shape (n_charges,)
        Epsilon spent after each charge, finite.
    labels : sequence of str
        Label of each charge.
    times : sequence of datetime, default=None
        Time of each charge.
    epsilon, delta : float, default=None
        The budget; None, or an infinite epsilon, means no limit.
    unit : str, default=None
        The unit that the releases protect.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Axes of the plot.
    figure_ : matplotlib Figure
        The figure of these axes.
    line_ : matplotlib Line2D
        The spent epsilon, as steps, from 0.
    charges_ : dict of str to matplotlib LineCollection
        Vertical lines of the charges, by label. If there are many labels, those that added least
        are together as ``"others"``.
    limit_ : matplotlib Line2D or None
        The limit, if there is one.

    See Also
    --------
    skdpot.PrivacyLedger.report : The same as a text.

    Examples
    --------
    >>> from skdpot import PrivacyLedger
    >>> from skdpot.display import LedgerDisplay
    >>> from skdpot.privacy import PureDpEvent
    >>> ledger = PrivacyLedger(epsilon=2.0)
    >>> for label in ("mean", "mean", "median"):
    ...     receipt = ledger.charge(PureDpEvent(0.5), unit="record", label=label)
    >>> display = LedgerDisplay.from_ledger(ledger)
    >>> display.line_.get_ydata()
    array([0. , 0.5, 1. , 1.5])
    """

    spent: Any
    labels: Sequence[str]
    _: KW_ONLY
    times: Sequence[datetime] | None = None
    epsilon: float | None = None
    delta: float | None = None
    unit: str | None = None

    @classmethod
    def from_ledger(
        cls, ledger: Any, *, unit: str | None = None, by: str = "charge", ax: Any = None
    ) -> "LedgerDisplay":
        """Plot the charges of a ledger, without changing it.

        Parameters
        ----------
        ledger : PrivacyLedger
            The ledger. For a part of a partition, the whole ledger is plotted.
        unit : {"record", "user", "edge", "node"}, default=None
            The unit to plot. Each unit has the whole budget. None chooses the unit that has spent
            most.
        by : {"charge", "time"}, default="charge"
            See :meth:`plot`.
        ax : matplotlib Axes, default=None
            Axes for the plot; None makes a new figure.

        Returns
        -------
        LedgerDisplay
            The plot.

        Raises
        ------
        TypeError
            If `ledger` is not a PrivacyLedger.
        ValueError
            If the unit is unknown.
        """
        if not (hasattr(ledger, "entries") and hasattr(ledger, "spent")):
            raise TypeError(f"ledger must be a PrivacyLedger, got an object of {type(ledger)}.")
        spent_by_unit = {total.unit: total.spent for total in ledger.report().units}
        if unit is None:
            unit = max(spent_by_unit, key=lambda total: spent_by_unit[total], default="record")
        entries = [entry for entry in ledger.entries() if entry.unit == unit]
        display = cls(
            [epsilon for epsilon, _ in ledger.spent_after_each(unit=unit)],
            [entry.label for entry in entries],
            times=[datetime.fromisoformat(entry.time) for entry in entries],
            epsilon=ledger.epsilon,
            delta=ledger.delta,
            unit=unit,
        )
        return display.plot(ax, by=by)

    def plot(self, ax: Any = None, *, by: str = "charge") -> "LedgerDisplay":
        """Plot the charges.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Axes for the plot; None makes a new figure.
        by : {"charge", "time"}, default="charge"
            ``"charge"`` places charges at equal distances, ``"time"`` at their times.

        Returns
        -------
        LedgerDisplay
            This object.

        Raises
        ------
        ImportError
            If matplotlib is not installed.
        ValueError
            If there is not one finite number, one label and one time for each charge.
        """
        spent = self._checked_spent()
        places = self._places(by, len(spent))
        self.ax_ = ax = axes_for(ax, figsize=(7.6, 4.2))
        self.figure_ = ax.figure
        levels = np.concatenate([[0.0], spent])
        beginning = [0] if by == "charge" else places[:1]
        xs = [*beginning, *places] if len(spent) else [0]
        (self.line_,) = ax.step(xs, levels, where="post", color=GREY, linewidth=1.0, zorder=1)
        self._plot_charges(places, levels)
        self._finish(by, len(spent))
        return self

    def _checked_spent(self) -> np.ndarray:
        spent = numbers(self.spent)
        if spent.shape != (len(self.labels),) or not np.isfinite(spent).all():
            raise ValueError(f"spent must be {len(self.labels)} finite numbers, one per label.")
        return spent

    def _places(self, by: str, n_charges: int) -> list[Any]:
        check_option("by", by, _BY)
        if by == "charge":
            return list(range(1, n_charges + 1))
        if self.times is None or len(self.times) != n_charges:
            raise ValueError(f"times must be given for all of {n_charges} charges, for by='time'.")
        return list(self.times)

    def _plot_charges(self, places: list[Any], levels: np.ndarray) -> None:
        rises = np.diff(levels)
        shown = _largest_labels(self.labels, rises)
        width = float(np.clip(_WIDTH_OF_ALL / max(len(places), 1), 2.0, _WIDEST))
        self.charges_ = {}
        for label, colour in [*zip(shown, COLOURS, strict=False), (_OTHERS, "0.7")]:
            chosen = [
                k
                for k, name in enumerate(self.labels)
                if name == label or (label == _OTHERS and name not in shown)
            ]
            if not chosen:
                continue
            xs = [places[k] for k in chosen]
            style = {"color": colour, "linewidth": width, "label": label, "zorder": 2}
            self.charges_[label] = self.ax_.vlines(xs, levels[chosen], levels[1:][chosen], **style)
            # A mark shows charges that add nothing.
            self.ax_.scatter(xs, levels[1:][chosen], s=width**2, marker="_", color=colour, zorder=3)

    def _finish(self, by: str, n_charges: int) -> None:
        ax, highest, self.limit_ = self.ax_, self.line_.get_ydata()[-1], None
        if self.epsilon is not None and np.isfinite(self.epsilon):
            text = rf"budget: $\varepsilon$ = {self.epsilon:g}"
            text += rf", $\delta$ = {self.delta:g}" if self.delta else ""
            self.limit_ = ax.axhline(self.epsilon, color="black", linestyle="--", label=text)
            highest = max(highest, self.epsilon)
        ax.set(ylim=(0, 1.08 * highest or 1.0), ylabel=r"$\varepsilon$ spent")
        ax.set_xlabel(
            ("Charge" if by == "charge" else "Time of charge")
            + ("" if self.unit is None else f", unit: {self.unit}")
        )
        if by == "charge":
            ax.set_xlim(0, n_charges + 0.7)
            ax.xaxis.get_major_locator().set_params(integer=True)
        else:
            ax.tick_params(axis="x", rotation=30)
        ax.grid(axis="y", alpha=0.3)
        if not n_charges:
            ax.text(0.5, 0.5, "nothing was released", transform=ax.transAxes, ha="center")
        if self.charges_ or self.limit_ is not None:
            ax.legend(fontsize="small", loc="center left", bbox_to_anchor=(1.0, 0.5))


def _largest_labels(labels: Sequence[str], rises: np.ndarray) -> list[str]:
    """Return the labels that have colours, in the order of their first charges.

    These are all labels if there are enough colours, otherwise those that added most.
    """
    unique = list(dict.fromkeys(labels))
    if len(unique) <= len(COLOURS):
        return unique
    totals = dict.fromkeys(unique, 0.0)
    for label, rise in zip(labels, rises, strict=True):
        totals[label] += rise
    largest = set(sorted(unique, key=lambda label: -totals[label])[: len(COLOURS)])
    return [label for label in unique if label in largest]
