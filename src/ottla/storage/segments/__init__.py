"""Segments: files, lists of them, searches and checks."""
