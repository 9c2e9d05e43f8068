"""Trace context of OpenTelemetry in the headers of records.

The headers are W3C's `traceparent` and `tracestate`, or those of the propagator that the
application configures. Ottla does not depend on OpenTelemetry: applications that trace install it.
"""

from importlib import import_module
from typing import Any, Final, Protocol

_MISSING: Final = "traces need OpenTelemetry, which is not installed: pip install opentelemetry-api"


class Propagator(Protocol):
    """The part of OpenTelemetry's TextMapPropagator that is used here."""

    def inject(self, carrier: dict[str, str]) -> None:
        """Write the current context into a mapping."""
        ...

    def extract(self, carrier: dict[str, str]) -> Any:
        """Return the context that a mapping holds."""
        ...


class TracePropagation:
    """An interceptor that adds the current trace to the headers of every record that is sent.

    ImportError, with a sentence, if there is neither a propagator nor OpenTelemetry.
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
        """Return the context in which a record was sent, to begin a span with."""
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
