"""Settings, errors and the identity of a producer."""
