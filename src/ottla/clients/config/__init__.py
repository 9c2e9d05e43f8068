"""Client settings under Kafka's names."""
