"""How fast the foundation is, beside others that do the same work: `python -m benchmarks`."""
