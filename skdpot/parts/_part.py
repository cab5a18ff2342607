"""Parts of owners: one is made from private rows, and all are added up."""

import hashlib
import io
import json
import os
import secrets
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from skdpot import __version__
from skdpot._base import warn_of_few, warn_user
from skdpot.parts._agreement import Agreement
from skdpot.privacy import PrivacyLedger
from skdpot.privacy.checks import draft_of, names_of, refuse_other_rows, silence, to_display
from skdpot.privacy.events import event_to_json
from skdpot.privacy.noise import derive_key, keyed_source

_FORMAT = "skdpot part 1"
# Begins a file with a key.
_KEY = b"skdpot key 1\n"


def make_part(
    agreement: Agreement,
    owner: str,
    X: Any,
    labels: Any = None,
    *,
    ledger: PrivacyLedger,
    path: str | os.PathLike,
    again: bool = False,
) -> Path:
    """Release an owner's part of the sums, charged to her ledger, as a file that may be published.

    **What is protected.** Every record of this owner, as by a fit of the estimator to her rows
    alone, against everybody: those who see the file, those who add the parts up, and the other
    owners together. Nobody has to be trusted. Not protected are the number of her records, and that
    she takes part. Whoever may call this function with her rows also learns whether their sums are
    those of an earlier call.

    **A part is made once.** All noise comes from a secret key beside the ledger, the agreement, the
    number of earlier parts and the sums. So the same rows give the same file again, which is not
    charged again. Other rows are another release: they are refused, unless `again` is true, and
    then charged. While the key exists the guarantee is computational: whoever has the key can take
    the noise away.

    Parameters
    ----------
    agreement : Agreement
        What all owners agreed on.
    owner : str
        The name of this owner in the agreement.
    X : {array-like, DataFrame} of shape (n_records, n_features)
        Her private rows, with the agreed columns.
    labels : array-like of shape (n_records,), default=None
        The group of every row, unless a column of X has it.
    ledger : PrivacyLedger
        Her own ledger.
    path : str or Path
        The file to be written. Only a part of this owner for this agreement is replaced.
    again : bool, default=False
        Whether to make another part after one was made for this agreement, of other rows or of the
        same. It has new noise and is charged, if the calls are made one after another.

    Returns
    -------
    Path
        The file.

    Raises
    ------
    ValueError
        If the owner or the columns are not those of the agreement, `path` is a file of the ledger,
        or a part of other rows was made. Nothing has been charged then.
    FileExistsError
        If a file that is not replaced has this path. Nothing has been charged then.
    BudgetExceededError
        If the ledger does not allow the release. Nothing has been released then.

    Warns
    -----
    UserWarning
        If the part counts far fewer records than X has, as of labels that are not agreed on.

    See Also
    --------
    add_parts : The estimator that is fitted to all parts.

    Notes
    -----
    Make the parts of a ledger one after another. Of calls at the same time each may find that no
    part was made: then those of the same rows make one part, charged once, even with `again`; and
    those of different rows make a part each, also without `again`, and each is charged.

    The noise of a part is all that the owner's own rows need. So the sum of k parts has k times the
    variance of the noise of one fit to all rows: as if the rows were fewer by the factor of the
    root of k. The proof is in :ref:`proof-parts`.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import numpy as np
    >>> from skdpot import FairBarycenterPreprocessor, PrivacyLedger
    >>> from skdpot.parts import Agreement, add_parts, make_part
    >>> repair = FairBarycenterPreprocessor(epsilon=2.0, bounds=(-4, 5), groups=["f", "m"])
    >>> agreement = Agreement(repair, 2, 4000, ["north", "south"])
    >>> rng, folder, files = np.random.default_rng(0), Path(tempfile.mkdtemp()), []
    >>> for owner in agreement.owners:
    ...     group = rng.choice(["f", "m"], 2000)
    ...     X = rng.normal(size=(2000, 2)) + (group == "f")[:, None]
    ...     ledger, file = PrivacyLedger(2.0), folder / f"{owner}.part"
    ...     files.append(make_part(agreement, owner, X, group, ledger=ledger, path=file))
    >>> add_parts(files, random_state=0).transform(X, sensitive_features=group).shape
    (2000, 2)
    """
    if not isinstance(agreement, Agreement):
        raise TypeError(f"agreement must be an Agreement, got {type(agreement).__name__}.")
    if not isinstance(ledger, PrivacyLedger):
        raise TypeError(f"ledger must be the owner's PrivacyLedger, got {type(ledger).__name__}.")
    if owner not in agreement.owners:
        raise ValueError(
            f"{to_display(owner)} is no owner of this agreement; its owners are "
            f"{list(agreement.owners)}."
        )
    target = Path(path)
    if not os.access(target.parent, os.W_OK):
        raise FileNotFoundError(f"nothing was charged: there is no folder {target.parent} for it.")
    # A part must not replace a file of the ledger.
    own = [Path(f"{ledger.path}{end}") for end in ("", "-wal", "-shm", "-journal", ".key")]
    places = {target.resolve(), target.parent.resolve() / target.name}
    for file in own:
        same = target.exists() and file.exists() and target.samefile(file)
        if same or places & {file.resolve(), file.parent.resolve() / file.name}:
            raise ValueError(f"path is a file of the ledger, {file}: give another path.")
    if target.exists():
        told: dict[str, Any] = {}
        with suppress(ValueError, OSError):
            told = _read(target)[0]
        if (told.get("agreement"), told.get("owners")) != (agreement.text, [owner]):
            raise FileExistsError(
                f"{target} is no part of {owner!r} for this agreement, and would be replaced: "
                "nothing was charged. Give another path."
            )
    estimator, plan = agreement._planned()
    grouped = any(getattr(estimator, name, None) is not None for name in ("groups", "classes"))
    if labels is None and grouped and getattr(estimator, "sensitive_features", None) is None:
        raise ValueError("the agreement needs the group of every row: pass labels.")
    name = getattr(labels, "name", None)
    if isinstance(name, str) and name in names_of(X, "columns") and X[name].dtype == labels.dtype:
        raise ValueError(f"column {name!r} is in X and in labels: drop it from X, or rename it.")
    X = agreement._arranged(X)
    with silence(), np.errstate(all="ignore"):
        refuse_other_rows(X, {"labels": labels})
        values = estimator._private_sums(plan, estimator._validate(X, labels))
    which = f"for {agreement.digest[:16]}"
    label = f"{plan.label}, part of {owner} {which}"
    if any(one.label.endswith(which) and not one.label.endswith(label) for one in ledger.entries()):
        raise ValueError(
            "nothing was charged: the ledger holds the part of another owner of this agreement, "
            "and each has people, and a ledger, of her own."
        )
    plan = replace(plan, label=label)
    warn_user(plan.refuse_useless(None))
    key = _key_of(ledger)
    made = [entry.token for entry in ledger.entries() if str(entry.token).startswith(f"{label}, ")]
    # Noise of two scales from one stream would cancel: another version or event has another stream.
    about = agreement.digest, owner, __version__, event_to_json(plan.event), str(values.shape)

    def named(number: int) -> tuple[str, tuple[bytes, ...]]:
        what = *(text.encode() for text in (*about, str(number))), values.tobytes()
        return f"{label}, {derive_key(key, b'token', *what).hex()[:32]}", what

    # A part that is charged has noise of its own: equal files would tell that sums are equal.
    tokens = dict(map(named, [len(made)] if again or not made else range(len(made))))
    token = next((one for one in tokens if again or not made or one in made), None)
    if token is None:
        raise ValueError(
            "a part for this agreement was made before, of other rows or with another key, and "
            "nothing was charged now. Take the file that was made; or pass again=True for another "
            "release, which is charged."
        )
    # Its token tells what is released: the ledger may be labelled otherwise than it was.
    if token not in made:
        plan.charge_to(ledger, token=token)
    try:
        with np.errstate(all="ignore"):
            sums = plan.release.add_noise(values, keyed_source(key, b"part", *tokens[token]))
        _write(target, agreement, [owner], sums)
    except BaseException as error:
        error.add_note("The ledger was charged. The same rows give the part again at no cost.")
        raise
    # By what she has released, and the number of her rows where it is public.
    if plan.guarantee.neighbouring == "replace_one":
        counts, noise = plan.release.counted(sums)
        warn_of_few(counts, noise, len(X))
    return target


