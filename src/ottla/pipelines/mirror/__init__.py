"""Topics copied from one cluster to another: batches as they are, offsets and groups followed."""
