"""One file per API: its request and its response, each one class for all versions."""