def add_parts(
    paths: Sequence[str | os.PathLike] | str | os.PathLike,
    *,
    agreement: Agreement | None = None,
    path: str | os.PathLike | None = None,
    n_jobs: int | None = None,
    random_state: Any = None,
) -> Any:
    """Add the parts of all owners up, and return the estimator that is fitted to their sum.

    This is post-processing: the parts are private already, and so is everything computed from them.

    Parameters
    ----------
    paths : sequence of str or Path, or str or Path
        The files of all owners, one of each; or the one file that `path` wrote.
    agreement : Agreement, default=None
        If given, the parts must be of this agreement.
    path : str or Path, default=None
        Where to write the sum, a file like a part.
    n_jobs : int, default=None
        As of the estimator.
    random_state : int, RandomState instance or None, default=None
        As of the estimator: for its search, and for the draws of `transform`.

    Returns
    -------
    estimator : object
        The agreed estimator, fitted. ``privacy_guarantee_`` is that of every owner's part.

    Raises
    ------
    ValueError
        If a file is no part, was cut or changed, or is of another agreement; or if an owner is
        missing or there twice.

    See Also
    --------
    make_part : The release of one owner.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from skdpot import PrivacyLedger, PrivateSinkhornDistance
    >>> from skdpot.parts import Agreement, add_parts, make_part
    >>> drift = PrivateSinkhornDistance(
    ...     bounds=(0, 9), metric="euclidean", mechanism="histogram", groups=["may", "june"]
    ... )
    >>> agreement = Agreement(drift, 1, 4000, ["north", "south"])
    >>> days, month = [[k % 5] for k in range(2000)], ["may", "june"] * 1000
    >>> for owner in agreement.owners:
    ...     file = Path(tempfile.gettempdir()) / f"{owner}.part"
    ...     made = make_part(agreement, owner, days, month, ledger=PrivacyLedger(1.0), path=file)
    >>> files = [Path(tempfile.gettempdir()) / f"{owner}.part" for owner in agreement.owners]
    >>> bool(add_parts(files).distance_ < 1)
    True
    """
    several = [paths] if isinstance(paths, str | os.PathLike) else paths
    found = [_read(Path(one)) for one in several]
    if not found:
        raise ValueError("there are no parts: give the files of all owners.")
    texts = {part["agreement"] for part, _ in found} | ({agreement.text} if agreement else set())
    if len(texts) > 1:
        raise ValueError(
            "the parts are of different agreements: all owners must use the same file. Compare "
            f"their digests: {sorted(Agreement.from_text(text).digest[:16] for text in texts)}."
        )
    agreed = agreement or Agreement.from_text(texts.pop())
    owners = [owner for part, _ in found for owner in part["owners"]]
    twice = sorted({owner for owner in owners if owners.count(owner) > 1})
    missing = [owner for owner in agreed.owners if owner not in owners]
    if twice or missing or len(owners) != len(agreed.owners):
        raise ValueError(
            "there must be one part of each owner of the agreement. Missing are "
            f"{missing or 'none'}, and there more than once are {twice or 'none'}."
        )
    total = np.sum([sums for _, sums in found], axis=0)
    estimator, plan = agreed._planned()
    estimator.set_params(random_state=random_state)
    if n_jobs is not None:
        estimator.set_params(n_jobs=n_jobs)
    with np.errstate(all="ignore"):
        estimator._keep_parts(plan, total, agreed._empty_table())
    if path is not None:
        _write(Path(path), agreed, owners, total)
    return estimator


