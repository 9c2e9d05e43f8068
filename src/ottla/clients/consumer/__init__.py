"""Records on their way from a cluster."""
