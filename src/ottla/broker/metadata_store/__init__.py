"""Where metadata records are kept, and by which way a decision becomes committed."""
