"""The published rounds of a federated barycenter, over any carrier of bytes; not private."""

import io
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from skdpot.privacy.checks import redact_errors
from skdpot.transport.barycenter import BarycenterResult, PointGroup, solve


class BarycenterOwner:
    """An owner of one group's rows, who answers the coordinator's steps; **not private**.

    The rows stay here, but answers disclose many of them: exact distances to points that the
    coordinator chooses determine a row by a little geometry. Sums over several owners disclose
    means, and many rows, too.

    Parameters
    ----------
    points : array-like of shape (n, n_features)
        The group's rows.

    See Also
    --------
    barycenter_rounds : The coordinator.
    skdpot.parts : Releases of several owners that are private.

    Examples
    --------
    >>> from skdpot.published import BarycenterOwner, barycenter_rounds
    >>> owner = BarycenterOwner([[0.0], [1.0]])
    >>> def ask(messages):
    ...     return [owner.answer(messages[0])]
    >>> barycenter_rounds(ask, 1, 1, n_features=1, method="free").support
    array([[0.5]])
    """

    def __init__(self, points: Any) -> None:
        # Errors of NumPy quote values, and rows are private.
        self._group = redact_errors(
            lambda: PointGroup(points), "points must be a non-empty matrix of finite numbers."
        )

    def answer(self, message: bytes) -> bytes:
        """Answer a step once; the state changes.

        Parameters
        ----------
        message : bytes
            A step, as the coordinator sends it.

        Returns
        -------
        bytes
            The weighted summand of this group.
        """
        arrays = _unpacked(message)
        kind, place = str(arrays.pop("kind of step")), int(arrays.pop("place"))
        return _packed({"answer": self._group.answer(kind, arrays, place)})

    def put_away(self) -> bytes:
        """Return the state, for a process that answers one step only.

        Returns
        -------
        bytes
            The state without the rows; as sensitive as they are.
        """
        return _packed(self._group.put_away())

    def restore(self, state: bytes) -> None:
        """Go on from a state of an owner with the same rows.

        Parameters
        ----------
        state : bytes
            What `put_away` returned.
        """
        self._group.restore(_unpacked(state))


def barycenter_rounds(
    ask: Callable[[Sequence[bytes]], Sequence[bytes]], n_owners: int, n_support: int, **problem: Any
) -> BarycenterResult:
    r"""Compute the Wasserstein barycenter of groups that stay with their owners; **not private**.

    In each round the coordinator sends all owners one message, and adds their answers up. Only the
    sum is used: it minimises :math:`\sum_s \lambda_s W_2^2(Q_s, q)`.

    Parameters
    ----------
    ask : callable
        The carrier: a function of the owners' messages, in order, that returns their answers.
    n_owners : int
        Number of owners, each of whom has one group.
    n_support : int
        Number of points of the barycenter, which have equal masses.
    **problem
        ``method`` ("dual", the paper's; "bundle" or "free"), ``candidates``,
        ``weights``, ``tol``, ``max_iter``, ``n_features``.

    Returns
    -------
    BarycenterResult
        With ``support``, ``objective``, a certified ``gap``, and ``n_rounds``.

    Raises
    ------
    ValueError
        If a parameter is wrong, or an answer has another length or is not finite.

    References
    ----------
    Z. Lin, A. Ruszczyński, "Federated Calculation of the Free-Support Transportation Barycenter by
    Single-Loop Dual Decomposition".

    Examples
    --------
    >>> from skdpot.published import BarycenterOwner, barycenter_rounds
    >>> owners = [BarycenterOwner([[0.0], [1.0]]), BarycenterOwner([[4.0], [5.0]])]
    >>> def ask(messages):
    ...     return [owner.answer(sent) for owner, sent in zip(owners, messages)]
    >>> found = barycenter_rounds(ask, 2, 2, n_features=1, method="free")
    >>> found.support.round(6).tolist(), round(found.objective, 6)
    ([[2.0], [3.0]], 4.0)
    """
    rounds = solve(n_owners, n_support, **problem)
    step, n_rounds = next(rounds), 0
    while True:
        n_rounds += 1
        # The kind travels as an array, as a message is a file of arrays and nothing else.
        told = {**step.arrays, "kind of step": np.array(step.kind)}
        answers = ask([_packed({**told, "place": np.array(place)}) for place in range(n_owners)])
        found = [_unpacked(answer)["answer"] for answer in answers]
        # A missing answer would be a sum over fewer owners, and nobody would notice.
        if len(found) != n_owners or any(one.shape != (step.size,) for one in found):
            raise ValueError(f"step {step.kind!r} needs {n_owners} answers of {step.size} numbers.")
        try:
            # All that the method sees is the sum.
            step = rounds.send(np.sum(found, axis=0))
        except StopIteration as end:
            return replace(end.value, n_rounds=n_rounds)


def _packed(arrays: dict[str, Any]) -> bytes:
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


def _unpacked(data: bytes) -> dict[str, np.ndarray]:
    # Without pickles, no message can execute code.
    with np.load(io.BytesIO(data), allow_pickle=False) as file:
        return dict(file)
