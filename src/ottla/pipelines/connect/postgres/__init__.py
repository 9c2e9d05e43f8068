"""PostgreSQL as a source: what its logical replication says, as events."""
