"""The metadata store of a single broker: the metadata log on its own disk."""
