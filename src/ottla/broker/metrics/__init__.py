"""What the broker counts, and how it is told to Prometheus.

Counting is adding to a plain number, on the event loop. Everything else happens when somebody asks:
`snapshot` gathers on the loop, turn by turn, and `scrape` writes it as text on a thread.
"""
