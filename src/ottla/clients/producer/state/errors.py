"""The errors that a producer raises besides ApiError; each sentence names the remedy."""


class RecordTooLargeError(ValueError):
    """A record is larger than a request may be; it was not queued."""


class BufferFullError(TimeoutError):
    """buffer.memory was full for max.block.ms; the record was not queued."""


class DeliveryTimeoutError(TimeoutError):
    """A record was not confirmed within delivery.timeout.ms; it may have been written."""


class ProducerClosedError(RuntimeError):
    """The producer is closed, or was closed before the record was confirmed."""


class RecordNotSentError(RuntimeError):
    """The record was valid, but another record made the broker refuse their batch."""
