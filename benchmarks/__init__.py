"""The speed of Ottla's parts, beside other libraries for the same work: `python -m benchmarks`."""
