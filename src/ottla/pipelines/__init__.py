"""Data pipelines on Spark, through PySpark: source, sink, streams, connectors, mirror."""
