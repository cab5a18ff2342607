"""What holds for all tests: hypothesis tries the same examples in every run."""

from hypothesis import settings

settings.register_profile("repeatable", derandomize=True)
settings.load_profile("repeatable")
