"""The records that coordinators write to internal topics, in Kafka's own formats."""
