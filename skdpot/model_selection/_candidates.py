"""Candidates of a search: independent draws, and copies that are safe to try on records."""

from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.model_selection import ParameterGrid, ParameterSampler
from sklearn.utils import get_tags

from skdpot._sklearn_compat import validate_nested_parameters
from skdpot.privacy import PrivacyLedger
from skdpot.privacy.charging import is_budget_accountant


def draw_candidates(param_distributions: Any, count: int, source: Any) -> list[dict[str, Any]]:
    """Return the parameters of candidates, drawn independently from one distribution.

    `sklearn.model_selection.ParameterSampler` draws *without* replacement if all parameters are
    lists; here draws are always with replacement. Equal candidates from lists are one object.
    """
    seeds = [int(seed) for seed in source.bits(62, 4)]
    rng = np.random.RandomState(np.random.MT19937(np.random.SeedSequence(seeds)))
    sampler = ParameterSampler(param_distributions, 1, random_state=rng)
    if any(
        hasattr(values, "rvs") for part in sampler.param_distributions for values in part.values()
    ):
        return [next(iter(sampler)) for _ in range(count)]
    grid = ParameterGrid(param_distributions)
    positions = rng.randint(len(grid), size=count, dtype=np.int64)
    points = {position: grid[position] for position in set(positions.tolist())}
    return [points[position] for position in positions.tolist()]


def make_candidate(estimator: Any, params: dict[str, Any]) -> Any:
    """Return an unfitted copy of an estimator with a candidate's parameters.

    Raises ValueError if there is no such parameter, or an estimator of scikit-learn's kind does not
    allow its value.
    """
    candidate = clone(estimator).set_params(**clone(params, safe=False))
    validate_nested_parameters(candidate)
    if get_tags(candidate).input_tags.pairwise:
        raise ValueError(
            "a matrix of distances or kernels between records cannot be searched with: a record is "
            "in every row of it, and so would be in every block. Give the records."
        )
    return candidate


def make_trial(candidate: Any) -> Any:
    """Return a copy of a candidate that charges no ledger, prints nothing and keeps no files.

    It is fitted on a part of one block. Noise on its scores covers everything that it computes from
    its block: the search pays for its charges, and the length of a ledger or of printed text would
    reveal how many candidates there were.
    """
    trial = clone(candidate)
    for part in [trial, *trial.get_params(deep=True).values()]:
        if hasattr(part, "set_callbacks") and not isinstance(part, type):
            part.set_callbacks()
    changes: dict[str, Any] = {}
    for path, value in trial.get_params(deep=True).items():
        name = path.rpartition("__")[2]
        if name == "ledger" or isinstance(value, PrivacyLedger):
            changes[path] = None
        elif name == "accountant" or is_budget_accountant(value):
            # An accountant of its own: diffprivlib's models would charge the default one otherwise.
            changes[path] = _accountant_of_its_own()
        elif name == "verbose" and value:
            changes[path] = False
        elif name == "memory":
            changes[path] = None
        elif type(value) in (dict, list, tuple):
            changes[path] = _charging_nobody(value)
    return trial.set_params(**changes)


def _accountant_of_its_own() -> Any:
    # Imported late, since few trials need diffprivlib.
    from skdpot.privacy import BudgetAccountant

    return BudgetAccountant()


def _charging_nobody(value: Any) -> Any:
    """Return a parameter's value without ledgers, also within containers such as a grid."""
    if isinstance(value, PrivacyLedger):
        return None
    if is_budget_accountant(value):
        return _accountant_of_its_own()
    if type(value) is dict:
        return {key: _charging_nobody(inside) for key, inside in value.items()}
    if type(value) in (list, tuple):
        return type(value)(map(_charging_nobody, value))
    if hasattr(value, "get_params") and not isinstance(value, type):
        return make_trial(value)
    return value


def seed_trial(trial: Any, seed: int) -> None:
    """Seed the open random states of a trial from the seed of its block.

    So the randomness of a block does not depend on earlier trials, nor on how many processes share
    the work.
    """
    open_states = [
        path
        for path, value in sorted(trial.get_params(deep=True).items())
        if path.rpartition("__")[2] == "random_state" and value is None
    ]
    numbers = np.random.SeedSequence(seed).generate_state(len(open_states), np.uint32) >> 1
    trial.set_params(**dict(zip(open_states, numbers.tolist(), strict=True)))
