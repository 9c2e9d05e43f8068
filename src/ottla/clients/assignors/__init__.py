"""Who reads which partition: how the leader of a classic group shares them out."""
