"""Writing topics from Spark: `df.write.format("ottla")`, and exactly once where it is asked for."""
