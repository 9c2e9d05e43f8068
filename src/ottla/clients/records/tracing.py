"""Trace context of OpenTelemetry in the headers of records.

The headers are W3C's `traceparent` and `tracestate`, or the headers of the configured propagator.
Ottla does not depend on OpenTelemetry: applications that trace install it.
"""

from importlib import import_module
from typing import Any, Final, Protocol

_MISSING: Final = "traces need OpenTelemetry, which is not installed: pip install opentelemetry-api"


class Propagator(Protocol):
    """The used part of OpenTelemetry's TextMapPropagator."""

    def inject(self, carrier: dict[str, str]) -> None:
        """Write the current context into a mapping."""
        ...

    def extract(self, carrier: dict[str, str]) -> Any:
        """Return the context that a mapping holds."""
        ...


class TracePropagation:
    """An interceptor that adds the current trace to the headers of every sent record.

    ImportError with an explanation if there is neither a propagator nor OpenTelemetry.
    """

    def __init__(self, propagator: Propagator | None = None) -> None:
        self._propagator: Any = _global_propagator() if propagator is None else propagator

    def on_send(self, record: Any, /) -> Any:
        """Return the record with the current trace in its headers; a former trace is replaced."""
        carrier: dict[str, str] = {}
        self._propagator.inject(carrier)
        if not carrier:
            return record
        kept = [(name, value) for name, value in record.headers or () if name not in carrier]
        added = [(name, value.encode()) for name, value in carrier.items()]
        return record._replace(headers=[*kept, *added])

    def context_of(self, record: Any) -> Any:
        """Return the context of a record's sender, as the parent of a new span."""
        carrier = {
            name: value.decode("utf-8", "replace")
            for name, value in record.headers
            if value is not None
        }
        return self._propagator.extract(carrier)


def _global_propagator() -> Any:
    try:
        return import_module("opentelemetry.propagate")
    except ImportError:
        raise ImportError(_MISSING) from None
