"""The error of values that do not fit their schema."""


class InvalidValueError(ValueError):
    """A value or payload does not fit its schema; the message has the path and the reason."""
