"""The error of options. Spark shows its text to the user of the query."""


class SinkOptionError(ValueError):
    """An option or a column that a sink cannot use; the message has the remedy."""
