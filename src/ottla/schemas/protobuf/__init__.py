"""Protobuf: texts, descriptors, compatibility, and data."""
