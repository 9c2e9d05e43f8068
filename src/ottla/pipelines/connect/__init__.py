"""Connectors in both directions, declared in a file and run on Spark.

The classes for writing a connector are exported here; declarations find connectors by name.
"""

from ottla.pipelines.connect.declaring.connector import Home, SinkConnector, SourceConnector
from ottla.pipelines.connect.declaring.errors import ConnectorError, DeclarationError
from ottla.pipelines.connect.declaring.settings import (
    REQUIRED,
    Setting,
    pairs,
    text,
    whole,
    words,
    yes_or_no,
)

__all__ = [
    "REQUIRED",
    "ConnectorError",
    "DeclarationError",
    "Home",
    "Setting",
    "SinkConnector",
    "SourceConnector",
    "pairs",
    "text",
    "whole",
    "words",
    "yes_or_no",
]
