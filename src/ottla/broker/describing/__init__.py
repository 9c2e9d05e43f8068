"""Responses that describe the cluster, its topics, its settings and its clients."""
