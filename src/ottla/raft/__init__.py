"""Raft as Kafka has it: elections, the replicated metadata log, its voters and its snapshots."""
