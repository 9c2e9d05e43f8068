"""Ottla: an event-streaming platform that speaks the Kafka protocol."""
