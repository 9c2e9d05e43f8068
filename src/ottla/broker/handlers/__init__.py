"""The handlers of requests, one file per API."""
