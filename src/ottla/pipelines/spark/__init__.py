"""How Ottla uses Spark's JVM."""
