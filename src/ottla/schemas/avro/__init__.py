"""Avro: types, texts, compatibility, and data."""