def _key_of(ledger: PrivacyLedger) -> bytes:
    """Return the secret key beside a ledger, which is made at its first part."""
    path = Path(f"{ledger.path}.key")
    if not os.path.lexists(path):
        # Whole on the disk before it has its name: after a crash it could be zeros.
        # A key that was made meanwhile stays.
        with suppress(FileExistsError), draft_of(path, linked=True) as draft:
            with open(draft, "xb", opener=partial(os.open, mode=0o600)) as file:
                file.write(_KEY + secrets.token_bytes(32))
                file.flush()
                os.fsync(file.fileno())
    key = b""
    with suppress(OSError), open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW), "rb") as found:
        # A copy from a backup may have lost its mode. That of another account keeps its own.
        os.fchmod(found.fileno(), 0o600)
        key = found.read().removeprefix(_KEY)
    if len(key) != 32 or len(set(key)) == 1:
        raise ValueError(
            f"{path} is no key that this version of skdpot reads: it must be a file of this "
            "account with 32 bytes, not all equal, and no link. Restore it from a backup."
        )
    return key


def _write(path: Path, agreement: Agreement, owners: list[str], sums: np.ndarray) -> None:
    """Write a part at once, with the digest of all that it says."""
    told = {"format": _FORMAT, "agreement": agreement.text, "owners": owners}
    text = json.dumps(told, sort_keys=True)
    digest = hashlib.sha256(text.encode() + sums.tobytes()).hexdigest()
    with draft_of(path) as draft, open(draft, "xb") as file:
        np.savez(file, told=np.array(text), digest=np.array(digest), sums=sums)


def _read(path: Path) -> tuple[dict[str, Any], np.ndarray]:
    """Return what a part says, and its sums; or raise."""
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder: pass its files, as by glob('*.part').")
    try:
        with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as file:
            text, digest, sums = str(file["told"]), str(file["digest"]), file["sums"]
        told = json.loads(text)
        found = hashlib.sha256(text.encode() + sums.tobytes()).hexdigest()
        if told["format"] != _FORMAT or digest != found or not np.isfinite(sums).all():
            raise ValueError
    except FileNotFoundError:
        raise
    except Exception as error:
        raise ValueError(
            f"{path} is no part, or was cut or changed. Ask its owner for the file again."
        ) from error
    return told, sums
