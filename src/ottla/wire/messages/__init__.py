"""One file per API: a request class and a response class for all versions."""
