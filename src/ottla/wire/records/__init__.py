"""Record batches: headers are read in place, records only on request."""
