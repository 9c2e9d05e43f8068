"""What a producer raises besides ApiError; each is a sentence that says what to do."""


class RecordTooLargeError(ValueError):
    """A record is larger than a request may be; it was not queued."""


class BufferFullError(TimeoutError):
    """There was no room for a record within max.block.ms; it was not queued."""


class DeliveryTimeoutError(TimeoutError):
    """A record was not confirmed within delivery.timeout.ms; it may have been written."""


class ProducerClosedError(RuntimeError):
    """The producer is closed, or was closed before the record was confirmed."""


class RecordNotSentError(RuntimeError):
    """A record was fine, but another one in the same batch was not, so the batch was refused."""
