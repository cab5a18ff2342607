"""The late import of the engine, which needs PyTorch."""

from typing import Any


def load_engine() -> Any:
    """Return the module that trains networks, or raise where PyTorch is missing.

    Returns
    -------
    module
        `skdpot.generative._torch.training`.

    Raises
    ------
    ModuleNotFoundError
        If PyTorch is not installed.

    Examples
    --------
    >>> from skdpot.generative._engine import load_engine
    >>> load_engine().find_device("cpu")
    device(type='cpu')
    """
    try:
        from skdpot.generative._torch import training
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
    else:
        return training
    raise ModuleNotFoundError(
        "a network is trained with PyTorch, which is not installed. Install it "
        'with this package: python -m pip install "skdpot[torch]".',
        name="torch",
    )
