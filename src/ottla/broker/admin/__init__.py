"""Operations over HTTP: metrics, health and log levels, on a thread beside the event loop."""
