"""Workers that process records in the order of their keys."""
