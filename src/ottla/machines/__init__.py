"""Replicated state machines: a request leads to a decision, replaying its records to new state."""
