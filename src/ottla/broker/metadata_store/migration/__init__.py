"""A running cluster moves from ZooKeeper to a quorum of controllers."""
