"""From settings to a running broker."""
