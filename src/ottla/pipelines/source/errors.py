"""The exceptions of the source. Spark shows their text to the user of the query."""


class SourceOptionError(ValueError):
    """An option that the source does not have, or an invalid value of an option."""


class SourceReadError(RuntimeError):
    """Records cannot be read; a query may be restarted from its checkpoint later."""


class DataLossError(SourceReadError):
    """Records to be read were deleted, and failOnDataLoss is true."""


ADVICE_ON_LOSS = (
    "set failOnDataLoss to false to go on with what is there, or begin anew with another "
    "checkpointLocation"
)
