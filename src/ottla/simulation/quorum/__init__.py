"""A simulated quorum of controllers: its replicas, its faults and its invariants."""
