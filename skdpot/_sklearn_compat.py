"""Settings of libraries: private parts of scikit-learn, and threads of linear algebra."""

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from sklearn import get_config
from sklearn.base import BaseEstimator
from sklearn.base import _clone_parametrized as clone_parametrized
from sklearn.utils import _safe_indexing as rows_at
from sklearn.utils._param_validation import HasMethods, Interval, InvalidParameterError, StrOptions
from sklearn.utils._set_output import _get_output_config

if TYPE_CHECKING:
    Method = TypeVar("Method", bound=Callable)

    def fit_context(*, prefer_skip_nested_validation: bool) -> Callable[[Method], Method]:
        """Leave the signature of a method as it is, which scikit-learn's own hides."""
else:
    from sklearn.base import _fit_context as fit_context
from sklearn.utils.validation import _check_method_params as metadata_at
from threadpoolctl import ThreadpoolController

__all__ = [
    "HasMethods", "Interval", "InvalidParameterError", "StrOptions", "clone_parametrized",
    "fit_context", "groups_are_lost", "metadata_at", "output_container", "removed_tree_types",
    "rows_at", "validate_nested_parameters", "validate_parameters",
]  # fmt: skip

# scikit-learn 1.8 was the last to have these in `sklearn.tree._tree`, as these types.
REMOVED_TREE_TYPES = {"DTYPE": np.float32, "DOUBLE": np.float64}

_lock = threading.RLock()


def validate_parameters(estimator: BaseEstimator) -> None:
    """Raise if a constructor parameter violates the constraints of its estimator.

    `fit_context` does the same before a fit; this is for methods that use parameters set after it.
    """
    estimator._validate_params()


def validate_nested_parameters(estimator: BaseEstimator) -> None:
    """Raise if a parameter of an estimator, or of a nested one, violates its constraints.

    Estimators that declare no constraints are left out.
    """
    for part in [estimator, *estimator.get_params(deep=True).values()]:
        if isinstance(part, BaseEstimator) and hasattr(part, "_parameter_constraints"):
            validate_parameters(part)


def groups_are_lost() -> bool:
    """Tell whether a running search or cross-validation got groups that no fit will be given.

    Without metadata routing, scikit-learn passes them to the splitter alone.
    """
    frame = None if get_config()["enable_metadata_routing"] else sys._getframe(1)
    while frame is not None:
        if frame.f_globals.get("__name__", "").startswith("sklearn.model_selection."):
            given = {"groups": frame.f_locals.get("groups")} | (frame.f_locals.get("params") or {})
            if given["groups"] is not None:
                return True
        frame = frame.f_back
    return False


def output_container(transformer: BaseEstimator) -> str:
    """Return the container that `set_output` chose for transformed rows, or "default"."""
    return _get_output_config("transform", transformer)["dense"]


@contextmanager
def removed_tree_types() -> Iterator[None]:
    """Provide type names that `sklearn.tree._tree` no longer has, within the block.

    Names that the installed scikit-learn still has are not changed, and the others are removed when
    the block ends. Only one thread at a time is inside.

    Examples
    --------
    >>> from skdpot._sklearn_compat import removed_tree_types
    >>> with removed_tree_types():
    ...     from sklearn.tree._tree import DOUBLE
    >>> DOUBLE
    <class 'numpy.float64'>
    """
    # Imported here since it is slow, and only a user of diffprivlib needs it.
    from sklearn.tree import _tree

    with _lock:
        missing = {n: kind for n, kind in REMOVED_TREE_TYPES.items() if not hasattr(_tree, n)}
        try:
            for name, kind in missing.items():
                setattr(_tree, name, kind)
            yield
        finally:
            for name in missing:
                vars(_tree).pop(name, None)


# Fewer rows are small work for trees and for linear models.
MANY_ROWS = 10_000


def one_blas_thread() -> AbstractContextManager[object]:
    """Return a context in which linear algebra uses one thread."""
    return _libraries().limit(limits=1, user_api="blas")


def one_thread_unless(is_large: bool) -> AbstractContextManager[object]:
    """Return a context in which linear algebra and trees use one thread, unless work is large.

    In small work, threads mostly wait for each other. On a busy machine they can take a hundred
    times as long as one thread.
    """
    return _libraries().limit(limits=None if is_large else 1)


@cache
def _libraries() -> ThreadpoolController:
    """Return the libraries that have threads; finding them takes some milliseconds.

    Python ignores an interruption during the search.
    """
    # numpy's and scipy's are loaded by the modules that calculate.
    return ThreadpoolController()
