"""Producer state: sequences, epochs, open transactions and their snapshots."""
