"""`make demo`: a broker, a generator, and a pipeline on Spark, on this machine and for a minute."""
