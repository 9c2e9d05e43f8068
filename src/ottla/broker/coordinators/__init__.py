"""Group and transaction coordinators: one state machine per partition of their internal topics."""
