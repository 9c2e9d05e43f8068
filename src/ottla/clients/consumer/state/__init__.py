"""Subscription, progress and settings of a consumer."""
