"""Where Spark finds the format "ottla": it looks for DefaultSource in modules named pyspark_…."""

from ottla.pipelines.datasource import OttlaDataSource as DefaultSource

__all__ = ["DefaultSource"]
