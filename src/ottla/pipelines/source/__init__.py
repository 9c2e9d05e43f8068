"""Topics as Spark DataFrames, in batches and as streams."""
