"""The error of what an operator has configured."""


class SettingsError(ValueError):
    """Something is not configured as it should be; what it says is of keys, and never of rows."""
