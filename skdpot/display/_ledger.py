"""How a ledger's budget was spent, charge by charge."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import numpy as np

from skdpot.display._style import COLOURS, GREY, axes_for, numbers

# Points: the widest line of a charge; and, over the number of charges, how wide they are.
_WIDEST, _WIDTH_OF_ALL = 14.0, 240.0
_OTHERS = "others"
_BY = ("charge", "time")


class LedgerDisplay:
    """The epsilon spent after each charge to a ledger, by what was released, and its limit.

    Every charge is a vertical line in the colour of its label, as high as the epsilon that it
    added by the rule that admits charges; that is less than its own where releases compose
    tightly, and nothing where a part of the data has spent less than another part. Labels, numbers
    and times of charges are what the ledger holds: nothing of it is private unless labels are. Make
    one with :meth:`from_ledger`.

    Parameters
    ----------
    spent : array-like of shape (n_charges,)
        Epsilon spent after each charge, finite.
    labels : sequence of str
        What was released by each.
    times : sequence of datetime, default=None
        When each was charged.
    epsilon, delta : float, default=None
        The budget; None, or an infinite epsilon, is no limit.
    unit : str, default=None
        Whom the releases protect.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Where it was plotted.
    figure_ : matplotlib Figure
        The figure of these axes.
    line_ : matplotlib Line2D
        What was spent, as steps, from 0.
    charges_ : dict of str to matplotlib LineCollection
        By label, a vertical line for each charge; the labels that added least, where there are many
        of them, together as ``"others"``.
    limit_ : matplotlib Line2D or None
        The limit, if there is one.

    See Also
    --------
    skdpot.PrivacyLedger.report : The same as text.

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

    def __init__(
        self,
        spent: Any,
        labels: Sequence[str],
        *,
        times: Sequence[datetime] | None = None,
        epsilon: float | None = None,
        delta: float | None = None,
        unit: str | None = None,
    ) -> None:
        self.spent = spent
        self.labels = labels
        self.times = times
        self.epsilon = epsilon
        self.delta = delta
        self.unit = unit

    @classmethod
    def from_ledger(
        cls, ledger: Any, *, unit: str | None = None, by: str = "charge", ax: Any = None
    ) -> "LedgerDisplay":
        """Plot what a ledger holds, which changes nothing of it.

        Parameters
        ----------
        ledger : PrivacyLedger
            The ledger. Of a part of a partition, the whole ledger is plotted.
        unit : {"record", "user", "edge", "node"}, default=None
            Whose budget: units are never added up, and each has all of it. None is the unit that
            has spent most.
        by : {"charge", "time"}, default="charge"
            See :meth:`plot`.
        ax : matplotlib Axes, default=None
            Where to plot; None makes a new figure.

        Returns
        -------
        LedgerDisplay
            The plot.

        Raises
        ------
        TypeError
            If it is no such ledger, but an accountant, say, which holds no labels.
        ValueError
            If there is no such unit.
        """
        if not (hasattr(ledger, "entries") and hasattr(ledger, "spent")):
            raise TypeError(f"ledger must be a PrivacyLedger, got an object of {type(ledger)}.")
        spent_by_unit = {each.unit: each.spent for each in ledger.report().units}
        if unit is None:
            unit = max(spent_by_unit, key=lambda each: spent_by_unit[each], default="record")
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
        """Plot it, once more.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Where to plot; None makes a new figure.
        by : {"charge", "time"}, default="charge"
            Whether charges are at equal distances, or where they were in time.

        Returns
        -------
        LedgerDisplay
            This very object.

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
        (self.line_,) = ax.step(
            [*beginning, *places] if len(spent) else [0],
            levels,
            where="post",
            color=GREY,
            linewidth=1.0,
            zorder=1,
        )
        self._plot_charges(places, levels)
        self._plot_limit()
        self._finish(by, len(spent))
        return self

    def _checked_spent(self) -> np.ndarray:
        spent = numbers(self.spent)
        if spent.ndim != 1 or len(spent) != len(self.labels):
            raise ValueError(
                f"spent must be one number for each of {len(self.labels)} labels, got shape "
                f"{spent.shape}."
            )
        if not np.isfinite(spent).all():
            raise ValueError(
                "spent must be finite: some release of the ledger has no finite epsilon."
            )
        return spent

    def _places(self, by: str, n_charges: int) -> list[Any]:
        if by not in _BY:
            raise ValueError(f"by must be one of {_BY}, got {by!r}.")
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
                for k, each in enumerate(self.labels)
                if each == label or (label == _OTHERS and each not in shown)
            ]
            if not chosen:
                continue
            at = [places[k] for k in chosen]
            self.charges_[label] = self.ax_.vlines(
                at,
                levels[chosen],
                levels[1:][chosen],
                color=colour,
                linewidth=width,
                label=label,
                zorder=2,
            )
            # What adds nothing is seen, too.
            self.ax_.scatter(at, levels[1:][chosen], s=width**2, marker="_", color=colour, zorder=3)

    def _plot_limit(self) -> None:
        self.limit_ = None
        if self.epsilon is None or not np.isfinite(self.epsilon):
            return
        said = rf"budget: $\varepsilon$ = {self.epsilon:g}"
        if self.delta:
            said += rf", $\delta$ = {self.delta:g}"
        self.limit_ = self.ax_.axhline(
            self.epsilon, color="black", linestyle="--", linewidth=1.2, label=said
        )

    def _finish(self, by: str, n_charges: int) -> None:
        ax = self.ax_
        highest = max(self.line_.get_ydata()[-1], self.limit_.get_ydata()[0] if self.limit_ else 0)
        ax.set(ylim=(0, 1.08 * highest if highest else 1.0), ylabel=r"$\varepsilon$ spent")
        of_unit = "" if self.unit is None else f", unit: {self.unit}"
        if by == "charge":
            ax.set(xlabel=f"Charge{of_unit}", xlim=(0, n_charges + 0.7))
            ax.xaxis.get_major_locator().set_params(integer=True)
        else:
            ax.set_xlabel(f"Time of charge{of_unit}")
            ax.tick_params(axis="x", rotation=30)
        ax.grid(axis="y", alpha=0.3)
        ax.set_axisbelow(True)
        if not n_charges:
            ax.text(0.5, 0.5, "nothing was released", transform=ax.transAxes, ha="center")
        if self.charges_ or self.limit_ is not None:
            ax.legend(fontsize="small", loc="center left", bbox_to_anchor=(1.0, 0.5))


def _largest_labels(labels: Sequence[str], rises: np.ndarray) -> list[str]:
    """Return the labels that have colours, in the order in which they came up.

    All of them if there are colours enough, otherwise those that added most.
    """
    known = list(dict.fromkeys(labels))
    if len(known) <= len(COLOURS):
        return known
    totals = dict.fromkeys(known, 0.0)
    for label, rise in zip(labels, rises, strict=True):
        totals[label] += rise
    kept = set(sorted(known, key=lambda label: -totals[label])[: len(COLOURS)])
    return [label for label in known if label in kept]
