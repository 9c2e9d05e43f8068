"""Metadata, connections and coordinators of a cluster, as all clients use them."""
