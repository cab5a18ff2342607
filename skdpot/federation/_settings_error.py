"""The error of a wrong configuration."""


class SettingsError(ValueError):
    """A configuration is wrong; the message is about keys and files, never about rows."""
