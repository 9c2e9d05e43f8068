"""The producer's side of transactions."""
