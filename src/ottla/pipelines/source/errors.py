"""What the source raises. Spark shows the text to whoever started the query."""


class SourceOptionError(ValueError):
    """An option that the source does not have, or that cannot be what was said."""


class SourceReadError(RuntimeError):
    """What was to be read cannot be had; a query may go on from its checkpoint later."""


class DataLossError(SourceReadError):
    """Records are gone that were to be read, and failOnDataLoss is true."""


ADVICE_ON_LOSS = (
    "set failOnDataLoss to false to go on with what is there, or begin anew with another "
    "checkpointLocation"
)
