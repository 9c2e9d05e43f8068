"""The current pipeline of a definition, for files that call `stream("orders")` directly."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

from ottla.pipelines.streams.pipeline import Pipeline
from ottla.pipelines.streams.stream import Stream
from ottla.pipelines.streams.table import UnreadTable

Definition = Callable[[], object]
"""Declares streams, tables and their targets when called."""
_defined: Final[ContextVar[Pipeline]] = ContextVar("pipeline")


class NoPipelineError(RuntimeError):
    """A stream or table was requested outside a pipeline's definition."""


@contextmanager
def defining(pipeline: Pipeline) -> Iterator[None]:
    """Make `stream` and `table` use this pipeline."""
    token = _defined.set(pipeline)
    try:
        yield
    finally:
        _defined.reset(token)


def current_pipeline() -> Pipeline:
    """Return the pipeline that is being defined. NoPipelineError if none is."""
    try:
        return _defined.get()
    except LookupError:
        raise NoPipelineError(
            "no pipeline is being defined here: `ottla pipeline run FILE` runs the file of one,"
            " and `ottla.streams.run` and `run_batch` take a function"
        ) from None


def stream(
    topic: str, *, start: str = "earliest", options: Mapping[str, str] | None = None
) -> Stream:
    """Read the records of a topic in the pipeline that is being defined."""
    return current_pipeline().stream(topic, start=start, options=options)


def table(topic: str) -> UnreadTable:
    """Read a topic as a table in the pipeline that is being defined."""
    return current_pipeline().table(topic)
