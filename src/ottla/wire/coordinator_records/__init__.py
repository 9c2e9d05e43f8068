"""The records that coordinators keep in internal topics, in Kafka's own formats."""
