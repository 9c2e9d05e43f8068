"""Streams and tables over topics: a thin layer on DataFrames, not a second engine."""
