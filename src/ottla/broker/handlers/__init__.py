"""One file per API: what a request leads to."""
