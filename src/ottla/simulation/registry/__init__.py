"""The schema registry in a simulated cluster: its servers, its clients, and its invariants."""
