"""The number of examples of property tests."""

from hypothesis import settings

# The time of an example depends on the machine's load: there is no deadline.
settings.register_profile("suite", deadline=None)
settings.load_profile("suite")
