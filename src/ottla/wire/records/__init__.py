"""Record batches: their headers read in place, their records only where someone asks."""
