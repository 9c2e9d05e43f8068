"""PostgreSQL as a source: its logical replication as events."""
