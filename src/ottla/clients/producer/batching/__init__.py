"""From records to batches that are ready to be sent."""
