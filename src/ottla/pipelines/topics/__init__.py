"""Reading topics without Spark."""
