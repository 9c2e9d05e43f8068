"""The errors of options, and advice. Spark shows their text to the user of the query."""


class SourceOptionError(ValueError):
    """An option that the source does not have, or an invalid value of an option."""


ADVICE_ON_LOSS = (
    "set failOnDataLoss to false to go on with the records that exist, or begin anew with another "
    "checkpointLocation"
)
