"""From ready batches to produce requests and their results."""
