"""Settings of brokers, topics and groups under Kafka's names."""
