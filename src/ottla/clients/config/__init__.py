"""Settings of clients under Kafka's names."""
