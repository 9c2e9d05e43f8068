"""Records on their way to a cluster."""
