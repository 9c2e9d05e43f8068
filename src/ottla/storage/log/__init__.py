"""One partition's log: admission, append, read, flush, retention."""
