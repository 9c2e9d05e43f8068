"""The driver of `ottla.raft`: a replica of the metadata log, its files and its requests."""
