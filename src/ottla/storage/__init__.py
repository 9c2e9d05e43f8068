"""One partition on one disk, in Kafka's files. Deterministic: the disk and the time are given."""
