"""Decides what becomes of topics, their settings, brokers and producer ids."""
