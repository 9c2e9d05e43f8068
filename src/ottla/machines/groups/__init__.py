"""Classic consumer groups and their committed offsets, as kept in `__consumer_offsets`."""
