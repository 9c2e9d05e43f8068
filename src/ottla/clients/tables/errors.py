"""The exceptions of reading topics as tables."""


class SourceReadError(RuntimeError):
    """Records cannot be read; a query may be restarted from its checkpoint later."""


class DataLossError(SourceReadError):
    """Records to be read were deleted, and the reader was told to fail then."""


class ValueDecodingError(SourceReadError):
    """A value or key does not fit its schema, or has none."""
