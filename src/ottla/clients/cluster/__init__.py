"""Metadata, connections and coordinators of a cluster, shared by all clients."""
