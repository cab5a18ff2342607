"""Sensitivities that a test declares itself, in the place of a function of the package."""


def declared(bound):
    """Return a function that says the same of neighbours under any relation."""
    return lambda *, relation="replace_one": bound
