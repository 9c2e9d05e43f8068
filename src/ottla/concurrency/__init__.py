"""Waiting and taking turns on one event loop: notifier, keyed lock, timers, time slices."""
