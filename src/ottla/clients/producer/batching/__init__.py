"""From a record to a batch that is ready to be sent."""
