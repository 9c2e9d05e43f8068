"""From fetch requests to buffered records, and the positions."""
