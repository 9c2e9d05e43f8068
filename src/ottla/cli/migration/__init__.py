"""Checks of a Kafka cluster before Ottla's brokers replace its brokers."""
