"""Waiting and time sharing on one event loop: notifier, keyed lock, timers, time slices."""
