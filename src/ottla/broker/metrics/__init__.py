"""The broker's metrics, and their export to Prometheus.

Counting is an addition to a plain number, on the event loop. Everything else happens per scrape:
`snapshot` gathers on the loop, in time slices, and `scrape` formats text on a thread.
"""
