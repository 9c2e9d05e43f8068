"""JSON Schema: texts, compatibility, and data."""
