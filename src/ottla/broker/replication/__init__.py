"""Replica fetchers, ISR changes, moves between log dirs and replication quotas."""
